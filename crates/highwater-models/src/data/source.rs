//! Where tokens come from.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use highwater_memory::Files;
use highwater_memory::files::Draft;
use highwater_memory::saved::{Digest, Digester};

use super::DataError;
use super::text::{TextBytes, TextReader, is_token_file, text_files};
use super::token_file::{TokenFile, TokenWidth};
use crate::Tokenizer;

/// Text is turned into tokens through a buffer of so many bytes.
const WINDOW_BYTES: usize = 64 << 10;

/// What opening data needs to know besides the path.
#[derive(Debug)]
pub struct DataOptions<'a> {
    /// How text becomes tokens.
    pub tokenizer: &'a Tokenizer,
    /// Number of tokens that the model has.
    pub vocab_size: u32,
    /// How wide the tokens of a headerless `.bin` are.
    pub width: TokenWidth,
    /// Where the tokens of text go when a `tokenizer.json` makes them. What is there already is
    /// taken as it is, so that a resumed run has the tokens that it started with.
    pub spool: &'a Path,
}

/// A long sequence of tokens, of which only windows are ever in memory: 64 KiB for text, as much for a
/// file of tokens. Clones share it.
#[derive(Clone, Debug)]
pub struct Tokens {
    source: Arc<Mutex<Source>>,
    count: u64,
}

#[derive(Debug)]
enum Source {
    Embedded(&'static [u8]),
    Text(TextBytes),
    File(TokenFile),
}

impl Tokens {
    /// The bytes of a text that is part of the program.
    ///
    /// # Errors
    /// [`DataError::Vocabulary`] for a model of fewer than 256 tokens.
    pub fn embedded(text: &'static str, vocab_size: u32) -> Result<Self, DataError> {
        check_vocabulary(256, vocab_size)?;
        Ok(Self::new(Source::Embedded(text.as_bytes())))
    }

    /// The data at `path`: tokens where it ends in `.npy` or `.bin`, else text, or a folder of text.
    /// Files of tokens are read once from front to back to check them.
    ///
    /// # Errors
    /// [`DataError`], naming the file and, where one is at fault, the token.
    pub fn open(
        files: &Arc<dyn Files>,
        path: &Path,
        options: &DataOptions<'_>,
    ) -> Result<Self, DataError> {
        let found = files.metadata(path)?.ok_or_else(|| DataError::Missing {
            path: path.to_owned(),
        })?;
        if !found.is_dir && is_token_file(path) {
            let mut file = TokenFile::open(&**files, path, options.width, options.vocab_size)?;
            file.check()?;
            return Ok(Self::new(Source::File(file)));
        }
        check_vocabulary(options.tokenizer.vocab_size(), options.vocab_size)?;
        let text = TextBytes::new(files.clone(), text_files(&**files, path)?);
        if matches!(options.tokenizer, Tokenizer::Bytes) {
            return Ok(Self::new(Source::Text(text)));
        }
        if files.metadata(options.spool)?.is_none() {
            spool(&**files, text, options, spool_width(options.vocab_size))?;
        }
        Self::spooled(&**files, options.spool, options.vocab_size)
    }

    /// The files of the text at `path`, in their order.
    ///
    /// # Errors
    /// [`DataError`] where there is none.
    pub fn text_files(files: &dyn Files, path: &Path) -> Result<Vec<PathBuf>, DataError> {
        let found = text_files(files, path)?;
        Ok(found.into_iter().map(|(path, _)| path).collect())
    }

    /// The tokens that [`Tokens::open`] made of a text, without the tokenizer.
    ///
    /// # Errors
    /// [`DataError`] for a file that is not what was written.
    pub fn spooled(files: &dyn Files, spool: &Path, vocab_size: u32) -> Result<Self, DataError> {
        let file = TokenFile::open_raw(files, spool, spool_width(vocab_size), vocab_size)?;
        Ok(Self::new(Source::File(file)))
    }

    fn new(source: Source) -> Self {
        let count = match &source {
            Source::Embedded(text) => text.len() as u64,
            Source::Text(text) => text.bytes(),
            Source::File(file) => file.tokens(),
        };
        Self {
            source: Arc::new(Mutex::new(source)),
            count,
        }
    }

