//! The folder `final` of a run: its model as other programs load it, and what belongs beside one.

use std::path::Path;

use highwater_memory::Files;
use highwater_memory::saved::write_atomic;
use highwater_models::adapter::{CONFIG as ADAPTER_CONFIG, WEIGHTS};
use highwater_models::save_folder;

use crate::error::Failure;
use crate::folder::RunDir;
use crate::folder::copies::{beside_model, with_dtype};
use crate::folder::digest::check_tokenizer;
use crate::folder::final_step::write_final_step;
use crate::model::{Model, lora};
use crate::session::Session;
use crate::terminal::output;

/// Writes the model that a run ends with after `step` steps, as its folder `final`.
///
/// # Errors
/// [`Failure`] if a file cannot be written.
pub(super) fn finish(
    files: &dyn Files,
    run: &RunDir,
    session: &Session,
    step: u64,
) -> Result<(), Failure> {
    // Until all of it is written it is of no step.
    let (dir, path) = (run.final_model(), run.final_step());
    if files.metadata(&path)?.is_some() {
        files.remove_file(&path)?;
    }
    let names = export(files, &dir, session)?;
    let names = names.iter().map(|name| dir.join(name));
    run.own(files, names)?;
    write_final_step(files, run, step)
}

/// Writes the model as `transformers` loads it: `config.json`, `model.safetensors`, and the
/// tokenizer if there is one. The weights of a classifier have torchvision's names. Returns the names of its files.
///
/// # Errors
/// [`Failure`] if a file cannot be written.
fn export(files: &dyn Files, dir: &Path, session: &Session) -> Result<Vec<String>, Failure> {
    files.create_dir_all(dir)?;
    let config = session.config();
    if let Err(changed) = check_tokenizer(files, config) {
        let message = changed.message();
        output::news(&format!(
            "warning: {message}: {} has what it is now",
            dir.display()
        ));
    }
    if let (Some(lora), Model::Text(model)) = (&config.model.lora, &session.model) {
        lora::export(files, dir, &**model, (lora, &config.model.source))?;
        let mut names = vec![WEIGHTS.to_owned(), ADAPTER_CONFIG.to_owned()];
        names.extend(beside_model(files, config, dir)?);
        files.sync_dir(dir)?;
        return Ok(names);
    }
    let most = match session.model {
        Model::Text(_) => config.output.shard_bytes(),
        // torchvision knows single files.
        Model::Images(..) => u64::MAX,
    };
    let mut names = save_folder(files, dir, &session.model.saved(), most)?;
    write_atomic(
        files,
        &dir.join("config.json"),
        config_json(session)?.as_bytes(),
    )?;
    names.push("config.json".to_owned());
    names.extend(beside_model(files, config, dir)?);
    files.sync_dir(dir)?;
    Ok(names)
}

/// The model's `config.json`, which says of what its weights are.
fn config_json(session: &Session) -> Result<String, Failure> {
    with_dtype(&session.model.to_json(), session.weights_dtype())
}
