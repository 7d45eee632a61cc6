//! Drafts: what is written under a name of its own and gets its real name when it is whole.
//!
//! A draft's name is unique and created exclusively, so that a draft never overwrites or removes a file of somebody
//! else's. A process that is killed leaves its draft behind, a hidden file or folder called
//! `.highwater-PROCESS-NUMBER.tmp`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{FileWrite, Files, FilesError};

const BEGIN: &str = ".highwater-";
const END: &str = ".tmp";

/// The drafts of this process, which a signal may end.
static UNDER_WAY: Mutex<Vec<UnderWay>> = Mutex::new(Vec::new());

struct UnderWay {
    path: PathBuf,
    is_dir: bool,
    /// What the caller named.
    given: PathBuf,
}

/// What the caller named, for a path in a draft: nobody knows the draft's own name.
pub(super) fn given(path: &Path) -> PathBuf {
    // Whoever holds the lock may be removing drafts, and fail at that.
    let under_way = UNDER_WAY.try_lock();
    let given = under_way
        .iter()
        .flat_map(|all| all.iter())
        .find_map(|draft| {
            let within = path.strip_prefix(&draft.path).ok()?;
            Some(draft.given.iter().chain(within).collect())
        });
    given.unwrap_or_else(|| path.to_owned())
}

/// Removes the drafts of this process, which is about to end. Other threads may still write to them: who finds his
/// draft gone has to wait for the end.
///
/// # Errors
/// As the system says of one that is still there after some tries; the others are removed all the same.
pub fn remove_drafts(files: &dyn Files) -> Result<(), FilesError> {
    let under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
    let remove = |UnderWay { path, is_dir, .. }: &UnderWay| {
        let mut tries = 0;
        loop {
            match discard(files, path, *is_dir) {
                Err(error) if error.is_not_found() && !is_there(files, path) => return Ok(()),
                Err(_) if tries < TRIES => std::thread::sleep(PAUSE),
                done => return done,
            }
            tries += 1;
        }
    };
    under_way.iter().map(remove).fold(Ok(()), Result::and)
}

const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_millis(10);

fn is_there(files: &dyn Files, path: &Path) -> bool {
    !matches!(files.metadata(path), Ok(None))
}

fn discard(files: &dyn Files, path: &Path, is_dir: bool) -> Result<(), FilesError> {
    if is_dir {
        files.remove_dir_all(path)
    } else {
        files.remove_file(path)
    }
}

/// A file or folder that lies beside its target until [`Draft::persist`]. Dropped before, it is removed.
#[derive(Debug)]
pub struct Draft<'a> {
    files: &'a dyn Files,
    path: PathBuf,
    target: PathBuf,
    is_dir: bool,
    is_done: bool,
}

impl<'a> Draft<'a> {
    /// Creates an empty file next to `target`, or next to the file that links there lead to.
    ///
    /// # Errors
    /// As the system says, with `target` for the draft's name: those of writing it too.
    pub fn file(
        files: &'a dyn Files,
        target: &Path,
    ) -> Result<(Self, Box<dyn FileWrite>), FilesError> {
        let behind = files.behind_links(target);
        let (path, file) = unused((&behind, target), |path| files.create_new(path))?;
        let draft = Self::at(files, path, (behind, target), false);
        Ok((draft, file))
    }

    /// Creates an empty folder beside `target`.
    ///
    /// # Errors
    /// As the system says.
    pub fn folder(files: &'a dyn Files, target: &Path) -> Result<Self, FilesError> {
        let (path, ()) = unused((target, target), |path| files.create_dir(path))?;
        Ok(Self::at(files, path, (target.to_owned(), target), true))
    }

    /// Takes the name from a folder, durably: what is half removed is not mistaken for a whole one. Dropping the
    /// draft removes it.
    ///
    /// # Errors
    /// As the system says.
    pub fn of_folder(files: &'a dyn Files, folder: &Path) -> Result<Self, FilesError> {
        let draft = Self::folder(files, folder)?;
        files.rename(folder, &draft.path)?;
        files.sync_dir(parent(folder))?;
        Ok(draft)
    }

    fn at(
        files: &'a dyn Files,
        path: PathBuf,
        (target, given): (PathBuf, &Path),
        is_dir: bool,
    ) -> Self {
        let mut under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.push(UnderWay {
            path: path.clone(),
            is_dir,
            given: given.to_owned(),
        });
        Self {
            files,
            path,
            target,
            is_dir,
            is_done: false,
        }
    }

    /// Where the draft is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives a draft whose contents are durable its real name, durably. A file of that name is replaced.
    ///
    /// # Errors
    /// As the system says; the draft is removed if it did not get the name.
    pub fn persist(mut self) -> Result<(), FilesError> {
        self.files.rename(&self.path, &self.target)?;
        self.end();
        self.files.sync_dir(parent(&self.target))
    }

    /// Leaves the draft where it is, for the caller to remove.
    pub fn keep(mut self) -> PathBuf {
        self.end();
        std::mem::take(&mut self.path)
    }

    /// Removes the draft.
    ///
    /// # Errors
    /// As the system says.
    pub fn remove(mut self) -> Result<(), FilesError> {
        self.end();
        discard(self.files, &self.path, self.is_dir)
    }

    /// It is no draft any more.
    fn end(&mut self) {
        self.is_done = true;
        let mut under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.retain(|draft| draft.path != self.path);
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            // Something failed before, which is reported; a draft that stays behind hides nothing.
            let _ = discard(self.files, &self.path, self.is_dir);
            self.end();
        }
    }
}

