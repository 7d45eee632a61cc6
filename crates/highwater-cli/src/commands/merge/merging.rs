//! What a merge of adapters needs beside the adapters: its memory, its types, and what its failures say.

use clap::ValueEnum;
use highwater::{Bytes, DType};
use highwater_memory::process::Usage;
use highwater_models::{ConfigError, Merge, MergeError};

use crate::error::{Code, Failure};

/// What merged weights are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MergedDtype {
    /// 32-bit floats.
    F32,
    /// bfloat16.
    Bf16,
    /// float16.
    F16,
}

impl MergedDtype {
    /// As the library has it.
    pub fn of(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }
}

/// That a merge keeps to the memory that it was given.
///
/// # Errors
/// [`Failure`] where it needs more.
pub(super) fn check_memory(merge: &Merge<'_>, given: Option<Bytes>) -> Result<(), Failure> {
    let taken = Usage::read().map_or(0, |usage| usage.peak);
    let needed = Bytes(taken + merge.bytes());
    match given.filter(|given| *given < needed) {
        Some(given) => {
            let (needed, given) = Bytes::needed_of(needed, given);
            let message = format!("the merge does not fit into {given}: it needs {needed}");
            // A mebibyte to spare: what the process has is measured anew each time.
            let more = (taken + merge.bytes()).div_ceil(1 << 20) + 1;
            let hint = format!("give it --memory {more}MiB or more");
            Err(Failure::new(Code::Budget, message).hint(hint))
        }
        None => Ok(()),
    }
}

/// A `config.json` whose model has a head of its own.
///
/// # Errors
/// [`Failure`] for what is no JSON.
pub(super) fn untied(json: &str) -> Result<String, Failure> {
    let told = |error| Failure::new(Code::Internal, error);
    let mut config: serde_json::Value = serde_json::from_str(json).map_err(told)?;
    config["tie_word_embeddings"] = false.into();
    Ok(serde_json::to_string_pretty(&config).map_err(told)? + "\n")
}

impl From<MergeError> for Failure {
    fn from(error: MergeError) -> Self {
        match error {
            MergeError::Config(ConfigError::Files(error)) | MergeError::Files(error) => error.into(),
            error @ MergeError::Config(_) => Self::new(Code::Usage, error)
                .id("HW1041")
                .hint("merge them with PEFT: `PeftModel.from_pretrained(MODEL, FOLDER).merge_and_unload()`"),
            MergeError::Weights(error) => error.into(),
            MergeError::Engine(error) => error.into(),
            error @ MergeError::Adapters { .. } => Self::new(Code::Usage, error)
                .id("HW1041")
                .hint("use --model FOLDER with the model that they were trained for"),
            error => Self::new(Code::Files, error).id("HW1013"),
        }
    }
}
