//! Which files in a folder a run wrote: `--force` deletes these and no others.
//!
//! The run's manifest lists them by their paths in the folder. Saved states come and go, so they are known by their
//! own manifests instead. Hidden files are nobody's: desktops and file systems leave some everywhere. They stay.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use highwater_memory::files::is_draft;
use highwater_memory::saved::{self, write_atomic};
use highwater_memory::{Files, FilesError};

use super::names::{CHECKPOINTS, LOCK, MANIFEST, REPLACED};
use crate::folder::state::STATE_FILES;
use crate::state_name::step_of;

const HEADER: &str =
    "# The files of this run. `highwater train --force` replaces these and no others.\n";

/// Marks the folder of a run that was put aside: the first file there and the last.
pub(crate) const MARK: &str = ".put-aside";
/// The largest manifest that is read, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// What is in a folder, by whether its run wrote it. Paths are relative to the folder.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Files of the run.
    pub(super) own: Vec<PathBuf>,
    /// The first file that is not.
    pub(super) foreign: Option<PathBuf>,
    /// Folders, innermost last.
    folders: Vec<PathBuf>,
}

impl Contents {
    /// Looks through the folder of a run, but for the run that it replaces.
    ///
    /// # Errors
    /// [`FilesError`].
    pub(super) fn read(files: &dyn Files, dir: &Path) -> Result<Self, FilesError> {
        let listed = read_manifest(files, dir)?.unwrap_or_default();
        let mut found = Self::default();
        found.walk(files, (dir, Path::new("")), &listed)?;
        Ok(found)
    }

    fn walk(
        &mut self,
        files: &dyn Files,
        (dir, within): (&Path, &Path),
        listed: &BTreeSet<PathBuf>,
    ) -> Result<(), FilesError> {
        for entry in files.list_dir(&dir.join(within))? {
            let path = within.join(&entry.name);
            let is_aside = path == Path::new(REPLACED) && is_aside(files, dir)?;
            if is_aside || path == Path::new(LOCK) {
                continue;
            }
            if entry.is_dir && is_draft(&entry.name) {
                // Written by a process of this program that was killed.
                self.drafts(files, (dir, &path))?;
            } else if entry.is_dir && !is_hidden(&entry.name) {
                self.folders.push(path.clone());
                self.walk(files, (dir, &path), listed)?;
            } else if is_draft(&entry.name)
                || listed.contains(&path)
                || is_of_state(files, (dir, &path))?
            {
                self.own.push(path);
            } else if !is_hidden(&entry.name) && self.foreign.is_none() {
                self.foreign = Some(path);
            }
        }
        Ok(())
    }

    fn drafts(
        &mut self,
        files: &dyn Files,
        (dir, draft): (&Path, &Path),
    ) -> Result<(), FilesError> {
        self.folders.push(draft.to_owned());
        for entry in files.list_dir(&dir.join(draft))? {
            if !entry.is_dir {
                self.own.push(draft.join(entry.name));
            }
        }
        Ok(())
    }

    /// Leaves out what is in the folder `draft`, if there is one.
    pub(super) fn without(mut self, dir: &Path, draft: Option<&Path>) -> Self {
        if let Some(folder) = draft.and_then(|draft| draft.strip_prefix(dir).ok()) {
            self.own.retain(|path| !path.starts_with(folder));
            self.folders.retain(|path| !path.starts_with(folder));
        }
        self
    }

    /// Deletes the run's files, and the folders that are empty then.
    ///
    /// # Errors
    /// [`FilesError`].
    pub(super) fn delete(mut self, files: &dyn Files, dir: &Path) -> Result<(), FilesError> {
        // The manifest goes last: until then it says what is still the run's.
        self.own.sort_by_key(|path| path == Path::new(MANIFEST));
        for path in &self.own {
            files.remove_file(&dir.join(path))?;
        }
        for folder in self.folders.iter().rev() {
            if files.list_dir(&dir.join(folder))?.is_empty() {
                files.remove_dir(&dir.join(folder))?;
            }
        }
        Ok(())
    }
}

