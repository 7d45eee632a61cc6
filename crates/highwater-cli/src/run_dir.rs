//! The folder of a run.
//!
//! ```text
//! RUN/
//!   config.toml        the resolved settings
//!   model.json         the model's configuration
//!   plan.json          what the memory plan was
//!   metrics.jsonl      a line for each step
//!   tokens.bin         the data's tokens, where a tokenizer.json made them
//!   checkpoints/       saved states, the newest of which `resume` goes on from
//!   final/             the trained model, as Hugging Face keeps one
//!   lock               held by the process that trains
//! ```

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use highwater_memory::{Files, FilesError};

use crate::error::{Code, Failure};

const CONFIG: &str = "config.toml";
const MODEL: &str = "model.json";
const PLAN: &str = "plan.json";
const METRICS: &str = "metrics.jsonl";
const TOKENS: &str = "tokens.bin";
const CHECKPOINTS: &str = "checkpoints";
const FINAL: &str = "final";
const LOCK: &str = "lock";

/// The most runs of one name that are numbered.
const NUMBERED_MAX: u32 = 100_000;

/// What can be wrong with a run's folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirError {
    /// A file operation failed.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Another process trains there.
    #[error("{}: another process is training there", .0.display())]
    Locked(PathBuf),
    /// The lock cannot be taken.
    #[error("cannot lock {}: {source}", path.display())]
    Lock {
        /// The lock's file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// There is a run already.
    #[error("{}: there is a run already", .0.display())]
    InUse(PathBuf),
    /// There is no run.
    #[error("{}: there is no run", .0.display())]
    NoRun(PathBuf),
}

impl From<RunDirError> for Failure {
    fn from(error: RunDirError) -> Self {
        let hint = match &error {
            RunDirError::InUse(path) => {
                let path = path.display();
                format!("`highwater resume {path}` goes on with it; --force replaces it")
            }
            RunDirError::NoRun(_) => "a run's folder has a config.toml".to_owned(),
            RunDirError::Locked(_) => "wait for it, or give another folder with --out".to_owned(),
            _ => String::new(),
        };
        let failure = match error {
            RunDirError::Files(error) => error.into(),
            error @ (RunDirError::InUse(_) | RunDirError::NoRun(_)) => {
                Self::new(Code::Usage, error)
            }
            error => Self::new(Code::Files, error),
        };
        if hint.is_empty() {
            failure
        } else {
            failure.hint(hint)
        }
    }
}

/// The folder of a run, which this process alone writes to as long as it has this value.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    /// Unlocked by the system when it is closed, even by a kill.
    _lock: File,
}

impl RunDir {
    /// Makes a folder for a new run. With `force` a run that is there is removed first, unless a
    /// process is at it; files that are not a run's stay.
    ///
    /// # Errors
    /// [`RunDirError`].
    pub fn create(files: &dyn Files, path: &Path, force: bool) -> Result<Self, RunDirError> {
        files.create_dir_all(path)?;
        let lock = lock(path)?;
        for name in [CONFIG, MODEL, PLAN, METRICS, TOKENS, CHECKPOINTS, FINAL] {
            let inner = path.join(name);
            match files.metadata(&inner)? {
                None => {}
                Some(_) if !force => return Err(RunDirError::InUse(path.to_owned())),
                Some(found) if found.is_dir => files.remove_dir_all(&inner)?,
                Some(_) => files.remove_file(&inner)?,
            }
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Makes a folder for a new run that is called `path`, or with the first number from 2 on that is
    /// not in use.
    ///
    /// # Errors
    /// [`RunDirError`].
    pub fn create_numbered(files: &dyn Files, path: &Path) -> Result<Self, RunDirError> {
        let mut result = Self::create(files, path, false);
        for number in 2..NUMBERED_MAX {
            match result {
                Err(RunDirError::InUse(_) | RunDirError::Locked(_)) => {
                    let mut numbered = path.as_os_str().to_owned();
                    numbered.push(format!("-{number}"));
                    result = Self::create(files, Path::new(&numbered), false);
                }
                _ => break,
            }
        }
        result
    }

    /// Opens the folder of a run to go on with it.
    ///
    /// # Errors
    /// [`RunDirError`].
    pub fn open(files: &dyn Files, path: &Path) -> Result<Self, RunDirError> {
        if files.metadata(&path.join(CONFIG))?.is_none() {
            return Err(RunDirError::NoRun(path.to_owned()));
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock(path)?,
        })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The resolved settings.
    pub fn config(&self) -> PathBuf {
        self.path.join(CONFIG)
    }

    /// The model's configuration.
    pub fn model(&self) -> PathBuf {
        self.path.join(MODEL)
    }

    /// What the memory plan was.
    pub fn plan(&self) -> PathBuf {
        self.path.join(PLAN)
    }

    /// A line for each step.
    pub fn metrics(&self) -> PathBuf {
        self.path.join(METRICS)
    }

    /// The data's tokens, where a `tokenizer.json` made them.
    pub fn tokens(&self) -> PathBuf {
        self.path.join(TOKENS)
    }

    /// The saved states.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join(CHECKPOINTS)
    }

    /// The trained model.
    pub fn final_model(&self) -> PathBuf {
        self.path.join(FINAL)
    }
}

/// Takes the folder's lock, which no file system but the real one has.
fn lock(path: &Path) -> Result<File, RunDirError> {
    let path = path.join(LOCK);
    let failed = |source| RunDirError::Lock {
        path: path.clone(),
        source,
    };
    let open = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let file = open.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(RunDirError::Locked(
            path.parent().unwrap_or(&path).to_owned(),
        )),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_memory::DiskFiles;

    #[test]
    fn a_folder_has_one_run_and_one_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/run");
        assert!(matches!(
            RunDir::open(&DiskFiles, &path),
            Err(RunDirError::NoRun(_))
        ));
        let run = RunDir::create(&DiskFiles, &path, false).unwrap();
        for force in [false, true] {
            let second = RunDir::create(&DiskFiles, &path, force);
            assert!(matches!(second, Err(RunDirError::Locked(_))));
        }
        std::fs::write(run.config(), "").unwrap();
        std::fs::create_dir_all(run.checkpoints().join("step-000001")).unwrap();
        std::fs::write(path.join("notes.txt"), "mine").unwrap();
        drop(run);
        assert!(matches!(
            RunDir::create(&DiskFiles, &path, false),
            Err(RunDirError::InUse(_))
        ));
        drop(RunDir::open(&DiskFiles, &path).unwrap());
        let run = RunDir::create(&DiskFiles, &path, true).unwrap();
        assert!(!run.config().exists() && !run.checkpoints().exists());
        assert!(path.join("notes.txt").exists());
    }

    #[test]
    fn the_default_folder_always_works() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gpt2-nano");
        let create = || RunDir::create_numbered(&DiskFiles, &path).unwrap();
        let (first, second) = (create(), create());
        assert_eq!(first.path(), path);
        assert!(second.path().ends_with("gpt2-nano-2"));
        std::fs::write(first.config(), "").unwrap();
        drop((first, second));
        assert!(create().path().ends_with("gpt2-nano-2"));
    }
}
