//! Digests of what a run began with, as far as folders tell.

use std::path::Path;

use highwater_memory::Files;
use highwater_memory::saved::Digest;
use highwater_models::WeightsFolder;

use super::run_dir::RunDir;
use crate::config::{Origin, RunConfig};
use crate::error::{Code, Failure};

/// Of the weights of a model's folder: of the file, or of what its files are called and hold.
///
/// # Errors
/// [`Failure`] for files that cannot be read.
pub(crate) fn weights_digest(files: &dyn Files, folder: &Path) -> Result<Digest, Failure> {
    let paths = WeightsFolder::open(files, folder)?.paths();
    if let [path] = &paths[..] {
        return Ok(Digest::of_file(files, path)?);
    }
    let told = |error| Failure::new(Code::Internal, error);
    let mut all = Vec::new();
    for path in &paths {
        let digest = Digest::of_file(files, path)?;
        let name = path.file_name().map(|name| name.to_string_lossy());
        serde_json::to_writer(&mut all, &(name, digest)).map_err(told)?;
    }
    Ok(Digest::of(&all))
}

/// That a run's tokenizer is the file that it began with, as far as it is there.
///
/// # Errors
/// [`Failure`] where it is another one by now.
pub(crate) fn check_tokenizer(files: &dyn Files, run: &RunConfig) -> Result<(), Failure> {
    let origin = run.origin.as_ref();
    let before = origin.and_then(|origin| origin.tokenizer.as_ref());
    let (Some(path), Some(before)) = (&run.model.tokenizer, before) else {
        return Ok(());
    };
    if files.metadata(path)?.is_none() || Digest::of_file(files, path)? == *before {
        return Ok(());
    }
    let message = format!("{} was changed after the run began", path.display());
    Err(Failure::new(Code::Files, message).hint("restore the file as it was"))
}

impl Origin {
    /// That the model's configuration is as it was.
    ///
    /// # Errors
    /// [`Failure`] where it is not.
    pub fn check_model(&self, files: &dyn Files, dir: &RunDir) -> Result<(), Failure> {
        let path = dir.model();
        if Digest::of_file(files, &path)? == self.model {
            return Ok(());
        }
        let message = format!("{} was edited after the run began", path.display());
        Err(Failure::new(Code::Files, message)
            .hint("restore a copy of it, or start a new run with `highwater train`"))
    }
}
