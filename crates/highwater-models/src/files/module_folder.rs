//! The parameters and buffers of a module as the files of weights of a model folder: one, or several that an index
//! names, as `transformers` writes and reads them.

use std::collections::BTreeMap;
use std::path::Path;

use highwater::{Parameter, Result};
use highwater_memory::files::is_draft;
use highwater_memory::saved::write_atomic;
use highwater_memory::{Files, FilesError};
use serde_json::json;

use crate::files::module_file::write_file;
use crate::files::weights::{INDEX, SINGLE};

/// Bytes of tensors in a file, at most, unless one alone has more: `save_pretrained(max_shard_size="50GB")`, the
/// default there.
pub const SHARD_BYTES: u64 = 50_000_000_000;

/// Writes tensors as the weights of a folder that is there, in files of at most `most` bytes of tensors each, and
/// removes those that were there before, drafts too. Returns the names of its files. Whoever opens the folder after this was killed finds what was
/// there, what is now, or that an index is missing; never some of both.
///
/// # Errors
/// [`highwater::Error::Usage`] while an update is pending; [`highwater::Error::Files`] and
/// [`highwater::Error::Saved`] if a file cannot be written.
pub fn save_folder(
    files: &dyn Files,
    folder: &Path,
    tensors: &[(String, Parameter)],
    most: u64,
) -> Result<Vec<String>> {
    let shards = shards(tensors, bytes_of, most);
    let name = |i: usize| file_name(i, shards.len());
    if shards.len() > 1 {
        // Files of the same names may be there, for another index.
        remove(files, folder, &[INDEX.to_owned()])?;
    }
    let mut names: Vec<String> = (0..shards.len().max(1)).map(name).collect();
    let none: &[_] = &[];
    for (i, name) in names.iter().enumerate() {
        write_file(
            files,
            shards.get(i).copied().unwrap_or(none),
            &folder.join(name),
        )?;
    }
    if shards.len() > 1 {
        let map = names.iter().zip(&shards).flat_map(|(file, shard)| {
            let name = move |(name, _): &(String, Parameter)| (name.clone(), file.clone());
            shard.iter().map(name)
        });
        let total = tensors.iter().map(bytes_of).sum::<u64>();
        write_index(files, folder, &map.collect(), total)?;
    }
    let mut old: Vec<String> = files
        .list_dir(folder)?
        .into_iter()
        .map(|e| e.name)
        .collect();
    old.retain(|name| is_of_weights(name) && !names.contains(name));
    old.retain(|name| name != INDEX || shards.len() <= 1);
    // An index goes before what it names.
    old.sort_by_key(|name| name != INDEX);
    remove(files, folder, &old)?;
    if shards.len() > 1 {
        names.push(INDEX.to_owned());
    }
    Ok(names)
}

/// What one of so many files of weights is called.
pub(crate) fn file_name(i: usize, count: usize) -> String {
    match count {
        0 | 1 => SINGLE.to_owned(),
        count => format!("model-{:05}-of-{count:05}.safetensors", i + 1),
    }
}

/// Writes the index of files: the file of each tensor, and the bytes of all.
pub(crate) fn write_index(
    files: &dyn Files,
    folder: &Path,
    map: &BTreeMap<String, String>,
    bytes: u64,
) -> std::result::Result<(), FilesError> {
    let index = json!({"metadata": {"total_size": bytes}, "weight_map": map});
    let text = format!("{index:#}\n");
    write_atomic(files, &folder.join(INDEX), text.as_bytes())
}

