//! A run whose model or data lies elsewhere by now.

use crate::args::ResumeArgs;
use crate::config::{ModelSource, RunConfig};
use crate::error::Failure;
use crate::resolve::absolute;

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
