//! Where tokens come from.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use highwater_memory::Files;
use highwater_memory::saved::{Digest, Digester};

use super::folder::{self, Content};
use super::options::DataOptions;
use super::splits::{Parts, Reads};
use super::text::TextBytes;
use super::token_file::TokenFiles;
use super::{DataError, spool};
use crate::Tokenizer;

/// Text is turned into tokens through a buffer of so many bytes.
const WINDOW_BYTES: usize = 64 << 10;

/// A long sequence of tokens, of which only windows are ever in memory: 64 KiB for text, as much for a
/// file of tokens. Clones share it.
#[derive(Clone, Debug)]
pub struct Tokens {
    source: Arc<Mutex<Source>>,
    count: u64,
    /// Those to train on, where files say which the others are.
    train: Option<u64>,
    notes: Arc<[String]>,
}

/// So many files are described one by one.
const DESCRIBED: usize = 4;

#[derive(Debug)]
enum Source {
    Embedded(&'static [u8]),
    Text(TextBytes),
    Files(TokenFiles),
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

    /// The data at `path`: tokens where it ends in `.npy` or `.bin`, else text; or a folder of one of these, whose names
    /// may say what is held out. Files of tokens are read once from front to back to check them.
    ///
    /// # Errors
    /// [`DataError`], naming the file and, where one is at fault, the token.
    pub fn open(
        files: &Arc<dyn Files>,
        path: &Path,
        options: &DataOptions<'_>,
    ) -> Result<Self, DataError> {
        let parts = match folder::find(&**files, path, (options.held_out, options.reads))? {
            Content::Tokens(parts) => return Self::of_files(files, &parts, options),
            Content::Text(parts) => parts,
        };
        check_vocabulary(options.tokenizer.vocab_size(), options.vocab_size)?;
        if matches!(options.tokenizer, Tokenizer::Bytes) {
            let train = parts.train.iter().map(|file| file.1).sum();
            let all = parts.train.into_iter().chain(parts.held_out);
            let mut tokens = Self::new(Source::Text(TextBytes::new(files.clone(), all)));
            tokens.train = (train < tokens.count).then_some(train);
            return Ok(tokens);
        }
        if files.metadata(options.spool)?.is_none() {
            spool::write(files, parts, options)?;
        }
        Self::spooled(files, options.spool, options.vocab_size)
    }

    fn of_files(
        files: &Arc<dyn Files>,
        parts: &Parts,
        options: &DataOptions<'_>,
    ) -> Result<Self, DataError> {
        let all = [&parts.train[..], &parts.held_out].concat();
        let mut tokens = TokenFiles::open(files, &all, (options.width, options.vocab_size))?;
        tokens.check(options.progress)?;
        let train = tokens.tokens_of(parts.train.len());
        let mut notes: Vec<_> = (tokens.describe().take(DESCRIBED))
            .map(|(path, what)| format!("{}: {what}", path.display()))
            .collect();
        if all.len() > DESCRIBED {
            notes.push(format!("and {} files more", all.len() - DESCRIBED));
        }
        let mut tokens = Self::new(Source::Files(tokens));
        tokens.train = (train < tokens.count).then_some(train);
        tokens.notes = notes.into();
        Ok(tokens)
    }

    /// The files of the text at `path`, in their order.
    ///
    /// # Errors
    /// [`DataError`] where there is none.
    pub fn find_text(
        files: &dyn Files,
        path: &Path,
        held_out: Option<&Path>,
    ) -> Result<(), DataError> {
        folder::parts_of(files, path, (held_out, Reads::Training)).map(drop)
    }

    /// The tokens that [`Tokens::open`] made of a text, without the tokenizer.
    ///
    /// # Errors
    /// [`DataError`] for a file that is not what was written.
    pub fn spooled(
        files: &Arc<dyn Files>,
        spool: &Path,
        vocab_size: u32,
    ) -> Result<Self, DataError> {
        let width = spool::width(vocab_size);
        let (bytes, train) = spool::division(&**files, spool)?;
        let file = TokenFiles::open_raw(files, spool, bytes, (width, vocab_size))?;
        let mut tokens = Self::new(Source::Files(file));
        tokens.train = train;
        Ok(tokens)
    }

    /// What files hold, and how wide their tokens are, for people.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// How many tokens there are to train on, where files say what is held out.
    pub fn train(&self) -> Option<u64> {
        self.train
    }

    fn new(source: Source) -> Self {
        let count = match &source {
            Source::Embedded(text) => text.len() as u64,
            Source::Text(text) => text.bytes(),
            Source::Files(files) => files.tokens(),
        };
        Self {
            source: Arc::new(Mutex::new(source)),
            count,
            train: None,
            notes: Arc::new([]),
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
            Source::Files(files) => files.read(at, out),
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

    /// Divides the tokens into those to train on and those held out: as files say, or else a share from the end.
    ///
    /// # Errors
    /// [`DataError::TooShort`] where a share above 0 leaves no sequence of `seq` on either side.
    pub fn split(&self, held_out: f64, seq: usize) -> Result<(Range<u64>, Range<u64>), DataError> {
        let share = (self.count as f64 * held_out) as u64;
        let cut = self.train.unwrap_or(self.count.saturating_sub(share));
        let is_divided = self.train.is_some();
        let needed = seq as u64 + 1;
        let rest = match (is_divided, share) {
            (false, 1..) => "the training split has",
            _ => "the data has",
        };
        for (part, tokens, wanted) in [
            (rest, cut, true),
            (
                "the held-out split has",
                self.count - cut,
                held_out > 0.0 || is_divided,
            ),
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