/// Tensors in their order, as many together as there is room for.
pub(crate) fn shards<T>(tensors: &[T], bytes: impl Fn(&T) -> u64, most: u64) -> Vec<&[T]> {
    let (mut shards, mut rest) = (Vec::new(), tensors);
    while !rest.is_empty() {
        let mut taken = 0_u64;
        let fits = |tensor: &&T| {
            taken = taken.saturating_add(bytes(tensor));
            taken <= most
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (shard, later) = rest.split_at(count);
        shards.push(shard);
        rest = later;
    }
    shards
}

fn bytes_of((_, tensor): &(String, Parameter)) -> u64 {
    tensor.shape().numel() as u64 * tensor.dtype().element_bytes().unwrap_or(1)
}

/// Whether a folder of a model has a file of that name for its weights.
fn is_of_weights(name: &str) -> bool {
    // A process that was killed left a draft.
    if is_draft(name) {
        return true;
    }
    let shard = || {
        let (one, of) = name.strip_prefix("model-")?.split_once("-of-")?;
        let of = of.strip_suffix(".safetensors")?;
        let is_number = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
        Some(is_number(one) && is_number(of))
    };
    name == SINGLE || name == INDEX || shard() == Some(true)
}

fn remove(files: &dyn Files, folder: &Path, names: &[String]) -> Result<()> {
    for name in names {
        let path = folder.join(name);
        if files.metadata(&path)?.is_some() {
            files.remove_file(&path)?;
        }
    }
    Ok(files.sync_dir(folder)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::weights::WeightsFolder;
    use highwater::Engine;
    use highwater_memory::files::{Fault, FaultKind, MemoryFiles, ScriptedFiles};
    use std::sync::Arc;

    const FOLDER: &str = "/m";

    fn tensors(engine: &Engine, offset: f32) -> Vec<(String, Parameter)> {
        let one = |i: usize| {
            let fill = |values: &mut [f32]| values.fill(offset + i as f32);
            let tensor = Parameter::new(engine, [i + 1, 4], fill).unwrap();
            (format!("layer.{i}"), tensor)
        };
        (0..6).map(one).collect()
    }

    /// The value of each tensor, or why there is none.
    fn read(files: &dyn Files) -> std::result::Result<Vec<f32>, String> {
        let told = |error: crate::files::weights::WeightsError| error.to_string();
        let mut weights = WeightsFolder::open(files, Path::new(FOLDER)).map_err(told)?;
        let one = |i: usize| {
            let name = format!("layer.{i}");
            let mut values = vec![0.0; 4 * (i + 1)];
            let reader = weights.reader(&name).map_err(told)?;
            reader
                .read_f32(&name, &[i + 1, 4], &mut values)
                .map_err(told)?;
            assert!(
                values
                    .iter()
                    .all(|value| value.to_bits() == values[0].to_bits())
            );
            Ok(values[0])
        };
        (0..6).map(one).collect()
    }

    fn names(files: &dyn Files) -> Vec<String> {
        let mut names: Vec<String> = files
            .list_dir(Path::new(FOLDER))
            .unwrap()
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        names.sort();
        names
    }

    fn expected(offset: f32) -> Vec<f32> {
        (0..6).map(|i| offset + i as f32).collect()
    }

    #[test]
    fn a_folder_has_as_many_files_as_its_tensors_need() {
        let engine = Engine::builder().threads(1).build().unwrap();
        let tensors = tensors(&engine, 0.0);
        // Of 16, 32, .., 96 bytes.
        let files = MemoryFiles::new();
        files.create_dir_all(Path::new(FOLDER)).unwrap();
        // What a killed one left goes, too; a file of somebody else's stays.
        for name in ["config.json", "model.safetensors.tmp", ".highwater-1-1.tmp"] {
            files.create(&Path::new(FOLDER).join(name)).unwrap();
        }
        for (most, count) in [
            (336, 1),
            (335, 2),
            (96, 4),
            (1, 6),
            (SHARD_BYTES, 1),
            (100, 4),
        ] {
            save_folder(&files, Path::new(FOLDER), &tensors, most).unwrap();
            assert_eq!(read(&files).unwrap(), expected(0.0), "{most}");
            let found = names(&files);
            let others = usize::from(count > 1) + 2;
            assert_eq!(found.len(), count + others, "{most}: {found:?}");
            assert_eq!(found.contains(&SINGLE.to_owned()), count == 1);
            let sized = count > 1
                && files
                    .open(&Path::new(FOLDER).join(INDEX))
                    .map(|mut index| {
                        let mut text = vec![0; index.bytes() as usize];
                        index.read_exact_at(0, &mut text).unwrap();
                        String::from_utf8(text)
                            .unwrap()
                            .contains("\"total_size\": 336")
                    })
                    .unwrap();
            assert_eq!(sized, count > 1);
        }
    }

    #[test]
    fn a_crash_leaves_the_old_or_the_new_or_says_that_something_is_missing() {
        let engine = Engine::builder().threads(1).build().unwrap();
        let (old, new) = (tensors(&engine, 0.0), tensors(&engine, 100.0));
        for (before, after) in [(336, 100), (100, 336), (100, 100), (100, 50), (336, 336)] {
            let (mut was, mut is, mut missing) = (0, 0, 0);
            for at in 0.. {
                let inner = MemoryFiles::new();
                inner.create_dir_all(Path::new(FOLDER)).unwrap();
                save_folder(&inner, Path::new(FOLDER), &old, before).unwrap();
                let fault = Fault {
                    at,
                    persistent: true,
                    kind: FaultKind::CrashBefore,
                };
                let inner: Arc<dyn Files> = Arc::new(inner);
                let files = ScriptedFiles::new(Arc::clone(&inner), Some(fault));
                let saved = save_folder(&files, Path::new(FOLDER), &new, after);
                match read(&*inner) {
                    Ok(found) if found == expected(0.0) => was += 1,
                    Ok(found) => {
                        assert_eq!(found, expected(100.0), "{before} to {after} at {at}");
                        is += 1;
                    }
                    Err(_) => missing += 1,
                }
                if saved.is_ok() {
                    break;
                }
            }
            assert!(was > 0 && is > 0, "{before} to {after}: {was}, {is}");
            assert_eq!(missing > 0, before < 336 && after < 336);
        }
    }
}