/// Whether a file or folder of this name is a draft.
pub fn is_draft(name: &str) -> bool {
    let numbers = name
        .strip_prefix(BEGIN)
        .and_then(|rest| rest.strip_suffix(END));
    numbers
        .and_then(|numbers| numbers.split_once('-'))
        .is_some_and(|(process, number)| {
            [process, number]
                .iter()
                .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
        })
}

/// Creates something beside `target` under a name that nothing has. An error names what was `given`.
fn unused<T>(
    (target, given): (&Path, &Path),
    create: impl Fn(&Path) -> Result<T, FilesError>,
) -> Result<(PathBuf, T), FilesError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{BEGIN}{}-{number}{END}", std::process::id());
        let path = parent(target).join(name);
        match create(&path) {
            // Of a process of that number that was killed.
            Err(error) if error.is_already_there() => {}
            Err(error) => {
                let path = given.to_owned();
                return Err(FilesError { path, ..error });
            }
            Ok(made) => return Ok((path, made)),
        }
    }
}

/// The folder that a path is in.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{DiskFiles, MemoryFiles};
    use crate::saved::write_atomic;

    fn names(files: &dyn Files, dir: &Path) -> Vec<String> {
        let entries = files.list_dir(dir).unwrap().into_iter();
        entries.map(|entry| entry.name).collect()
    }

    #[test]
    fn a_process_that_ends_removes_its_drafts() {
        let files = MemoryFiles::new();
        files.create_dir_all(Path::new("/ending")).unwrap();
        let folder = Draft::folder(&files, Path::new("/ending/model")).unwrap();
        files.create(&folder.path().join("weights")).unwrap();
        let (file, _) = Draft::file(&files, Path::new("/ending/table")).unwrap();
        let done = Draft::folder(&files, Path::new("/ending/done")).unwrap();
        done.persist().unwrap();
        // Those of tests at the same time lie elsewhere.
        let _ = remove_drafts(&files);
        assert_eq!(names(&files, Path::new("/ending")), ["done"]);
        drop((folder, file));
    }

    #[test]
    fn a_draft_is_nobodys_file_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let memory = MemoryFiles::new();
        memory.create_dir_all(Path::new("/d")).unwrap();
        let places: [(&dyn Files, &Path); 2] =
            [(&DiskFiles, folder.path()), (&memory, Path::new("/d"))];
        for (files, dir) in places {
            let target = dir.join("model.v1");
            // A number that was taken, by a process that was killed, say, is passed over.
            let (first, _) = Draft::file(files, &target).unwrap();
            let name = first.path().file_name().unwrap().to_str().unwrap();
            assert!(is_draft(name), "{name}");
            let number: u64 = name.rsplit(['-', '.']).nth(1).unwrap().parse().unwrap();
            let taken: Vec<_> = (number + 1..number + 40)
                .map(|number| format!("{BEGIN}{}-{number}{END}", std::process::id()))
                .collect();
            for name in &taken {
                files.create_dir(&dir.join(name)).unwrap();
            }
            let (mut second, mut file) = Draft::file(files, &target).unwrap();
            assert!(second.path() != first.path());
            file.write_all(b"whole").unwrap();
            file.sync_all().unwrap();
            drop(first);
            second.target = dir.join("model");
            second.persist().unwrap();
            let draft = Draft::folder(files, &target).unwrap();
            files.create(&draft.path().join("weights")).unwrap();
            drop(draft);
            let mut left = names(files, dir);
            left.retain(|name| !taken.contains(name));
            assert_eq!(left, ["model"]);
            let draft = Draft::folder(files, &target).unwrap();
            files.create(&draft.path().join("weights")).unwrap();
            draft.persist().unwrap();
            assert_eq!(names(files, &target), ["weights"]);
            Draft::of_folder(files, &target).unwrap().remove().unwrap();
            assert!(files.metadata(&target).unwrap().is_none());
        }
    }

    #[test]
    fn a_link_stays_and_what_it_leads_to_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("real")).unwrap();
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, at(name)).unwrap();
        link("real/file", "inner");
        link("inner", "link");
        // The first time it leads nowhere yet.
        for text in [b"one", b"two"] {
            write_atomic(&DiskFiles, &at("link"), text).unwrap();
            assert!(at("link").is_symlink() && at("inner").is_symlink());
            assert_eq!(std::fs::read(at("real/file")).unwrap(), text);
            assert_eq!(names(&DiskFiles, &at("real")), ["file"]);
        }
    }

    #[test]
    fn errors_name_what_the_caller_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let named = |error: FilesError| error.path;
        let missing = at("missing/file");
        let error = write_atomic(&DiskFiles, &missing, b"").unwrap_err();
        assert_eq!(named(error), missing);
        let error = Draft::folder(&DiskFiles, &missing).unwrap_err();
        assert_eq!(named(error), missing);
        let target = at("folder");
        let draft = Draft::folder(&DiskFiles, &target).unwrap();
        let error = DiskFiles.open(&draft.path().join("a/b")).unwrap_err();
        assert_eq!(named(error), target.join("a/b"));
        // A folder is in the way.
        std::fs::create_dir(&target).unwrap();
        let error = write_atomic(&DiskFiles, &target, b"").unwrap_err();
        assert_eq!(named(error), target);
    }

    #[test]
    fn only_drafts_are_taken_for_some() {
        for name in [".highwater-12-0.tmp", ".highwater-1-123.tmp"] {
            assert!(is_draft(name));
        }
        for name in [
            "step-3.tmp",
            ".highwater-12.tmp",
            ".highwater--1.tmp",
            ".highwater-1-.tmp",
            ".highwater-a-1.tmp",
            ".highwater-1-1",
        ] {
            assert!(!is_draft(name), "{name}");
        }
    }
}
