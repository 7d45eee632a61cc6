//! Held-out data: a share of the data, files whose names say so (such as `valid.jsonl`), or those of `--eval-data`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use highwater_memory::Files;
use highwater_models::data::{Parts, Reads, parts_of};
use highwater_text::records::record_parts;

use crate::config::{DataConfig, RunConfig};
use crate::error::Failure;

/// The files of text, tokens or records, by what becomes of them; none of data that is no file, or not there yet.
///
/// # Errors
/// [`Failure`] for data that cannot be listed, and for a folder with nothing to train on.
pub(crate) fn parts(
    files: &dyn Files,
    data: Option<&Path>,
    (held_out, reads, has_records): (Option<&Path>, Reads, bool),
) -> Result<Option<Parts>, Failure> {
    let Some(path) = data else {
        return Ok(None);
    };
    let is_there = |path: &Path| Ok::<_, Failure>(files.metadata(path)?.is_some());
    let both = is_there(path)? && held_out.map_or(Ok(true), is_there)?;
    if !both {
        return Ok(None);
    }
    Ok(Some(if has_records {
        record_parts(files, path, (held_out, reads))?
    } else {
        parts_of(files, path, (held_out, reads))?
    }))
}

/// The same of a run's data.
///
/// # Errors
/// As [`parts`].
pub(crate) fn parts_of_data(
    files: &dyn Files,
    data: &DataConfig,
) -> Result<Option<Parts>, Failure> {
    let held_out = data.eval_data.as_deref();
    let ways = (held_out, data.reads, data.records.is_some());
    parts(files, data.path.as_deref(), ways)
}

/// That something is held out where the loss on it is asked for.
///
/// # Errors
/// [`Failure`] where nothing is.
pub(crate) fn check_use(files: &dyn Files, config: &RunConfig) -> Result<(), Failure> {
    let is_asked = config.output.eval_every.is_some() && config.output.sample.is_empty();
    if !is_asked || config.data.held_out > 0.0 || !config.task.is_text() {
        return Ok(());
    }
    let parts = parts_of_data(files, &config.data)?;
    if parts.is_none_or(|parts| !parts.held_out.is_empty()) {
        Ok(())
    } else {
        Err(nothing())
    }
}

/// The same of data that is open: so many tokens or images are held out.
///
/// # Errors
/// [`Failure`] where there are none.
pub(crate) fn check_count(config: &RunConfig, held_out: u64) -> Result<(), Failure> {
    let is_asked = config.output.eval_every.is_some() && config.output.sample.is_empty();
    if is_asked && held_out == 0 {
        Err(nothing())
    } else {
        Ok(())
    }
}

fn nothing() -> Failure {
    Failure::usage("--eval-every needs held-out data, and nothing is held out")
        .hint("use --held-out 5%, or --eval-data FILE")
}

/// What becomes of the files of the data, for people; none where all of them are trained on.
///
/// # Errors
/// [`Failure`] for data that cannot be listed.
pub(crate) fn describe(files: &dyn Files, config: &RunConfig) -> Result<Option<String>, Failure> {
    if !config.task.is_text() {
        return Ok(None);
    }
    let Some(path) = &config.data.path else {
        return Ok(None);
    };
    let parts = parts_of_data(files, &config.data)?;
    let folder = match files.metadata(path)? {
        Some(found) if found.is_dir => path.as_path(),
        _ => path.parent().unwrap_or(path),
    };
    let Some(parts) = parts else {
        return Ok(None);
    };
    let read = parts.train.iter().chain(&parts.held_out);
    let missing = missing_parts(read.map(|(path, _)| path.as_path()));
    let said = parts.describe(folder, config.data.reads).into_iter();
    let lines: Vec<String> = said.chain(missing).collect();
    Ok((!lines.is_empty()).then(|| lines.join("\n")))
}

/// A warning where files say that they are some of several parts, such as `train-00000-of-00002.parquet`, and others of
/// these are not there.
fn missing_parts<'a>(paths: impl Iterator<Item = &'a Path>) -> Option<String> {
    // By the name around the number: how many parts there are to be, and which are there.
    let mut sets: BTreeMap<(&Path, &str, &str), (usize, BTreeSet<usize>)> = BTreeMap::new();
    for path in paths {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("");
        let Some((before, (number, rest))) = name
            .split_once("-of-")
            .and_then(|(first, rest)| Some((first.rsplit_once('-')?, rest)))
            .map(|((before, number), rest)| (before, (number, rest)))
        else {
            continue;
        };
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (Ok(number), Ok(count)) = (number.parse(), rest[..digits].parse::<usize>()) else {
            continue;
        };
        let folder = path.parent().unwrap_or(path);
        let set = sets
            .entry((folder, before, rest))
            .or_insert((count, BTreeSet::new()));
        set.1.insert(number);
    }
    let warnings = sets
        .into_iter()
        .filter_map(|((folder, before, rest), (count, there))| {
            let all = there.len();
            (all < count).then(|| {
                let name = folder.join(format!("{before}-*-of-{rest}"));
                let are = if all == 1 { "is" } else { "are" };
                format!(
                    "warning: of the {count} parts {} {all} {are} there",
                    name.display()
                )
            })
        });
    let warnings: Vec<String> = warnings.collect();
    (!warnings.is_empty()).then(|| warnings.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_missing_are_said() {
        let said = |names: &[&str]| missing_parts(names.iter().map(Path::new));
        for names in [
            &[
                "d/train-00000-of-00002.parquet",
                "d/train-00001-of-00002.parquet",
            ][..],
            &[
                "d/a.jsonl",
                "d/one-of-a-kind.jsonl",
                "d/1-of-2.jsonl",
                "d/a-x-of-00002.jsonl",
            ],
            &[
                "d/train-00000-of-00001.parquet",
                "d/test-00000-of-00001.parquet",
            ],
        ] {
            assert_eq!(said(names), None, "{names:?}");
        }
        let found = said(&[
            "d/train-00000-of-00003.jsonl.gz",
            "d/train-00002-of-00003.jsonl.gz",
            "e/train-00001-of-00003.jsonl.gz",
        ]);
        let expected = "warning: of the 3 parts d/train-*-of-00003.jsonl.gz 2 are there\n\
                        warning: of the 3 parts e/train-*-of-00003.jsonl.gz 1 is there";
        assert_eq!(found.as_deref(), Some(expected));
    }
}
