//! A run whose model or data lies elsewhere by now.

use std::path::Path;

use highwater_memory::Files;

use super::paths::absolute;
use crate::args::ResumeArgs;
use crate::config::{ModelSource, RunConfig};
use crate::error::{Code, Failure};

/// Has a run find what lies elsewhere by now.
///
/// # Errors
/// [`Failure`] for what the run does not have.
pub(crate) fn find(config: &mut RunConfig, args: &ResumeArgs) -> Result<(), Failure> {
    if let Some(folder) = &args.model {
        let ModelSource::Folder(before) = &config.model.source else {
            let message = format!(
                "--model: the run began with {}, not with a folder",
                config.model.source
            );
            return Err(Failure::usage(message).hint("leave it out"));
        };
        let folder = absolute(folder)?;
        if let Some(tokenizer) = &mut config.model.tokenizer
            && let Ok(within) = tokenizer.strip_prefix(before)
        {
            *tokenizer = folder.join(within);
        }
        config.model.source = ModelSource::Folder(folder);
    }
    if let Some(path) = &args.data {
        if config.data.path.is_none() {
            let message = "--data: the run reads the built-in guide";
            return Err(Failure::usage(message).hint("leave it out"));
        }
        config.data.path = Some(absolute(path)?);
    }
    if let Some(path) = &args.tokenizer {
        if config.model.tokenizer.is_none() {
            let message = "--tokenizer: the run reads bytes";
            return Err(Failure::usage(message).hint("leave it out"));
        }
        config.model.tokenizer = Some(absolute(path)?);
    }
    Ok(())
}

/// That what the run in a folder reads when it goes on is where it says: its model's folder, its tokenizer, its data.
///
/// # Errors
/// [`Failure`] that names what is not there, and the flag that says where it is now.
pub(crate) fn check(files: &dyn Files, config: &RunConfig, run: &Path) -> Result<(), Failure> {
    let tokenizer = config.model.tokenizer.as_deref();
    // A model's folder is read for adapters, and for a tokenizer that lies there.
    let model = match &config.model.source {
        ModelSource::Folder(folder) => Some(folder.as_path()),
        _ => None,
    };
    let model = model.filter(|folder| {
        config.model.lora.is_some() || tokenizer.is_some_and(|path| path.starts_with(folder))
    });
    let read = [
        (model, "--model FOLDER"),
        (tokenizer, "--tokenizer FILE"),
        (config.data.path.as_deref(), "--data PATH"),
    ];
    for (path, flag) in read {
        if let Some(path) = path
            && files.metadata(path)?.is_none()
        {
            return Err(gone(path, run, flag));
        }
    }
    Ok(())
}

fn gone(path: &Path, run: &Path, flag: &str) -> Failure {
    let message = format!("{}: not found, and the run needs it", path.display());
    let run = run.display();
    Failure::new(Code::Files, message).hint(format!(
        "if it was moved, run `highwater resume {run} {flag}` with its new path"
    ))
}
