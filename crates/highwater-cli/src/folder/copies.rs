//! What belongs beside a model's weights, copied into another folder.

use std::path::Path;

use highwater::DType;
use highwater_memory::files::Draft;
use highwater_memory::{FileWrite, Files};

use super::run_dir::RunDir;
use crate::config::{ModelSource, RunConfig};
use crate::error::{Code, Failure};

/// Files are copied in pieces of so many bytes.
const COPY_BYTES: usize = 64 << 10;
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
pub(crate) fn copy_beside(
    files: &dyn Files,
    from: &Path,
    to: &Path,
) -> Result<Vec<String>, Failure> {
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
pub(crate) fn beside_model(
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

/// A `config.json` that says of what its weights are, by whichever name it has for that.
///
/// # Errors
/// [`Failure`] for what is no JSON.
pub(crate) fn with_dtype(json: &str, dtype: DType) -> Result<String, Failure> {
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
pub(crate) fn copy(files: &dyn Files, from: &Path, to: &Path) -> Result<(), Failure> {
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
