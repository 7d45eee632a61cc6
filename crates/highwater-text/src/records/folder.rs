//! The files with records in a folder.

use std::path::{Path, PathBuf};

use highwater_memory::Files;

use super::Fault;
use super::kind::{self, Format, Kind};
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

/// The files at a path in the order in which they are read: the file itself, or all of a folder that have a known
/// ending, sorted by path. Hidden files and empty ones are left out, links to folders are not followed, and what
/// tells about a folder (`README`, `LICENSE`, `dataset_info.json` and such) is no part of it.
///
/// # Errors
/// [`TextError`] where nothing is there, and for a file whose ending is not known.
pub fn record_files(files: &dyn Files, path: &Path) -> Result<Vec<PathBuf>, TextError> {
    let found = with_bytes(files, path)?;
    Ok(found.into_iter().map(|(path, _)| path).collect())
}

/// The same with their lengths.
pub(super) fn with_bytes(files: &dyn Files, path: &Path) -> Result<Vec<(PathBuf, u64)>, TextError> {
    let fault = |fault: Fault| fault.at(path, Position::Whole);
    let Some(metadata) = files.metadata(path)? else {
        return Err(fault(Fault::new("there is no such file or folder")));
    };
    if !metadata.is_dir {
        if Kind::of(path).is_none() {
            return Err(kind::unknown(path));
        }
        return Ok(vec![(path.to_owned(), metadata.bytes)]);
    }
    let mut found = Vec::new();
    collect(files, path, 0, &mut found)?;
    if found.is_empty() {
        let none = Fault::new("no file in this folder is one of records, or all are empty");
        return Err(fault(none.hint(kind::known())));
    }
    Ok(found)
}

fn collect(
    files: &dyn Files,
    folder: &Path,
    depth: usize,
    found: &mut Vec<(PathBuf, u64)>,
) -> Result<(), TextError> {
    let too_large = |what, max| {
        let fault = Fault::new(format!("more than {max} {what}")).hint("read parts of it");
        fault.at(folder, Position::Whole)
    };
    if depth == DEPTH_MAX {
        return Err(too_large("folders within each other", DEPTH_MAX));
    }
    let mut entries = files.list_dir(folder)?;
    entries.sort();
    for entry in entries {
        let inner = folder.join(&entry.name);
        if entry.name.starts_with('.') {
            continue;
        }
        if entry.is_dir {
            collect(files, &inner, depth + 1, found)?;
            continue;
        }
        let Some(kind) = Kind::of(&inner) else {
            continue;
        };
        // A link to a folder is an entry that is none and leads to one.
        let metadata = files.metadata(&inner)?.filter(|there| !there.is_dir);
        let bytes = metadata.map_or(0, |there| there.bytes);
        if bytes > 0 && !is_companion(&entry.name, kind) {
            found.push((inner, bytes));
        }
        if found.len() > FILES_MAX {
            return Err(too_large("files", FILES_MAX));
        }
    }
    Ok(())
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
