//! The tokenizer of a run, and whether its data is tokenized.

use std::path::Path;

use highwater_memory::process::Usage;
use highwater_memory::{Bytes, Files, ProcessMemory};
use highwater_models::Tokenizer;
use highwater_models::data::holds_tokens;

use crate::config::RunConfig;
use crate::error::{Code, Failure};

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

/// Bytes that the tokenizer of these settings uses while it is read; 0 where none is read.
///
/// # Errors
/// [`Failure`] for a file that cannot be read.
pub(crate) fn tokenizer_bytes(files: &dyn Files, config: &RunConfig) -> Result<u64, Failure> {
    let path = config.model.tokenizer.as_deref();
    path.map_or(Ok(0), |path| file_needs(files, path))
}

/// Reads a tokenizer if this process may use as much memory as that takes.
///
/// # Errors
/// [`Failure`] where it may not, and for a `tokenizer.json` that cannot be read.
pub(crate) fn read_within(
    files: &dyn Files,
    path: &Path,
    limit: &Limit,
) -> Result<Tokenizer, Failure> {
    check_room(files, path, limit)?;
    Ok(Tokenizer::load(files, path)?)
}

/// That this process may use as much memory as reading a tokenizer takes, if there is one.
///
/// # Errors
/// [`Failure`] where it may not, and for a file that cannot be read.
pub(crate) fn check_room(files: &dyn Files, path: &Path, limit: &Limit) -> Result<(), Failure> {
    if files.metadata(path)?.is_none_or(|found| found.is_dir) {
        return Ok(());
    }
    let (reading, bytes) = (file_needs(files, path)?, limit.bytes());
    let resident = Usage::read().map_or(0, |usage| usage.resident);
    let needed = Bytes(resident + reading);
    if needed <= bytes || reading <= SMALL_BYTES {
        return Ok(());
    }
    let hint = limit.hint(needed.0);
    let (needed, bytes) = Bytes::needed_of(needed, bytes);
    let message = format!(
        "{} does not fit into {bytes}: reading it needs {needed}",
        path.display()
    );
    Err(Failure::new(Code::Budget, message).hint(hint))
}

/// Where reading a tokenizer uses no more than that, it is not what a budget is too small for.
const SMALL_BYTES: u64 = 4 << 20;

/// What a command may use.
pub(crate) enum Limit {
    /// What `--memory`, or a run's settings, say.
    Budget(Bytes),
    /// What the machine or the container leaves a process, for a command without `--memory`.
    Process(Bytes),
}

impl Limit {
    /// What this process may have.
    pub(crate) fn of_process() -> Self {
        // Where the system does not say there is nothing to keep to.
        let bound = ProcessMemory::read().map_or(u64::MAX, |memory| memory.bound());
        Self::Process(Bytes(bound))
    }

    fn bytes(&self) -> Bytes {
        match *self {
            Self::Budget(bytes) | Self::Process(bytes) => bytes,
        }
    }

    fn hint(&self, needed: u64) -> String {
        let mebibytes = needed.div_ceil(1 << 20) + 1;
        match self {
            Self::Budget(_) => format!("use --memory {mebibytes}MiB or more"),
            Self::Process(_) => format!("raise the process's limit to {mebibytes} MiB or more"),
        }
    }
}

/// Bytes that reading a `tokenizer.json` uses at most: its text, and tables with an entry for each token and
/// each merge. Commas count those. The factors are from files of 30,000 to 260,000 tokens of each kind.
fn file_needs(files: &dyn Files, path: &Path) -> Result<u64, Failure> {
    const UNIGRAM: &[u8] = b"\"Unigram\"";
    let mut file = files.open(path)?;
    let bytes = file.bytes();
    let (mut commas, mut is_unigram, mut at) = (0, false, 0);
    // What was read before is kept as far as the word may begin there.
    let mut piece = Vec::new();
    while at < bytes {
        let kept = piece.len().min(UNIGRAM.len() - 1);
        piece.drain(..piece.len() - kept);
        let count = (bytes - at).min(1 << 16) as usize;
        piece.resize(kept + count, 0);
        file.read_exact_at(at, &mut piece[kept..])?;
        for &byte in &piece[kept..] {
            commas += u64::from(byte == b',');
        }
        is_unigram |= piece.windows(UNIGRAM.len()).any(|word| word == UNIGRAM);
        at += count as u64;
    }
    let each = if is_unigram { 640 } else { 360 };
    Ok(bytes + each * commas)
}
