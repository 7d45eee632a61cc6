//! Text to tokens and back: bytes, or a Hugging Face `tokenizer.json`.

use std::cell::Cell;
use std::io::{self, Read};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;

use highwater_memory::{Files, FilesError};
use tokenizers::ModelWrapper;

/// The largest `tokenizer.json` that is read, in bytes.
pub const TOKENIZER_BYTES_MAX: u64 = 64 << 20;
/// Text is tokenised in pieces of at most so many bytes.
pub const PIECE_BYTES: usize = 64 << 10;

/// What can go wrong between text and tokens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The file cannot be read.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The file is too large to be a tokenizer.
    #[error("{}: {bytes} bytes; a tokenizer has at most {TOKENIZER_BYTES_MAX}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// The file is no tokenizer.
    #[error("{}: not a tokenizer: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        problem: String,
    },
    /// The tokenizer draws its tokens.
    #[error("{}: the tokens of a text are drawn (\"dropout\": {dropout}), so they are others each time", path.display())]
    Draws {
        /// The file.
        path: PathBuf,
        /// The share of merges that BPE leaves out.
        dropout: f32,
    },
    /// The tokenizer failed on a text or on tokens.
    #[error("the tokenizer failed: {problem}")]
    Failed {
        /// What it says.
        problem: String,
    },
    /// The text cannot be read.
    #[error("{0}")]
    Text(#[from] io::Error),
    /// The text is not UTF-8, which every tokenizer but the byte-level one needs.
    #[error("the text is not UTF-8 at byte {at}")]
    NotUtf8 {
        /// Where the first byte at fault is.
        at: u64,
    },
}

/// How text becomes tokens.
#[derive(Debug)]
pub enum Tokenizer {
    /// Each byte is a token, 0 to 255.
    Bytes,
    /// A `tokenizer.json`.
    HuggingFace(Box<tokenizers::Tokenizer>),
}

/// The share of merges that a model of BPE leaves out at random.
fn dropout_of(tokenizer: &tokenizers::Tokenizer) -> f32 {
    match tokenizer.get_model() {
        ModelWrapper::BPE(bpe) => bpe.dropout.unwrap_or(0.0),
        _ => 0.0,
    }
}

impl Tokenizer {
    /// Reads a `tokenizer.json`. Truncation and padding that it asks for are left out; one whose BPE has dropout is
    /// refused.
    ///
    /// # Errors
    /// [`TokenizerError`], also where the file would make the parser panic.
    pub fn load(files: &dyn Files, path: &Path) -> Result<Self, TokenizerError> {
        let mut file = files.open(path)?;
        let bytes = file.bytes();
        if bytes > TOKENIZER_BYTES_MAX {
            return Err(TokenizerError::TooLarge {
                path: path.to_owned(),
                bytes,
            });
        }
        let mut json = vec![0; bytes as usize];
        file.read_exact_at(0, &mut json)?;
        let parse = || {
            let mut tokenizer = tokenizers::Tokenizer::from_bytes(&json)?;
            tokenizer.with_truncation(None)?.with_padding(None);
            Ok(tokenizer)
        };
        match guarded(parse) {
            Ok(tokenizer) if dropout_of(&tokenizer) > 0.0 => Err(TokenizerError::Draws {
                path: path.to_owned(),
                dropout: dropout_of(&tokenizer),
            }),
            Ok(tokenizer) => Ok(Self::HuggingFace(Box::new(tokenizer))),
            Err(problem) => Err(TokenizerError::Malformed {
                path: path.to_owned(),
                problem: in_words(problem),
            }),
        }
    }

    /// Number of tokens.
    pub fn vocab_size(&self) -> usize {
        match self {
            Self::Bytes => 256,
            Self::HuggingFace(tokenizer) => tokenizer.get_vocab_size(true),
        }
    }

