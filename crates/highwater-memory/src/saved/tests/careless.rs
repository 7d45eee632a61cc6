//! A file system that forgets to sync, to prove that the crash tests would notice.

use super::*;
use crate::files::{Entry, FileRead, FileWrite, FilesError, Metadata, is_draft};

/// What drafts are called to `forgets`, whose own names tell nothing.
pub(super) const DRAFTED_FILE: &str = "a drafted file";
pub(super) const DRAFTED_FOLDER: &str = "a drafted folder";

/// Passes all calls on but those syncs that `forgets` picks by the name of the file or folder.
#[derive(Clone, Debug)]
pub(super) struct Careless {
    pub(super) inner: MemoryFiles,
    pub(super) forgets: fn(&str) -> bool,
}

impl Careless {
    fn forgets(&self, path: &Path) -> bool {
        let name = name_of(path);
        (self.forgets)(if is_draft(name) { DRAFTED_FOLDER } else { name })
    }
}

fn name_of(path: &Path) -> &str {
    path.file_name().unwrap_or_default().to_str().unwrap()
}

impl Files for Careless {
    fn create(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError> {
        let inner = self.inner.create(path)?;
        Ok(Box::new(CarelessFile {
            inner,
            forgets: self.forgets(path),
        }))
    }
    fn create_new(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError> {
        let inner = self.inner.create_new(path)?;
        Ok(Box::new(CarelessFile {
            inner,
            forgets: if is_draft(name_of(path)) {
                (self.forgets)(DRAFTED_FILE)
            } else {
                self.forgets(path)
            },
        }))
    }
    fn create_dir(&self, path: &Path) -> Result<(), FilesError> {
        self.inner.create_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<(), FilesError> {
        if self.forgets(path) {
            Ok(())
        } else {
            self.inner.sync_dir(path)
        }
    }
    fn create_dir_all(&self, path: &Path) -> Result<(), FilesError> {
        self.inner.create_dir_all(path)
    }
    fn append(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError> {
        self.inner.append(path)
    }
    fn open(&self, path: &Path) -> Result<Box<dyn FileRead>, FilesError> {
        self.inner.open(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<(), FilesError> {
        self.inner.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> Result<(), FilesError> {
        self.inner.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<(), FilesError> {
        self.inner.remove_dir(path)
    }
    fn remove_dir_all(&self, path: &Path) -> Result<(), FilesError> {
        self.inner.remove_dir_all(path)
    }
    fn list_dir(&self, path: &Path) -> Result<Vec<Entry>, FilesError> {
        self.inner.list_dir(path)
    }
    fn metadata(&self, path: &Path) -> Result<Option<Metadata>, FilesError> {
        self.inner.metadata(path)
    }
}

#[derive(Debug)]
struct CarelessFile {
    inner: Box<dyn FileWrite>,
    forgets: bool,
}

impl FileWrite for CarelessFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn write(&mut self, bytes: &[u8]) -> Result<usize, FilesError> {
        self.inner.write(bytes)
    }
    fn sync_all(&mut self) -> Result<(), FilesError> {
        if self.forgets {
            Ok(())
        } else {
            self.inner.sync_all()
        }
    }
}
