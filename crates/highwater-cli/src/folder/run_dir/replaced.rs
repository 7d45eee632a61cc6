//! The run that `--force` replaces: it waits in the folder `replaced` until the new one has saved something.
//!
//! A mark is the first file there and the last, so that nobody else's folder of that name is taken for it. The run's
//! manifest is the last to go there and the last to come back. So whatever is interrupted, a folder's state tells what
//! to do:
//!
//! | in `replaced/` | in the run's folder | means |
//! |---|---|---|
//! | no manifest | a manifest | the old run was being put aside, and goes back |
//! | a manifest | none | the old run is aside, and goes back |
//! | a manifest | a manifest, no settings | the new run did not begin: it goes, the old one goes back |
//! | a manifest | a manifest and settings | the new run has begun, and has perhaps saved nothing yet |

use std::collections::BTreeSet;
use std::path::Path;

use highwater_memory::{Files, FilesError};

use super::error::RunDirError;
use super::names::{CHECKPOINTS, CONFIG, FINAL_STEP, MANIFEST, REPLACED};
use super::owned::{Contents, MARK, has_manifest, is_aside};
use crate::folder::state;

/// Puts aside the run in a folder. Where that has not saved anything itself, the one that it replaced stays aside and
/// this one goes.
///
/// # Errors
/// [`RunDirError`].
pub(super) fn put_aside(
    files: &dyn Files,
    dir: &Path,
    contents: Contents,
) -> Result<(), RunDirError> {
    let aside = dir.join(REPLACED);
    if is_aside(files, dir)? {
        if !has_saved(files, dir)? {
            return Ok(contents.delete(files, dir)?);
        }
        forget(files, dir)?;
    }
    files.create_dir(&aside)?;
    files.create_new(&aside.join(MARK))?.sync_all()?;
    files.sync_dir(&aside)?;
    let names: BTreeSet<&Path> = contents
        .own
        .iter()
        .filter_map(|path| path.iter().next())
        .map(Path::new)
        .collect();
    move_all(files, (dir, &aside), names.into_iter())?;
    Ok(files.sync_dir(dir)?)
}

/// Puts back a run that was put aside, in place of the one that is there.
///
/// # Errors
/// [`RunDirError`].
pub(super) fn put_back(files: &dyn Files, dir: &Path) -> Result<bool, RunDirError> {
    if !(is_aside(files, dir)? && has_manifest(files, &dir.join(REPLACED))?) {
        return Ok(false);
    }
    if has_manifest(files, dir)? {
        Contents::read(files, dir)?.delete(files, dir)?;
    }
    come_back(files, dir)?;
    Ok(true)
}

/// Deletes a run that was put aside.
///
/// # Errors
/// [`FilesError`].
pub(super) fn forget(files: &dyn Files, dir: &Path) -> Result<(), FilesError> {
    let aside = dir.join(REPLACED);
    if !is_aside(files, dir)? {
        return Ok(());
    }
    Contents::read(files, &aside)?.delete(files, &aside)?;
    unmark(files, &aside)
}

/// Removes the mark, and the folder unless something else is in it.
fn unmark(files: &dyn Files, aside: &Path) -> Result<(), FilesError> {
    files.remove_file(&aside.join(MARK))?;
    if files.list_dir(aside)?.is_empty() {
        files.remove_dir(aside)?;
    }
    Ok(())
}

/// Ends what an earlier process was killed at.
///
/// # Errors
/// [`RunDirError`].
pub(super) fn recover(files: &dyn Files, dir: &Path) -> Result<(), RunDirError> {
    let aside = dir.join(REPLACED);
    if !is_aside(files, dir)? {
        // A kill came between the folder and its mark.
        let is_empty = files.metadata(&aside)?.is_some_and(|found| found.is_dir)
            && files.list_dir(&aside)?.is_empty();
        return if is_empty {
            Ok(files.remove_dir(&aside)?)
        } else {
            Ok(())
        };
    }
    let (old, new) = (has_manifest(files, &aside)?, has_manifest(files, dir)?);
    match (old, new) {
        (true, true) if files.metadata(&dir.join(CONFIG))?.is_some() => Ok(()),
        (true, _) => put_back(files, dir).map(|_| ()),
        (false, true) => come_back(files, dir),
        // The run that was replaced was being forgotten.
        (false, false) => Ok(unmark(files, &aside)?),
    }
}

/// Whether the run in a folder has saved anything.
fn has_saved(files: &dyn Files, dir: &Path) -> Result<bool, FilesError> {
    let newest = state::newest_step(files, &dir.join(CHECKPOINTS))?;
    Ok(newest.is_some() || files.metadata(&dir.join(FINAL_STEP))?.is_some())
}

fn come_back(files: &dyn Files, dir: &Path) -> Result<(), RunDirError> {
    let aside = dir.join(REPLACED);
    let names = files.list_dir(&aside)?;
    let names = names.iter().map(|entry| Path::new(&entry.name));
    let all_but_mark = names.filter(|name| *name != Path::new(MARK));
    move_all(files, (&aside, dir), all_but_mark)?;
    unmark(files, &aside)?;
    Ok(files.sync_dir(dir)?)
}

/// Moves files and folders, the manifest last.
fn move_all<'a>(
    files: &dyn Files,
    (from, to): (&Path, &Path),
    names: impl Iterator<Item = &'a Path>,
) -> Result<(), RunDirError> {
    let mut names: Vec<&Path> = names.collect();
    names.sort_by_key(|name| *name == Path::new(MANIFEST));
    for name in names {
        let target = to.join(name);
        if files.metadata(&target)?.is_some() {
            return Err(RunDirError::Foreign(target));
        }
        files.rename(&from.join(name), &target)?;
    }
    Ok(())
}
