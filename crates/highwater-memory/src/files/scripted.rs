//! For tests: makes a chosen call fail.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use super::{Entry, FileRead, FileWrite, Files, FilesError, Metadata, Operation};

/// What goes wrong, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The number of the call at which it goes wrong; the first is 0.
    pub at: u64,
    /// Whether it goes wrong from then on, not only once. A crash always does.
    pub persistent: bool,
    /// What goes wrong.
    pub kind: FaultKind,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The call does nothing but fail with an input/output error.
    InputOutput,
    /// If the call needs space it does nothing but fail: there is none left.
    DiskFull,
    /// If the call reads or writes a file it does nothing but fail: a signal came in between.
    Interruption,
    /// If the call reads or writes a file it does nothing but fail: not now (`EAGAIN`).
    NotNow,
    /// If the call reads or writes a file it does half of what was asked.
    Short,
    /// The process dies before the call.
    CrashBefore,
    /// The process dies within the call: half of a write is done, of other calls nothing.
    CrashWithin,
    /// The process dies after the call.
    CrashAfter,
}

/// Another file system of which calls are counted, and one can go wrong. Opening a file is a call,
/// and so is each reading, writing and syncing of it. After a crash every call fails.
#[derive(Clone, Debug)]
pub struct ScriptedFiles {
    inner: Arc<dyn Files>,
    script: Arc<Mutex<Script>>,
}

#[derive(Debug)]
struct Script {
    fault: Option<Fault>,
    calls: Vec<Operation>,
    crashed: bool,
}

/// What to do with a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Go,
    Half,
    /// Do it, then answer with an error.
    GoThenFail,
    HalfThenFail,
}

impl ScriptedFiles {
    /// Passes all calls on to `inner`, but for the fault.
    pub fn new(inner: Arc<dyn Files>, fault: Option<Fault>) -> Self {
        let script = Script {
            fault,
            calls: Vec::new(),
            crashed: false,
        };
        Self {
            inner,
            script: Arc::new(Mutex::new(script)),
        }
    }

    /// All calls up to now, in order.
    pub fn calls(&self) -> Vec<Operation> {
        self.script
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .calls
            .clone()
    }

    /// Whether the process has died.
    pub fn crashed(&self) -> bool {
        self.script
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .crashed
    }

    /// Counts a call and says what to do with it.
    fn judge(&self, operation: Operation, path: &Path) -> Result<Verdict, FilesError> {
        let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        let number = script.calls.len() as u64;
        script.calls.push(operation);
        let fail = |errno: Errno| Err(FilesError::new(operation, path, errno));
        if script.crashed {
            return fail(Errno::IO);
        }
        let Some(fault) = script.fault else {
            return Ok(Verdict::Go);
        };
        if number < fault.at || (number > fault.at && !fault.persistent) {
            return Ok(Verdict::Go);
        }
        let transfer = matches!(operation, Operation::Read | Operation::Write);
        script.crashed = matches!(
            fault.kind,
            FaultKind::CrashBefore | FaultKind::CrashWithin | FaultKind::CrashAfter
        );
        match fault.kind {
            FaultKind::DiskFull if needs_space(operation) => fail(Errno::NOSPC),
            FaultKind::Interruption if transfer => fail(Errno::INTR),
            FaultKind::NotNow if transfer => fail(Errno::AGAIN),
            FaultKind::Short if transfer => Ok(Verdict::Half),
            FaultKind::CrashWithin if operation == Operation::Write => Ok(Verdict::HalfThenFail),
            FaultKind::InputOutput | FaultKind::CrashBefore | FaultKind::CrashWithin => {
                fail(Errno::IO)
            }
            FaultKind::CrashAfter => Ok(Verdict::GoThenFail),
            FaultKind::DiskFull
            | FaultKind::Interruption
            | FaultKind::NotNow
            | FaultKind::Short => Ok(Verdict::Go),
        }
    }

    /// Passes on a call that does all or nothing.
    fn call<T>(
        &self,
        operation: Operation,
        path: &Path,
        call: impl FnOnce() -> Result<T, FilesError>,
    ) -> Result<T, FilesError> {
        let verdict = self.judge(operation, path)?;
        answer(verdict, operation, path, call())
    }

