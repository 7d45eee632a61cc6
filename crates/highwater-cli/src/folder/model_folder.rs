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
        "{folder_name}: its weights are pickled (pytorch_model.bin), which is not read here"
    );
    let hint = "make safetensors of them: in Python, \
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
                "the model that it ended with is in {}",
                folder.join(FINAL).display()
            )
        } else if has(FINAL)? {
            format!("`highwater merge {name} --out FOLDER` makes a model of its adapters")
        } else {
            format!("it has no model yet: `highwater resume {name}` goes on with it")
        };
        let message = format!("{name}: this is the folder of a run, not of a model");
        return Ok(Failure::usage(message).id("HW1032").hint(hint));
    }
    if has(WEIGHTS)? {
        let message = format!("{name}: adapters, without the model that they are for");
        let hint = "name the folder of the run that trained them, or add them to the model by `highwater merge`";
        return Ok(Failure::usage(message).id("HW1041").hint(hint));
    }
    let message = format!("{name}: there is no {missing}");
    let hint = "a model's folder has config.json and model.safetensors";
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
            "this run has saved nothing yet; the one that was here before is whole, in {}",
            before.display()
        )));
    }
    Ok(failure.hint("name the folder of a run that has saved something, or --model FOLDER"))
}