    /// How many tokens there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Fills the buffer from token `at` on.
    ///
    /// # Errors
    /// [`DataError`] when reading fails, when the file has shrunk or got other tokens since it was
    /// opened, and for what is behind the end.
    pub fn read(&self, at: u64, out: &mut [u32]) -> Result<(), DataError> {
        let end = at.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.count) {
            return Err(DataError::Cursor {
                position: at,
                end: self.count,
            });
        }
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *source {
            Source::Embedded(text) => {
                let text = &text[at as usize..];
                let bytes = text.iter().copied();
                out.iter_mut()
                    .zip(bytes)
                    .for_each(|(out, b)| *out = b.into());
                Ok(())
            }
            Source::Text(text) => read_bytes(text, at, out),
            Source::File(file) => file.read(at, out),
        }
    }

    /// What the tokens are known by, each as four bytes, the lowest first. Reads all of them.
    ///
    /// # Errors
    /// As [`Tokens::read`].
    pub fn digest(&self) -> Result<Digest, DataError> {
        let (mut digester, mut at) = (Digester::default(), 0);
        let mut tokens = vec![0; WINDOW_BYTES / 4];
        let mut bytes = Vec::with_capacity(WINDOW_BYTES);
        while at < self.count {
            let now = (self.count - at).min(tokens.len() as u64);
            let window = &mut tokens[..now as usize];
            self.read(at, window)?;
            bytes.clear();
            bytes.extend(window.iter().flat_map(|token| token.to_le_bytes()));
            digester.update(&bytes);
            at += now;
        }
        Ok(digester.finish())
    }

    /// Divides the tokens into those to train on and, from the end, a share that is held out.
    ///
    /// # Errors
    /// [`DataError::TooShort`] where a share above 0 leaves no sequence of `seq` on either side.
    pub fn split(&self, held_out: f64, seq: usize) -> Result<(Range<u64>, Range<u64>), DataError> {
        let share = (self.count as f64 * held_out) as u64;
        let cut = self.count.saturating_sub(share);
        let needed = seq as u64 + 1;
        let rest = if share > 0 {
            "outside the held-out share there are"
        } else {
            "there are"
        };
        for (part, tokens, wanted) in [
            (rest, cut, true),
            ("the held-out share has", self.count - cut, held_out > 0.0),
        ] {
            if wanted && tokens < needed {
                return Err(DataError::TooShort {
                    part,
                    tokens,
                    needs: "a sequence needs",
                    needed,
                });
            }
        }
        Ok((0..cut, cut..self.count))
    }
}

/// How wide the tokens of a spool file are.
fn spool_width(vocab_size: u32) -> TokenWidth {
    match vocab_size {
        0..=0x1_0000 => TokenWidth::U16,
        _ => TokenWidth::U32,
    }
}

fn check_vocabulary(tokenizer: usize, model: u32) -> Result<(), DataError> {
    if tokenizer <= model as usize {
        return Ok(());
    }
    Err(DataError::Vocabulary { tokenizer, model })
}

fn read_bytes(text: &mut TextBytes, mut at: u64, out: &mut [u32]) -> Result<(), DataError> {
    let mut window = vec![0; WINDOW_BYTES.min(out.len())];
    for piece in out.chunks_mut(WINDOW_BYTES) {
        let bytes = &mut window[..piece.len()];
        text.read(at, bytes)?;
        piece
            .iter_mut()
            .zip(bytes)
            .for_each(|(out, b)| *out = u32::from(*b));
        at += piece.len() as u64;
    }
    Ok(())
}

/// Writes the tokens of a text to the spool file, which gets its name only once it is whole.
fn spool(
    files: &dyn Files,
    text: TextBytes,
    options: &DataOptions<'_>,
    width: TokenWidth,
) -> Result<(), DataError> {
    let (draft, mut file) = Draft::file(files, options.spool)?;
    let (mut bytes, mut index) = (Vec::new(), 0);
    let mut reader = TextReader { text, at: 0 };
    options.tokenizer.encode_stream(&mut reader, |tokens| {
        bytes.clear();
        for &token in tokens {
            if token >= options.vocab_size {
                return Err(DataError::Token {
                    path: options.spool.to_owned(),
                    index,
                    token: i64::from(token),
                    vocab_size: options.vocab_size,
                });
            }
            match width {
                TokenWidth::U16 => bytes.extend((token as u16).to_le_bytes()),
                TokenWidth::U32 => bytes.extend(token.to_le_bytes()),
            }
            index += 1;
        }
        Ok(file.write_all(&bytes)?)
    })?;
    file.sync_all()?;
    drop(file);
    Ok(draft.persist()?)
}