    fn handle<T: ?Sized>(&self, inner: Box<T>, path: &Path) -> Handle<T> {
        Handle {
            inner,
            files: self.clone(),
            path: path.into(),
        }
    }
}

/// Whether a call can fail for want of space.
fn needs_space(operation: Operation) -> bool {
    use Operation::{Append, Create, CreateDir, Rename, Sync, SyncDir, Write};
    matches!(
        operation,
        Append | Create | CreateDir | Rename | Sync | SyncDir | Write
    )
}

/// What the caller hears of a call that was made.
fn answer<T>(
    verdict: Verdict,
    operation: Operation,
    path: &Path,
    result: Result<T, FilesError>,
) -> Result<T, FilesError> {
    match verdict {
        Verdict::Go | Verdict::Half => result,
        Verdict::GoThenFail | Verdict::HalfThenFail => {
            Err(FilesError::new(operation, path, Errno::IO))
        }
    }
}

impl Files for ScriptedFiles {
    fn create_dir_all(&self, path: &Path) -> Result<(), FilesError> {
        self.call(Operation::CreateDir, path, || {
            self.inner.create_dir_all(path)
        })
    }

    fn create_dir(&self, path: &Path) -> Result<(), FilesError> {
        self.call(Operation::CreateDir, path, || self.inner.create_dir(path))
    }

