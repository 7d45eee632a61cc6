//! The folder `final` of a run: its model as other programs load it, and what belongs beside one.

use std::path::Path;

use highwater::DType;
use highwater_memory::files::Draft;
use highwater_memory::saved::write_atomic;
use highwater_memory::{FileWrite, Files};
use highwater_models::adapter::{CONFIG as ADAPTER_CONFIG, WEIGHTS};
use highwater_models::save_folder;
use serde::{Deserialize, Serialize};

use crate::config::{ModelSource, RunConfig};
use crate::error::{Code, Failure};
use crate::lora;
use crate::run_dir::{RunDir, facts};
use crate::session::Session;
use crate::task::Model;

/// Files are copied in pieces of so many bytes.
const COPY_BYTES: usize = 64 << 10;

/// After which step the model in a run's folder `final` is.
#[derive(Debug, Serialize, Deserialize)]
struct FinalStep {
    step: u64,
}

/// What a file says of the step that the folder `final` is of; none where that is not known, or not all of the folder
/// is written.
///
/// # Errors
/// [`Failure`] for a file that cannot be read.
pub fn final_step(files: &dyn Files, path: &Path) -> Result<Option<u64>, Failure> {
    let found = facts::read::<FinalStep>(files, path)?;
    Ok(found.map(|found| found.step))
}

/// Writes the model that a run ends with after `step` steps, as its folder `final`.
///
/// # Errors
/// [`Failure`] if a file cannot be written.
pub fn finish(
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
    facts::write(files, run, &path, &FinalStep { step })
}

/// Writes the model as `transformers` loads it: `config.json`, `model.safetensors`, and the
/// tokenizer if there is one. The weights of a classifier have torchvision's names. Returns the names of its files.
///
/// # Errors
/// [`Failure`] if a file cannot be written.
fn export(files: &dyn Files, dir: &Path, session: &Session) -> Result<Vec<String>, Failure> {
    files.create_dir_all(dir)?;
    let config = session.config();
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

/// What a model's folder has for its tokenizer.
const OF_TOKENIZER: [&str; 8] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
];
/// What else it has beside its weights.
const OF_MODEL: [&str; 1] = ["generation_config.json"];

/// Copies what a model's folder has beside its weights.
///
/// # Errors
/// [`Failure`] of the files.
pub fn copy_beside(files: &dyn Files, from: &Path, to: &Path) -> Result<Vec<String>, Failure> {
    copy_some(files, from, to, OF_TOKENIZER.iter().chain(&OF_MODEL))
}

fn copy_some<'a>(
    files: &dyn Files,
    from: &Path,
    to: &Path,
    names: impl IntoIterator<Item = &'a &'a str>,
) -> Result<Vec<String>, Failure> {
    let mut copied = Vec::new();
    for name in names {
        if files.metadata(&from.join(name))?.is_some() {
            copy(files, &from.join(name), &to.join(name))?;
            copied.push((*name).to_owned());
        }
    }
    Ok(copied)
}

/// Copies what belongs beside a run's model into a folder in the run's: its tokenizer and the template that it took.
///
/// # Errors
/// [`Failure`] of the files.
pub fn beside_model(
    files: &dyn Files,
    config: &RunConfig,
    dir: &Path,
) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    if let ModelSource::Folder(folder) = &config.model.source {
        names.extend(copy_some(files, folder, dir, &OF_MODEL)?);
    }
    if let Some(tokenizer) = &config.model.tokenizer {
        if let Some(folder) = tokenizer.parent() {
            names.extend(copy_some(files, folder, dir, &OF_TOKENIZER)?);
        }
        copy(files, tokenizer, &dir.join("tokenizer.json"))?;
        names.push("tokenizer.json".to_owned());
    }
    // The run's own copy: the file that was named may be another one by now.
    let template = dir.parent().map(RunDir::template_of);
    if let (Some(template), Some(_)) = (template, config.chat_template()) {
        copy(files, &template, &dir.join("chat_template.jinja"))?;
        names.push("chat_template.jinja".to_owned());
    }
    Ok(names)
}

/// The model's `config.json`, which says of what its weights are.
fn config_json(session: &Session) -> Result<String, Failure> {
    with_dtype(&session.model.to_json(), session.weights_dtype())
}

/// A `config.json` that says of what its weights are, by whichever name it has for that.
///
/// # Errors
/// [`Failure`] for what is no JSON.
pub fn with_dtype(json: &str, dtype: DType) -> Result<String, Failure> {
    let told = |error| Failure::new(Code::Internal, error);
    let mut config: serde_json::Value = serde_json::from_str(json).map_err(told)?;
    let name = match config.get("dtype") {
        Some(_) => "dtype",
        None if dtype == DType::F32 && config.get("torch_dtype").is_none() => {
            return Ok(json.to_owned());
        }
        None => "torch_dtype",
    };
    if config.get(name).is_some_and(|said| said == dtype.name())
        && config
            .get("torch_dtype")
            .is_none_or(|said| said == dtype.name())
    {
        return Ok(json.to_owned());
    }
    config[name] = dtype.name().into();
    if name == "dtype"
        && let Some(fields) = config.as_object_mut()
    {
        fields.remove("torch_dtype");
    }
    Ok(serde_json::to_string_pretty(&config).map_err(told)? + "\n")
}

/// Copies a file in pieces, all of it or nothing.
///
/// # Errors
/// [`Failure`] if one cannot be read or the other written.
pub fn copy(files: &dyn Files, from: &Path, to: &Path) -> Result<(), Failure> {
    let mut source = files.open(from)?;
    let (draft, mut target) = Draft::file(files, to)?;
    let (mut at, mut piece) = (0, vec![0; COPY_BYTES]);
    while at < source.bytes() {
        let len = (source.bytes() - at).min(COPY_BYTES as u64) as usize;
        source.read_exact_at(at, &mut piece[..len])?;
        FileWrite::write_all(&mut *target, &piece[..len])?;
        at += len as u64;
    }
    target.sync_all()?;
    drop(target);
    Ok(draft.persist()?)
}