/// Removes what processes of this program that were killed left in a run's folder: drafts, whose names have the
/// process. What another one is at stays, as does what is in them besides files.
///
/// # Errors
/// [`FilesError`].
pub(super) fn sweep(files: &dyn Files, dir: &Path) -> Result<(), FilesError> {
    for entry in files.list_dir(dir)? {
        let Some(process) = process_of(&entry.name) else {
            continue;
        };
        let process = Path::new("/proc").join(process);
        if files.metadata(&process)?.is_some() || files.metadata(Path::new("/proc/self"))?.is_none()
        {
            continue;
        }
        let draft = dir.join(&entry.name);
        if !entry.is_dir {
            files.remove_file(&draft)?;
            continue;
        }
        let mut contents = Contents::default();
        contents.drafts(files, (dir, Path::new(&entry.name)))?;
        contents.delete(files, dir)?;
    }
    Ok(())
}

/// The process that a draft is of, by its name.
fn process_of(name: &str) -> Option<&str> {
    if !is_draft(name) {
        return None;
    }
    name.split(|c: char| !c.is_ascii_digit())
        .find(|part| !part.is_empty())
}

fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

/// Whether a path is that of a file of a saved state. States are made and removed as a whole, so that a folder without
/// a state's manifest is none of the run's, whatever its name is.
fn is_of_state(files: &dyn Files, (dir, path): (&Path, &Path)) -> Result<bool, FilesError> {
    let Ok(within) = path.strip_prefix(CHECKPOINTS) else {
        return Ok(false);
    };
    let mut parts = within.iter().map(|part| part.to_str().unwrap_or_default());
    match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => Ok(name == saved::LATEST),
        (Some(state), Some(file), None) => {
            let is_one = file == saved::MANIFEST || STATE_FILES.contains(&file);
            let is_one = is_one && step_of(state).is_some();
            Ok(is_one && saved::is_state(files, &dir.join(CHECKPOINTS).join(state))?)
        }
        _ => Ok(false),
    }
}

/// Whether the folder has a run put aside, or had one half.
pub(crate) fn is_aside(files: &dyn Files, dir: &Path) -> Result<bool, FilesError> {
    Ok(files.metadata(&dir.join(REPLACED).join(MARK))?.is_some())
}

/// Whether a folder has a run's manifest.
pub(crate) fn has_manifest(files: &dyn Files, dir: &Path) -> Result<bool, FilesError> {
    Ok(read_manifest(files, dir)?.is_some())
}

/// The paths that a manifest lists; none where there is no manifest of a run.
fn read_manifest(files: &dyn Files, dir: &Path) -> Result<Option<BTreeSet<PathBuf>>, FilesError> {
    let path = dir.join(MANIFEST);
    if files.metadata(&path)?.is_none_or(|found| found.is_dir) {
        return Ok(None);
    }
    let mut file = files.open(&path)?;
    if file.bytes() > BYTES_MAX {
        return Ok(None);
    }
    let mut bytes = vec![0; file.bytes() as usize];
    file.read_exact_at(0, &mut bytes)?;
    let text = String::from_utf8(bytes).ok();
    let listed = text.as_deref().and_then(|text| text.strip_prefix(HEADER));
    Ok(listed.map(|paths| paths.lines().map(PathBuf::from).collect()))
}

/// Adds paths, relative to the folder, to those that its manifest lists.
///
/// # Errors
/// [`FilesError`].
pub(super) fn list(
    files: &dyn Files,
    dir: &Path,
    paths: impl IntoIterator<Item = PathBuf>,
) -> Result<(), FilesError> {
    let mut listed = read_manifest(files, dir)?.unwrap_or_default();
    let before = listed.len();
    listed.extend(paths);
    if listed.len() == before {
        return Ok(());
    }
    let mut text = HEADER.to_owned();
    for path in &listed {
        text += &path.to_string_lossy();
        text.push('\n');
    }
    write_atomic(files, &dir.join(MANIFEST), text.as_bytes())
}
