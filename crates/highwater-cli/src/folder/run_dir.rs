//! The folder of a run.
//!
//! ```text
//! RUN/
//!   manifest.txt       the files that the run wrote: what `--force` may delete
//!   config.toml        the resolved settings
//!   model.json         the model's configuration
//!   chat_template.jinja the template that was named, if one was
//!   plan.json          what the memory plan was
//!   metrics.jsonl      a line for each step
//!   tensorboard/       the same for TensorBoard, with `--tensorboard`
//!   run.log            what was said meanwhile, a line each, with the step
//!   tokens.bin         the tokens of text, where a tokenizer.json made them, or of records, in rows
//!   checkpoints/       saved states, the newest of which `resume` goes on from
//!   best.json          which of them did best on what is held out
//!   final/             the trained model, as Hugging Face keeps one
//!   final.json         after which step that is
//!   replaced/          the run that was here before, until this one has saved a state
//!   save.now           asks for a saved state, and goes when there is one
//!   lock               held by the process that trains
//! ```

mod error;
mod names;
mod owned;
mod replaced;

pub use error::RunDirError;
pub(super) use names::FINAL;

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::real;
use highwater_memory::Files;
use highwater_memory::files::Draft;
use names::{
    BEST, CHECKPOINTS, CONFIG, FILES, FINAL_STEP, LOCK, LOG, METRICS, MODEL, PARTS, PLAN, REPLACED,
    SAVE_NOW, TEMPLATE, TENSORBOARD, TOKENS,
};
use owned::Contents;

/// The most runs of one name that are numbered.
const NUMBERED_MAX: u32 = 100_000;

/// The folder of a run, which this process alone writes to as long as it has this value.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    /// The folders that were made for it, innermost first.
    made: Vec<PathBuf>,
    /// Of a new run, a folder in which the data's tokens are made before it begins.
    draft: Option<PathBuf>,
    /// Unlocked by the system when it is closed, even by a kill.
    _lock: File,
}

impl RunDir {
    /// Makes a folder for a new run, which [`RunDir::begin`] begins. A run that is there is in the
    /// way unless `force` is given, and a process that is at it always. What no run wrote is in the way too, if the
    /// new run would write a file of that name or replace the run beside it; so is a run of which `inputs` are part.
    ///
    /// # Errors
    /// [`RunDirError`].
    pub fn create(
        files: &dyn Files,
        path: &Path,
        force: bool,
        inputs: &[PathBuf],
    ) -> Result<Self, RunDirError> {
        let mut made = Vec::new();
        for folder in path.ancestors().filter(|path| !path.as_os_str().is_empty()) {
            if files.metadata(folder)?.is_some() {
                break;
            }
            made.push(folder.to_owned());
        }
        files.create_dir_all(path)?;
        let had_lock = files.metadata(&path.join(LOCK))?.is_some();
        let lock = lock(path)?;
        check_unused(files, path, force, inputs).inspect_err(|_| {
            if !had_lock {
                // A refusal leaves the folder as it was.
                let _ = std::fs::remove_file(path.join(LOCK));
            }
            unmake(&made);
        })?;
        let draft = Draft::folder(files, &path.join(TOKENS))?.keep();
        Ok(Self {
            path: path.to_owned(),
            made,
            draft: Some(draft),
            _lock: lock,
        })
    }

    /// Begins the new run, now that it is known to be possible. An old one is put aside until the new one has
    /// saved something: see [`RunDir::settle`] and [`RunDir::give_back`].
    ///
    /// # Errors
    /// [`RunDirError`].
    pub fn begin(&self, files: &dyn Files) -> Result<(), RunDirError> {
        let contents = Contents::read(files, &self.path)?;
        let contents = contents.without(&self.path, self.draft.as_deref());
        if files.metadata(&self.config())?.is_some() {
            replaced::put_aside(files, &self.path, contents)?;
        } else {
            // Of a start that was cut off.
            contents.delete(files, &self.path)?;
        }
        owned::list(files, &self.path, FILES.map(PathBuf::from))?;
        let draft = self.tokens_draft();
        if draft != self.tokens() && files.metadata(&draft)?.is_some() {
            self.own(files, [self.tokens()])?;
            files.rename(&draft, &self.tokens())?;
        }
        if let Some(draft) = &self.draft {
            files.remove_dir(draft)?;
        }
        Ok(())
    }

    /// Notes that the run has saved something: what it replaced goes.
    ///
    /// # Errors
    /// [`RunDirError`].
    pub fn settle(&self, files: &dyn Files) -> Result<(), RunDirError> {
        Ok(replaced::forget(files, &self.path)?)
    }

    /// Puts back the run that was here before, if this one has not saved anything since it replaced that. Returns
    /// whether it did.
    ///
    /// # Errors
    /// [`RunDirError`].
    pub fn give_back(&self, files: &dyn Files) -> Result<bool, RunDirError> {
        replaced::put_back(files, &self.path)
    }

    /// Notes that the run writes these files in its folder.
    ///
    /// # Errors
    /// [`RunDirError`].
    pub fn own(
        &self,
        files: &dyn Files,
        paths: impl IntoIterator<Item = PathBuf>,
    ) -> Result<(), RunDirError> {
        let within = |path: PathBuf| Some(path.strip_prefix(&self.path).ok()?.to_owned());
        let paths = paths.into_iter().filter_map(within);
        Ok(owned::list(files, &self.path, paths)?)
    }

