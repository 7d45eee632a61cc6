//! Where the adapters of a run are, and whether their model is the one that they were trained beside.

use std::path::{Path, PathBuf};

use highwater_memory::Files;
use highwater_memory::saved::Digest;
use highwater_models::adapter::WEIGHTS;

use super::digest::weights_digest;
use super::model_folder;
use crate::config::{ModelSource, RunConfig};
use crate::error::{Code, Failure};

/// Where adapters are, and the model that they are for.
///
/// # Errors
/// [`Failure`] where there are none.
pub(crate) fn adapters(files: &dyn Files, dir: &Path) -> Result<Option<PathBuf>, Failure> {
    for folder in [dir.join("final"), dir.to_owned()] {
        if files.metadata(&folder.join(WEIGHTS))?.is_some() {
            return Ok(Some(folder));
        }
    }
    Ok(None)
}

/// That a run's model is the one that its adapters were trained beside.
///
/// # Errors
/// [`Failure`] where it is not there, or its weights are others.
pub(crate) fn check_base(files: &dyn Files, run: &RunConfig) -> Result<(), Failure> {
    if let ModelSource::Folder(base) = &run.model.source {
        if files.metadata(base)?.is_none() {
            let name = base.display();
            let message =
                format!("{name}: the model that the adapters were trained for was not found");
            return Err(Failure::new(Code::Files, message)
                .hint("if it was moved, use `highwater merge RUN --model FOLDER --out NEW` or `highwater resume RUN \
                --model FOLDER`"));
        }
        model_folder::check_weights(files, base)?;
    }
    let (ModelSource::Folder(base), Some(origin)) = (&run.model.source, &run.origin) else {
        return Ok(());
    };
    let config = base.join("config.json");
    let changed = if (origin.shape.as_ref())
        .is_some_and(|before| Digest::of_file(files, &config).is_ok_and(|now| now != *before))
    {
        &config
    } else if let Some(before) = &origin.weights
        && weights_digest(files, base)? != *before
    {
        base
    } else {
        return Ok(());
    };
    let changed = changed.display();
    let message = format!("{changed} has changed since the adapters were trained");
    Err(Failure::usage(message)
        .id("HW1041")
        .hint("restore the model that the adapters were trained with"))
}
