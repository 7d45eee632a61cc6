//! Folders of models: whether there are weights, and what to say of one that has none.

use std::path::Path;

use highwater_memory::Files;
use highwater_models::WeightsFolder;
use highwater_models::adapter::WEIGHTS;
use highwater_models::weights::INDEX;

use super::run_dir::{FINAL, RunDir};
use super::state::MODEL;
use crate::error::{Code, Failure};

/// Whether a folder has weights of a whole model, in one file or as an index says.
///
/// # Errors
/// [`Failure`] where it cannot be looked at.
pub fn has_weights(files: &dyn Files, folder: &Path) -> Result<bool, Failure> {
    let has = |name: &str| files.metadata(&folder.join(name));
    Ok(has(MODEL)?.is_some() || has(INDEX)?.is_some())
}

/// Refuses a model folder whose weights are there in a form that is not read, with a word about it.
///
/// # Errors
/// [`Failure`] for weights in another format, or none.
pub fn check_weights(files: &dyn Files, folder: &Path) -> Result<(), Failure> {
    let has = |name: &str| Ok::<_, Failure>(files.metadata(&folder.join(name))?.is_some());
    if has(MODEL)? {
        return Ok(());
    }
    if has(INDEX)? {
        for path in WeightsFolder::open(files, folder)?.paths() {
            if files.metadata(&path)?.is_none() {
                let message = format!("{}: it is missing, though {INDEX} names it", path.display());
                return Err(Failure::new(Code::Files, message).id("HW1013"));
            }
        }
        return Ok(());
    }
    let folder_name = folder.display();
    if !has("pytorch_model.bin")? && !has("pytorch_model.bin.index.json")? {
        return Err(no_model(files, folder, MODEL)?);
    }
    let message = format!(
        "{folder_name}: its weights are a pickle (pytorch_model.bin), which is not supported"
    );
    let hint = "convert them to safetensors in Python: \
    `AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(OTHER)`";
    Err(Failure::usage(message).id("HW1034").hint(hint))
}

/// What to say of a folder that is not a model's, as `missing` is not there.
///
/// # Errors
/// [`Failure`] where it cannot be looked at.
pub fn no_model(files: &dyn Files, folder: &Path, missing: &str) -> Result<Failure, Failure> {
    let has = |name: &str| Ok::<_, Failure>(files.metadata(&folder.join(name))?.is_some());
    let name = folder.display();
    if has("config.toml")? {
        let hint = if has_weights(files, &folder.join(FINAL))? {
            format!(
                "the final model of the run is in {}",
                folder.join(FINAL).display()
            )
        } else if has(FINAL)? {
            format!("`highwater merge {name} --out FOLDER` merges its adapters into a model")
        } else {
            format!("it has no model yet: `highwater resume {name}` continues it")
        };
        let message = format!("{name}: this is the folder of a run, not of a model");
        return Ok(Failure::usage(message).id("HW1032").hint(hint));
    }
    if has(WEIGHTS)? {
        let message = format!("{name}: this folder has adapters and no model");
        let hint =
            "give the folder of the run that trained them, or merge them with `highwater merge`";
        return Ok(Failure::usage(message).id("HW1041").hint(hint));
    }
    let message = format!("{name}: there is no {missing}");
    let hint = "a model folder contains config.json and model.safetensors";
    Ok(Failure::new(Code::Files, message).id("HW1013").hint(hint))
}

/// What to say of a folder of a run without a model of its own.
///
/// # Errors
/// [`Failure`] where it cannot be looked at.
pub fn unsaved(files: &dyn Files, folder: &Path) -> Result<Failure, Failure> {
    let failure = Failure::usage(format!("{}: there is no model", folder.display()));
    let before = RunDir::replaced_of(folder);
    if files.metadata(&before.join("config.toml"))?.is_some() {
        return Ok(failure.hint(format!(
            "this run has not saved a state yet; the run that it replaces is still in {}",
            before.display()
        )));
    }
    Ok(failure.hint("give the folder of a run that has saved a state, or --model FOLDER"))
}
