//! The folder of a run.
//!
//! ```text
//! RUN/
//!   config.toml        the resolved settings
//!   model.json         the model's configuration
//!   chat_template.jinja the template that was named, if one was
//!   plan.json          what the memory plan was
//!   metrics.jsonl      a line for each step
//!   tensorboard/       the same for TensorBoard, with `--tensorboard`
//!   run.log            what was said meanwhile, a line each, with the step
//!   tokens.bin         the tokens of text, where a tokenizer.json made them, or of records, in rows
//!   checkpoints/       saved states, the newest of which `resume` goes on from
//!   final/             the trained model, as Hugging Face keeps one
//!   save.now           asks for a saved state, and goes when there is one
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
const TENSORBOARD: &str = "tensorboard";
const LOG: &str = "run.log";
const TOKENS: &str = "tokens.bin";
const TOKENS_DRAFT: &str = "tokens.bin.tmp";
const CHECKPOINTS: &str = "checkpoints";
const FINAL: &str = "final";
const TEMPLATE: &str = "chat_template.jinja";
const SAVE_NOW: &str = "save.now";
const LOCK: &str = "lock";

/// What a run's folder has in it.
const PARTS: [&str; 10] = [
    CONFIG,
    TEMPLATE,
    MODEL,
    PLAN,
    METRICS,
    TENSORBOARD,
    LOG,
    TOKENS,
    CHECKPOINTS,
    FINAL,
];

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
    /// The folders that were made for it, innermost first.
    made: Vec<PathBuf>,
    /// Unlocked by the system when it is closed, even by a kill.
    _lock: File,
}

impl RunDir {
    /// Makes a folder for a new run, which [`RunDir::begin`] begins. A run that is there is in the
    /// way unless `force` is given, and a process that is at it always.
    ///
    /// # Errors
    /// [`RunDirError`].
    pub fn create(files: &dyn Files, path: &Path, force: bool) -> Result<Self, RunDirError> {
        let mut made = Vec::new();
        for folder in path.ancestors().filter(|path| !path.as_os_str().is_empty()) {
            if files.metadata(folder)?.is_some() {
                break;
            }
            made.push(folder.to_owned());
        }
        files.create_dir_all(path)?;
        // A start that was cut off leaves these and the lock, but no settings.
        let cut_off = files.metadata(&path.join(LOCK))?.is_some()
            && files.metadata(&path.join(CONFIG))?.is_none();
        let dir = Self {
            path: path.to_owned(),
            made,
            _lock: lock(path)?,
        };
        for name in PARTS {
            let left = cut_off && [MODEL, TOKENS].contains(&name);
            if !force && !left && files.metadata(&path.join(name))?.is_some() {
                return Err(RunDirError::InUse(path.to_owned()));
            }
        }
        remove(files, &dir.tokens_draft())?;
        Ok(dir)
    }

    /// Begins the new run, now that it is known to be possible: an old one goes, files that are not
    /// a run's stay.
    ///
    /// # Errors
    /// [`RunDirError`].
    pub fn begin(&self, files: &dyn Files) -> Result<(), RunDirError> {
        for name in PARTS {
            remove(files, &self.path.join(name))?;
        }
        if files.metadata(&self.tokens_draft())?.is_some() {
            files.rename(&self.tokens_draft(), &self.tokens())?;
        }
        Ok(())
    }

    /// Takes back what [`RunDir::create`] made, as far as that is possible.
    pub fn abandon(self, files: &dyn Files) {
        let _ = remove(files, &self.tokens_draft());
        if !self.made.is_empty() {
            for name in PARTS.into_iter().chain([LOCK]) {
                let _ = remove(files, &self.path.join(name));
            }
        }
        for folder in &self.made {
            // One that somebody else uses by now is not empty, and stays.
            let _ = std::fs::remove_dir(folder);
        }
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
            made: Vec::new(),
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

    /// What the memory plan of the run in a folder was.
    pub fn plan_of(path: &Path) -> PathBuf {
        path.join(PLAN)
    }

    /// A line for each step.
    pub fn metrics(&self) -> PathBuf {
        self.path.join(METRICS)
    }

    /// What steps came to, for TensorBoard.
    pub fn tensorboard(&self) -> PathBuf {
        self.path.join(TENSORBOARD)
    }

    /// The chat template that the run was told to take.
    pub fn template(&self) -> PathBuf {
        self.path.join(TEMPLATE)
    }

    /// The same of the run in a folder.
    pub fn template_of(path: &Path) -> PathBuf {
        path.join(TEMPLATE)
    }

    /// A file that asks for a saved state, and goes when there is one.
    pub fn save_now(&self) -> PathBuf {
        self.path.join(SAVE_NOW)
    }

    /// What was said meanwhile.
    pub fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// The data's tokens until the run begins.
    pub fn tokens_draft(&self) -> PathBuf {
        self.path.join(TOKENS_DRAFT)
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

/// Removes what is there, if anything is.
fn remove(files: &dyn Files, path: &Path) -> Result<(), FilesError> {
    match files.metadata(path)? {
        None => Ok(()),
        Some(found) if found.is_dir => files.remove_dir_all(path),
        Some(_) => files.remove_file(path),
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
        assert!(run.config().exists());
        // As when a kill comes before the settings are written.
        std::fs::rename(run.config(), run.model()).unwrap();
        std::fs::rename(run.checkpoints(), dir.path().join("aside")).unwrap();
        drop(run);
        let run = RunDir::create(&DiskFiles, &path, false).unwrap();
        std::fs::rename(run.model(), run.config()).unwrap();
        std::fs::rename(dir.path().join("aside"), run.checkpoints()).unwrap();
        std::fs::write(run.tokens_draft(), "tokens").unwrap();
        run.begin(&DiskFiles).unwrap();
        assert!(!run.config().exists() && !run.checkpoints().exists());
        assert!(run.tokens().exists() && !run.tokens_draft().exists());
        assert!(path.join("notes.txt").exists());
        run.abandon(&DiskFiles);
        assert!(path.join("notes.txt").exists());
    }

    #[test]
    fn an_abandoned_folder_leaves_nothing_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("mine")).unwrap();
        let path = dir.path().join("mine/deep/run");
        let run = RunDir::create(&DiskFiles, &path, false).unwrap();
        std::fs::write(run.tokens_draft(), "tokens").unwrap();
        run.abandon(&DiskFiles);
        assert!(!dir.path().join("mine/deep").exists());
        assert!(dir.path().join("mine").exists());
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
