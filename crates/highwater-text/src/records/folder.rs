//! The files with records in a folder.

use std::path::{Path, PathBuf};

use highwater_memory::Files;

use super::Fault;
use super::kind::{self, Format, Kind};
use crate::data::{Found, Parts, Reads, split_of};
use crate::{Position, TextError};

/// The most files in a folder of records.
const FILES_MAX: usize = 1 << 17;
/// The most folders within each other.
const DEPTH_MAX: usize = 64;
/// Files that describe the others of a folder. What of them is JSON is of the library `datasets`.
const COMPANIONS: [&str; 7] = [
    "readme",
    "license",
    "licence",
    "changelog",
    "dataset_info.json",
    "dataset_infos.json",
    "state.json",
];

/// The files at a path in the order in which they are read: the file itself, or those of a folder that have a known
/// ending, sorted by path. Where names say that files are for validation or tests, those are left out, as
/// [`record_parts`] tells. So are hidden files and empty ones, and what tells about a folder (`README`, `LICENSE`,
/// `dataset_info.json` and such); links to folders are not followed.
///
/// # Errors
/// [`TextError`] where nothing is there, and for a file whose ending is not known.
pub fn record_files(files: &dyn Files, path: &Path) -> Result<Vec<PathBuf>, TextError> {
    let parts = record_parts(files, path, (None, Reads::Training))?;
    Ok(parts.train.into_iter().map(|(path, _)| path).collect())
}

/// The files of records at a path, by what becomes of them. `held_out` names what the loss is measured on, where that
/// lies elsewhere.
///
/// # Errors
/// [`TextError`] where nothing is there to train on, and for a file whose ending is not known.
pub fn record_parts(
    files: &dyn Files,
    path: &Path,
    (held_out, reads): (Option<&Path>, Reads),
) -> Result<Parts, TextError> {
    let mut parts = parts_at(files, path, reads)?;
    if let Some(named) = held_out {
        parts.hold_out(parts_at(files, named, Reads::Evaluation)?);
    }
    Ok(parts)
}

/// Whether there are files of records at a path, and not of text or tokens alone.
///
/// # Errors
/// [`TextError`] for a folder that cannot be listed.
pub fn holds_records(files: &dyn Files, path: &Path) -> Result<bool, TextError> {
    if !files.metadata(path)?.is_some_and(|found| found.is_dir) {
        // Of what is not there yet its name tells.
        return Ok(kind::is_record_file(path));
    }
    let mut all = Listed::default();
    collect(files, path, 0, &mut all)?;
    Ok(all.found.iter().any(|file| kind::is_record_file(&file.0)))
}

fn parts_at(files: &dyn Files, path: &Path, reads: Reads) -> Result<Parts, TextError> {
    let fault = |fault: Fault| fault.at(path, Position::Whole);
    let Some(metadata) = files.metadata(path)? else {
        return Err(fault(Fault::new("there is no such file or folder")));
    };
    if !metadata.is_dir {
        if Kind::of(path).is_none() {
            return Err(kind::unknown(path));
        }
        return Ok(Parts::one(path, metadata.bytes));
    }
    let mut all = Listed::default();
    collect(files, path, 0, &mut all)?;
    let split = |file: Found| {
        let split = split_of(path, &file.0);
        (file, split)
    };
    let found = all.found.into_iter().map(split).collect();
    let parts = Parts::of(found, all.unread, reads);
    if !parts.train.is_empty() {
        return Ok(parts);
    }
    let has_parts =
        !parts.held_out.is_empty() || parts.unread.iter().any(|it| Kind::of(it).is_some());
    Err(fault(match parts.only_others(path).filter(|_| has_parts) {
        Some(problem) => Fault::new(problem).hint("to train on one of them, give its own path"),
        None => Fault::new("no file in this folder has examples").hint(kind::known()),
    }))
}

#[derive(Default)]
struct Listed {
    found: Vec<Found>,
    unread: Vec<PathBuf>,
}

fn collect(
    files: &dyn Files,
    folder: &Path,
    depth: usize,
    all: &mut Listed,
) -> Result<(), TextError> {
    let too_large = |what, max| {
        let fault = Fault::new(format!("more than {max} {what}")).hint("read parts of it");
        fault.at(folder, Position::Whole)
    };
    if depth == DEPTH_MAX {
        return Err(too_large("folders within each other", DEPTH_MAX));
    }
    for (file_name, is_dir) in files.entries(folder)? {
        let (inner, name) = (folder.join(&file_name), file_name.to_string_lossy());
        if name.starts_with('.') {
            continue;
        }
        if is_dir {
            collect(files, &inner, depth + 1, all)?;
            continue;
        }
        let kind = Kind::of(&inner);
        match files.metadata(&inner)? {
            Some(there) if there.is_file && there.bytes == 0 => {}
            Some(there) if there.is_file => match kind {
                Some(kind) if is_companion(&name, kind) => {}
                Some(_) => all.found.push((inner, there.bytes)),
                None if is_description(&name) => {}
                None => all.unread.push(inner),
            },
            // A link to a folder or to nothing, or a pipe or a device.
            _ => all.unread.push(inner),
        }
        if all.found.len() + all.unread.len() > FILES_MAX {
            return Err(too_large("files", FILES_MAX));
        }
    }
    Ok(())
}

/// Whether a file without a known ending tells about others.
fn is_description(name: &str) -> bool {
    let name = name.to_lowercase();
    let stem = name.split('.').next().unwrap_or_default();
    COMPANIONS.contains(&stem)
}

/// Whether a file in a folder of records tells about the others.
fn is_companion(name: &str, kind: Kind) -> bool {
    let name = name.to_lowercase();
    match kind.format {
        Format::Text => {
            let stem = name.split('.').next().unwrap_or_default();
            COMPANIONS.contains(&stem)
        }
        Format::Json => COMPANIONS.contains(&name.as_str()),
        _ => false,
    }
}
