//! The tokenizer of a run, and whether its data is tokenized.

use std::path::Path;

use highwater_memory::Files;
use highwater_models::Tokenizer;
use highwater_models::data::holds_tokens;

use crate::config::RunConfig;
use crate::error::Failure;

/// The text or the records that tokens are made of before a run, if there are such.
///
/// # Errors
/// [`Failure`] where the path of the data cannot be looked at.
pub(crate) fn text_to_tokenize<'a>(
    files: &dyn Files,
    config: &'a RunConfig,
) -> Result<Option<&'a Path>, Failure> {
    let (Some(path), true) = (
        config.data.path.as_deref(),
        config.model.tokenizer.is_some() || config.data.records.is_some(),
    ) else {
        return Ok(None);
    };
    if config.data.records.is_some() {
        return Ok(Some(path));
    }
    Ok((!holds_tokens(files, path)?).then_some(path))
}

/// How the run's text becomes tokens.
///
/// # Errors
/// [`Failure`] for a `tokenizer.json` that cannot be read.
pub(crate) fn tokenizer(files: &dyn Files, config: &RunConfig) -> Result<Tokenizer, Failure> {
    tokenizer_of(files, config.model.tokenizer.as_deref())
}

/// The tokenizer of a `tokenizer.json`; bytes without one.
pub(crate) fn tokenizer_of(files: &dyn Files, path: Option<&Path>) -> Result<Tokenizer, Failure> {
    match path {
        Some(path) => Ok(Tokenizer::load(files, path)?),
        None => Ok(Tokenizer::Bytes),
    }
}

const FILE_TIMES: u64 = 16;

/// Bytes that the tokenizer of these settings takes; 0 where none is read.
///
/// # Errors
/// [`Failure`] for a file that cannot be looked at.
pub(crate) fn tokenizer_bytes(files: &dyn Files, config: &RunConfig) -> Result<u64, Failure> {
    let path = config.model.tokenizer.as_ref();
    let found = path.map(|path| files.metadata(path)).transpose()?;
    Ok(FILE_TIMES * found.flatten().map_or(0, |file| file.bytes))
}