    /// The tokens of a text. Adds no token that begins or ends it.
    ///
    /// # Errors
    /// [`TokenizerError::Failed`].
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut tokens = Vec::new();
        self.encode_stream(&mut text.as_bytes(), |piece| {
            tokens.extend_from_slice(piece);
            Ok::<_, TokenizerError>(())
        })?;
        Ok(tokens)
    }

    /// Hands the tokens of a text to `take`, piece by piece, so that a text of any length needs the
    /// memory of [`PIECE_BYTES`] of it.
    ///
    /// Pieces end between a letter or digit and white space. Byte-level BPE (GPT-2's and what came
    /// after) divides text there anyway, so its tokens are those of the whole text; a tokenizer that
    /// treats the start of a text apart does so with each piece. Where the pieces end is a matter of
    /// the text alone.
    ///
    /// # Errors
    /// [`TokenizerError`] as `E`, and what `take` returns.
    pub fn encode_stream<E: From<TokenizerError>>(
        &self,
        text: &mut dyn Read,
        mut take: impl FnMut(&[u32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffer = vec![0; PIECE_BYTES];
        let (mut filled, mut at) = (0, 0_u64);
        let mut tokens = Vec::new();
        loop {
            filled += fill(text, &mut buffer[filled..]).map_err(TokenizerError::from)?;
            if filled == 0 {
                return Ok(());
            }
            let end = match self {
                Self::HuggingFace(_) if filled == buffer.len() => piece_end(&buffer),
                _ => filled,
            };
            tokens.clear();
            self.encode_piece(&buffer[..end], at, &mut tokens)?;
            take(&tokens)?;
            buffer.copy_within(end..filled, 0);
            filled -= end;
            at += end as u64;
        }
    }

    fn encode_piece(
        &self,
        piece: &[u8],
        at: u64,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        match self {
            Self::Bytes => out.extend(piece.iter().copied().map(u32::from)),
            Self::HuggingFace(tokenizer) => {
                let text = std::str::from_utf8(piece).map_err(|e| TokenizerError::NotUtf8 {
                    at: at + e.valid_up_to() as u64,
                })?;
                let encoding = guarded(|| tokenizer.encode_fast(text, false))
                    .map_err(|problem| TokenizerError::Failed { problem })?;
                out.extend_from_slice(encoding.get_ids());
            }
        }
        Ok(())
    }

    /// The tokens of a text, each with the bytes of the text that it stands for: none for one that stands for no
    /// text. Long texts are taken in pieces, as [`Tokenizer::encode_stream`] takes them.
    ///
    /// # Errors
    /// [`TokenizerError::Failed`].
    pub fn encode_with_offsets(
        &self,
        text: &str,
        mut take: impl FnMut(u32, Range<usize>),
    ) -> Result<(), TokenizerError> {
        let Self::HuggingFace(tokenizer) = self else {
            let bytes = text.bytes().enumerate();
            bytes.for_each(|(at, byte)| take(byte.into(), at..at + 1));
            return Ok(());
        };
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let end = match rest.as_bytes().get(..PIECE_BYTES) {
                Some(full) => at + piece_end(full),
                None => text.len(),
            };
            let encoding = guarded(|| tokenizer.encode(&text[at..end], false))
                .map_err(|problem| TokenizerError::Failed { problem })?;
            for (&token, &(start, end)) in encoding.get_ids().iter().zip(encoding.get_offsets()) {
                take(token, at + start..at + end);
            }
            at = end;
        }
        Ok(())
    }

    /// The number of a token, such as a special one.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        match self {
            Self::Bytes => None,
            Self::HuggingFace(tokenizer) => tokenizer.token_to_id(token),
        }
    }

    /// Whether a token stands for itself, and for no text.
    pub fn is_special(&self, token: u32) -> bool {
        match self {
            Self::Bytes => false,
            Self::HuggingFace(tokenizer) => tokenizer
                .get_added_tokens_decoder()
                .get(&token)
                .is_some_and(|added| added.special),
        }
    }

    /// The tokens that begin each text, where there are some: those that a `tokenizer.json` adds before it.
    ///
    /// # Errors
    /// [`TokenizerError::Failed`].
    pub fn before_texts(&self) -> Result<Vec<u32>, TokenizerError> {
        let Self::HuggingFace(tokenizer) = self else {
            return Ok(Vec::new());
        };
        let encode = |special| {
            let encoding = guarded(|| tokenizer.encode_fast("a", special));
            encoding.map_err(|problem| TokenizerError::Failed { problem })
        };
        let (mut with, without) = (encode(true)?.get_ids().to_vec(), encode(false)?);
        let start = without.get_ids();
        let before = with
            .windows(start.len().max(1))
            .position(|part| part == start);
        with.truncate(before.unwrap_or(0));
        Ok(with)
    }

    /// The text of tokens. Bytes that are no UTF-8 become U+FFFD; unknown tokens are left out.
    ///
    /// # Errors
    /// [`TokenizerError::Failed`].
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TokenizerError> {
        match self {
            Self::Bytes => {
                let bytes = tokens.iter().filter_map(|&token| u8::try_from(token).ok());
                Ok(String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned())
            }
            Self::HuggingFace(tokenizer) => guarded(|| tokenizer.decode(tokens, false))
                .map_err(|problem| TokenizerError::Failed { problem }),
        }
    }
}

/// Reads until the buffer is full or the text ends; says how much.
fn fill(text: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match text.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Where a piece that fills `buffer` ends: the last good place in its second half, or else the start
/// of its last character.
fn piece_end(buffer: &[u8]) -> usize {
    let half = buffer.len() / 2;
    let ends = |good: fn(u8, u8) -> bool| {
        let mut places = (half..buffer.len()).rev();
        places.find(|&i| good(buffer[i - 1], buffer[i]))
    };
    ends(|before, after| before.is_ascii_alphanumeric() && after.is_ascii_whitespace())
        // Most likely a letter of another script.
        .or_else(|| ends(|before, after| before >= 0x80 && after.is_ascii_whitespace()))
        .or_else(|| ends(|_, after| after & 0xC0 != 0x80))
        .unwrap_or(buffer.len())
}

thread_local! {
    /// Whether a panic of this thread is caught and told as an error.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a part of a library that panics on some files, and makes an error's text of whatever goes
/// wrong. The panic prints nothing.
///
/// # Errors
/// What `work` says, or the text of the panic.
pub fn guarded<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                loud(panic);
            }
        }));
    });
    GUARDED.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(false);
    match result {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => Err(match panic.downcast_ref::<String>() {
            Some(text) => text.clone(),
            None => match panic.downcast_ref::<&str>() {
                Some(text) => (*text).to_owned(),
                None => "it panicked".to_owned(),
            },
        }),
    }
}

/// What the parser says, without the names of its own code.
fn in_words(problem: String) -> String {
    if problem.contains("untagged enum") {
        return "not a tokenizer.json of the tokenizers library".to_owned();
    }
    problem
}

#[cfg(test)]
#[path = "tokenizer_tests.rs"]
mod tests;
