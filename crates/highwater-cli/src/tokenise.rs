//! Tokens of text, where a `tokenizer.json` makes them: in a process of its own, whose memory is all given
//! back when it ends. A tokenizer takes many times its file, and heap that was used once is seldom given
//! back whole.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use highwater_memory::{DiskFiles, Files};
use highwater_models::Tokenizer;
use highwater_models::data::{DataOptions, Tokens};

use serde::{Deserialize, Serialize};

use crate::args::TokeniseArgs;
use crate::config::RunConfig;
use crate::data::text_to_tokenise;
use crate::error::Failure;
use crate::records::Source;
use crate::task::Blueprint;

/// What making tokens takes at most, in bytes: so much, and so many times the tokenizer's file.
const LEAST_BYTES: u64 = 16 << 20;
const FILE_TIMES: u64 = 16;
/// What records take besides: those that are in memory at once, and the rows that are being filled.
const RECORDS_BYTES: u64 = 48 << 20;

/// What tokens are to be made of.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// A text.
    Text {
        /// The `tokenizer.json`.
        tokenizer: PathBuf,
        /// A file, or a folder of them.
        text: PathBuf,
        /// How many tokens the model has.
        vocab_size: u32,
    },
    /// Records.
    Records(Source),
}

/// Bytes that making the tokens of these settings takes; 0 where no tokenizer has to.
///
/// # Errors
/// [`Failure`] for files that cannot be looked at.
pub fn needed_bytes(files: &dyn Files, config: &RunConfig) -> Result<u64, Failure> {
    if text_to_tokenise(files, config)?.is_none() {
        return Ok(0);
    }
    let records = config.data.records.as_ref().map_or(0, |_| RECORDS_BYTES);
    Ok(LEAST_BYTES + tokenizer_bytes(files, config)? + records)
}

/// Bytes that the tokenizer of these settings takes; 0 where none is read.
///
/// # Errors
/// [`Failure`] for a file that cannot be looked at.
pub fn tokenizer_bytes(files: &dyn Files, config: &RunConfig) -> Result<u64, Failure> {
    let path = config.model.tokenizer.as_ref();
    let found = path.map(|path| files.metadata(path)).transpose()?;
    Ok(FILE_TIMES * found.flatten().map_or(0, |file| file.bytes))
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
    let Some(text) = text_to_tokenise(files, config)? else {
        return Ok(false);
    };
    if files.metadata(spool)?.is_some() {
        return Ok(false);
    }
    let vocab_size = model.text()?.vocab_size();
    let request = match (Source::of(config, vocab_size), &config.model.tokenizer) {
        (Some(source), _) => Request::Records(source),
        (None, Some(tokenizer)) => Request::Text {
            tokenizer: tokenizer.clone(),
            text: text.to_owned(),
            vocab_size: vocab_size as u32,
        },
        (None, None) => return Ok(false),
    };
    let program =
        std::env::current_exe().map_err(|error| Failure::system("find its own file", &error))?;
    let output = Command::new(program)
        .args(["tokenise", "--"])
        .arg(spool)
        .arg(serde_json::to_string(&request).map_err(|error| failed_json(&error))?)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::system("start a process", &error))?;
    if output.status.success() {
        return Ok(true);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::told(output.status.code(), said.trim()))
}

/// Only paths can be what JSON does not have.
fn failed_json(error: &serde_json::Error) -> Failure {
    Failure::usage(format!(
        "the path of the data, the tokenizer or the template: {error}"
    ))
    .hint("give it a name in UTF-8")
}

/// `tokenise`: what that process does.
///
/// # Errors
/// [`Failure`] for text or a tokenizer that cannot be read or used.
pub fn tokenise(args: &TokeniseArgs) -> Result<(), Failure> {
    highwater_memory::heap::keep_small();
    // Nobody waits for what a program began that is gone.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    let files: Arc<dyn Files> = Arc::new(DiskFiles);
    let request = serde_json::from_str(&args.request).map_err(|error| failed_json(&error))?;
    match request {
        Request::Records(source) => source.make(&files, &args.spool),
        Request::Text {
            tokenizer,
            text,
            vocab_size,
        } => {
            let options = DataOptions {
                tokenizer: &Tokenizer::load(&*files, &tokenizer)?,
                vocab_size,
                width: highwater_models::TokenWidth::default(),
                spool: &args.spool,
            };
            Tokens::open(&files, &text, &options)?;
            Ok(())
        }
    }
}