    fn create_new(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError> {
        let file = self.call(Operation::Create, path, || self.inner.create_new(path))?;
        Ok(Box::new(self.handle(file, path)))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError> {
        let file = self.call(Operation::Create, path, || self.inner.create(path))?;
        Ok(Box::new(self.handle(file, path)))
    }

    fn append(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError> {
        let file = self.call(Operation::Append, path, || self.inner.append(path))?;
        Ok(Box::new(self.handle(file, path)))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn FileRead>, FilesError> {
        let file = self.call(Operation::Open, path, || self.inner.open(path))?;
        Ok(Box::new(self.handle(file, path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FilesError> {
        self.call(Operation::Rename, from, || self.inner.rename(from, to))
    }

    fn sync_dir(&self, path: &Path) -> Result<(), FilesError> {
        self.call(Operation::SyncDir, path, || self.inner.sync_dir(path))
    }

    fn remove_file(&self, path: &Path) -> Result<(), FilesError> {
        self.call(Operation::Remove, path, || self.inner.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> Result<(), FilesError> {
        self.call(Operation::Remove, path, || self.inner.remove_dir(path))
    }

    fn remove_dir_all(&self, path: &Path) -> Result<(), FilesError> {
        self.call(Operation::Remove, path, || self.inner.remove_dir_all(path))
    }

    fn list_dir(&self, path: &Path) -> Result<Vec<Entry>, FilesError> {
        self.call(Operation::List, path, || self.inner.list_dir(path))
    }

    fn entries(&self, path: &Path) -> Result<Vec<(OsString, bool)>, FilesError> {
        self.call(Operation::List, path, || self.inner.entries(path))
    }

    fn metadata(&self, path: &Path) -> Result<Option<Metadata>, FilesError> {
        self.call(Operation::Inspect, path, || self.inner.metadata(path))
    }

    fn behind_links(&self, path: &Path) -> PathBuf {
        self.inner.behind_links(path)
    }
}

#[derive(Debug)]
struct Handle<T: ?Sized> {
    inner: Box<T>,
    files: ScriptedFiles,
    path: PathBuf,
}

impl<T: ?Sized> Handle<T> {
    /// How many of `asked` bytes to transfer.
    fn judge(&self, operation: Operation, asked: usize) -> Result<(Verdict, usize), FilesError> {
        let verdict = self.files.judge(operation, &self.path)?;
        let half = matches!(verdict, Verdict::Half | Verdict::HalfThenFail);
        Ok((verdict, if half { asked.div_ceil(2) } else { asked }))
    }
}

impl FileWrite for Handle<dyn FileWrite> {
    fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, FilesError> {
        let (verdict, len) = self.judge(Operation::Write, bytes.len())?;
        let result = self.inner.write(&bytes[..len]);
        answer(verdict, Operation::Write, &self.path, result)
    }

    fn sync_all(&mut self) -> Result<(), FilesError> {
        let verdict = self.files.judge(Operation::Sync, &self.path)?;
        answer(verdict, Operation::Sync, &self.path, self.inner.sync_all())
    }
}

impl FileRead for Handle<dyn FileRead> {
    fn path(&self) -> &Path {
        &self.path
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FilesError> {
        let (verdict, len) = self.judge(Operation::Read, buffer.len())?;
        let result = self.inner.read_at(offset, &mut buffer[..len]);
        answer(verdict, Operation::Read, &self.path, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::MemoryFiles;

    const PATH: &str = "/file";

    /// Creates a file, writes eight bytes, syncs, and reads them back.
    fn story(files: &dyn Files) -> Result<Vec<u8>, FilesError> {
        let path = Path::new(PATH);
        let mut file = files.create(path)?;
        file.write_all(b"12345678")?;
        file.sync_all()?;
        let mut bytes = vec![0; 8];
        files.open(path)?.read_exact_at(0, &mut bytes)?;
        Ok(bytes)
    }

    fn scripted(at: u64, kind: FaultKind, persistent: bool) -> (MemoryFiles, ScriptedFiles) {
        let memory = MemoryFiles::new();
        let fault = Fault {
            at,
            persistent,
            kind,
        };
        (
            memory.clone(),
            ScriptedFiles::new(Arc::new(memory), Some(fault)),
        )
    }

    #[test]
    fn calls_are_counted() {
        let files = ScriptedFiles::new(Arc::new(MemoryFiles::new()), None);
        assert_eq!(story(&files).unwrap(), b"12345678");
        let expected = [
            Operation::Create,
            Operation::Write,
            Operation::Sync,
            Operation::Open,
            Operation::Read,
        ];
        assert_eq!(files.calls(), expected);
    }

    #[test]
    fn each_call_can_fail() {
        for at in 0..5 {
            let (_, files) = scripted(at, FaultKind::InputOutput, false);
            let error = story(&files).unwrap_err();
            assert_eq!(error.operation, files.calls()[at as usize]);
            assert!(story(&files).is_ok());
            let (_, files) = scripted(at, FaultKind::InputOutput, true);
            assert!(story(&files).is_err() && story(&files).is_err());
            let (_, files) = scripted(at, FaultKind::DiskFull, false);
            assert_eq!(
                story(&files).is_err_and(|error| error.is_disk_full()),
                at < 3
            );
        }
    }

    #[test]
    fn short_and_interrupted_transfers_are_made_good() {
        for at in 0..5 {
            for (kind, persistent) in [
                (FaultKind::Short, false),
                (FaultKind::Short, true),
                (FaultKind::Interruption, false),
            ] {
                let (_, files) = scripted(at, kind, persistent);
                assert_eq!(story(&files).unwrap(), b"12345678", "{kind:?} at {at}");
            }
        }
        let (_, files) = scripted(0, FaultKind::Interruption, true);
        assert!(story(&files).is_err_and(|error| error.is_interruption()));
        let (_, files) = scripted(0, FaultKind::Short, true);
        story(&files).unwrap();
        assert_eq!(files.calls().len(), 5 + 3 + 3);
    }

    #[test]
    fn nothing_works_after_a_crash() {
        for (kind, left) in [
            (FaultKind::CrashBefore, ""),
            (FaultKind::CrashWithin, "1234"),
            (FaultKind::CrashAfter, "12345678"),
        ] {
            let (memory, files) = scripted(1, kind, false);
            assert!(story(&files).is_err() && story(&files).is_err() && files.crashed());
            assert!(files.metadata(Path::new(PATH)).is_err());
            let found = memory.metadata(Path::new(PATH)).unwrap().unwrap();
            assert_eq!(found.bytes, left.len() as u64, "{kind:?}");
        }
    }
}