    /// Takes back what [`RunDir::create`] and [`RunDir::begin`] did, as far as that is possible.
    pub fn abandon(self, files: &dyn Files) {
        // The failure before this is what the user has to know. What stays is in the manifest.
        if let Some(draft) = &self.draft {
            let _ = files.remove_file(&draft.join(TOKENS));
            let _ = files.remove_dir(draft);
        }
        let _ = self.give_back(files);
        if !self.made.is_empty() {
            let _ = Contents::read(files, &self.path).and_then(|c| c.delete(files, &self.path));
        }
        unmake(&self.made);
    }

    /// Makes a folder for a new run that is called `path`, or with the first number from 2 on that is
    /// not in use.
    ///
    /// # Errors
    /// [`RunDirError`].
    pub fn create_numbered(files: &dyn Files, path: &Path) -> Result<Self, RunDirError> {
        let mut result = Self::create(files, path, false, &[]);
        for number in 2..NUMBERED_MAX {
            match result {
                Err(RunDirError::InUse(_) | RunDirError::Locked(_) | RunDirError::Foreign(_)) => {
                    let mut numbered = path.as_os_str().to_owned();
                    numbered.push(format!("-{number}"));
                    result = Self::create(files, Path::new(&numbered), false, &[]);
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
        let is_run = files.metadata(&path.join(CONFIG))?.is_some();
        if !is_run && files.metadata(&path.join(REPLACED))?.is_none() {
            return Err(RunDirError::NoRun(path.to_owned()));
        }
        let lock = lock(path)?;
        replaced::recover(files, path)?;
        if files.metadata(&path.join(CONFIG))?.is_none() {
            return Err(RunDirError::NoRun(path.to_owned()));
        }
        owned::sweep(files, path)?;
        Ok(Self {
            path: path.to_owned(),
            made: Vec::new(),
            draft: None,
            _lock: lock,
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

    /// The same of the run in a folder.
    pub fn model_of(path: &Path) -> PathBuf {
        path.join(MODEL)
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
        let folder = self.draft.as_deref().unwrap_or(&self.path);
        folder.join(TOKENS)
    }

    /// The data's tokens, where a `tokenizer.json` made them.
    pub fn tokens(&self) -> PathBuf {
        self.path.join(TOKENS)
    }

    /// The saved states.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join(CHECKPOINTS)
    }

    /// Where the run lies that the run in a folder replaces, until that has saved something.
    pub fn replaced_of(path: &Path) -> PathBuf {
        path.join(REPLACED)
    }

    /// The saved states of the run in a folder.
    pub fn checkpoints_of(path: &Path) -> PathBuf {
        path.join(CHECKPOINTS)
    }

    /// Which of them did best.
    pub fn best_of(path: &Path) -> PathBuf {
        path.join(BEST)
    }

    /// The trained model.
    pub fn final_model(&self) -> PathBuf {
        self.path.join(FINAL)
    }

    /// Where a run waits that this one replaces.
    pub fn replaced(&self) -> PathBuf {
        self.path.join(REPLACED)
    }

    /// After which step that is.
    pub fn final_step(&self) -> PathBuf {
        self.path.join(FINAL_STEP)
    }

    /// The same of the run in a folder.
    pub fn final_step_of(path: &Path) -> PathBuf {
        path.join(FINAL_STEP)
    }
}

/// That a new run may begin in a folder.
fn check_unused(
    files: &dyn Files,
    path: &Path,
    force: bool,
    inputs: &[PathBuf],
) -> Result<(), RunDirError> {
    replaced::recover(files, path)?;
    let there = files.list_dir(path)?;
    let mut parts = there
        .iter()
        .filter(|entry| PARTS.contains(&entry.name.as_str()));
    let Some(part) = parts.next() else {
        return Ok(());
    };
    let has = |name: &str| there.iter().any(|entry| entry.name == name);
    let has_manifest = owned::has_manifest(files, path)?;
    // Settings alone are a user's, such as `init` writes.
    if has(CONFIG) && (has_manifest || has(MODEL)) && !force {
        return Err(RunDirError::InUse(path.to_owned()));
    }
    if !has_manifest {
        return Err(RunDirError::Foreign(path.join(&part.name)));
    }
    for folder in [path.to_owned(), path.join(REPLACED)] {
        if owned::has_manifest(files, &folder)?
            && let Some(foreign) = Contents::read(files, &folder)?.foreign
        {
            return Err(RunDirError::Foreign(folder.join(foreign)));
        }
    }
    // Links are followed: what counts is where files are.
    let folder = real(path);
    match inputs.iter().find(|input| real(input).starts_with(&folder)) {
        Some(input) => Err(RunDirError::Input(input.clone())),
        None => Ok(()),
    }
}

/// Removes folders that were made for a run and that nobody else uses by now.
fn unmake(made: &[PathBuf]) {
    if let Some(folder) = made.first() {
        let _ = std::fs::remove_file(folder.join(LOCK));
    }
    for folder in made {
        // One that is not empty stays.
        let _ = std::fs::remove_dir(folder);
    }
}

/// How often a lock is tried for, and how long it is waited for in between.
const LOCK_TRIES: u32 = 10;
const LOCK_WAIT: Duration = Duration::from_millis(20);

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
    // A process that this one, or another, is about to start has its locks until it begins.
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_WAIT),
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
    }
    Err(RunDirError::Locked(
        path.parent().unwrap_or(&path).to_owned(),
    ))
}

#[cfg(test)]
mod tests;
