//! Tokens of text, where a `tokenizer.json` makes them: in a process of its own, whose memory is all given
//! back when it ends. A tokenizer takes many times its file, and heap that was used once is seldom given
//! back whole.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use highwater_memory::{DiskFiles, Files};
use highwater_models::Tokenizer;
use highwater_models::data::{DataOptions, Tokens};

use crate::args::TokeniseArgs;
use crate::config::RunConfig;
use crate::data::text_to_tokenise;
use crate::error::{Code, Failure};
use crate::task::Blueprint;

/// What making tokens takes at most, in bytes: so much, and so many times the tokenizer's file.
const LEAST_BYTES: u64 = 16 << 20;
const FILE_TIMES: u64 = 16;

/// Bytes that making the tokens of these settings takes; 0 where no tokenizer has to.
///
/// # Errors
/// [`Failure`] for files that cannot be looked at.
pub fn needed_bytes(files: &dyn Files, config: &RunConfig) -> Result<u64, Failure> {
    let Some(path) = &config.model.tokenizer else {
        return Ok(0);
    };
    if text_to_tokenise(files, config)?.is_none() {
        return Ok(0);
    }
    let found = files.metadata(path)?;
    Ok(found.map_or(0, |file| LEAST_BYTES + FILE_TIMES * file.bytes))
}

/// Makes the tokens of the settings' text, if a tokenizer makes them and they are not in `spool` yet.
/// Answers whether it did.
///
/// # Errors
/// [`Failure`] of the process that makes them: text or a tokenizer that cannot be read or used.
pub fn spool(
    files: &dyn Files,
    config: &RunConfig,
    model: &Blueprint,
    spool: &Path,
) -> Result<bool, Failure> {
    let text = text_to_tokenise(files, config)?;
    let (Some(text), Some(tokenizer)) = (text, &config.model.tokenizer) else {
        return Ok(false);
    };
    if files.metadata(spool)?.is_some() {
        return Ok(false);
    }
    let failed = |error| Failure::new(Code::Internal, error);
    let program = std::env::current_exe().map_err(failed)?;
    let output = Command::new(program)
        .args(["tokenise", "--"])
        .args([tokenizer, text, spool])
        .arg(model.text()?.vocab_size().to_string())
        .stdin(Stdio::null())
        .output()
        .map_err(failed)?;
    if output.status.success() {
        return Ok(true);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::told(output.status.code(), said.trim()))
}

/// `tokenise`: what that process does.
///
/// # Errors
/// [`Failure`] for text or a tokenizer that cannot be read or used.
pub fn tokenise(args: &TokeniseArgs) -> Result<(), Failure> {
    highwater_memory::heap::keep_small();
    let files: Arc<dyn Files> = Arc::new(DiskFiles);
    let options = DataOptions {
        tokenizer: &Tokenizer::load(&*files, &args.tokenizer)?,
        vocab_size: args.vocab_size,
        width: highwater_models::TokenWidth::default(),
        spool: &args.spool,
    };
    Tokens::open(&files, &args.text, &options)?;
    Ok(())
}
