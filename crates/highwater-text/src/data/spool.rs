//! The file that the tokens of a text go to: numbers of 16 or 32 bits, those to train on first. Where files say what is
//! held out, a mark and how many are trained on stand behind the last.

use std::path::Path;
use std::sync::Arc;

use highwater_memory::files::Draft;
use highwater_memory::{FileWrite, Files};

use super::DataError;
use super::options::DataOptions;
use super::splits::{Found, Parts};
use super::text::{TextBytes, TextReader};
use super::token_format::TokenWidth;
use crate::TokenizerError;

/// What stands behind tokens that are divided.
const MARK: [u8; 8] = *b"hw-parts";
/// Bytes of it, and of the number behind it.
const END_BYTES: u64 = 16;

/// How wide the tokens of a model are there.
pub(super) fn width(vocab_size: u32) -> TokenWidth {
    match vocab_size {
        0..=0x1_0000 => TokenWidth::U16,
        _ => TokenWidth::U32,
    }
}

/// Bytes of tokens in a file, and how many tokens are trained on if it says so.
pub(super) fn division(files: &dyn Files, path: &Path) -> Result<(u64, Option<u64>), DataError> {
    let mut file = files.open(path)?;
    let all = file.bytes();
    let Some(bytes) = all.checked_sub(END_BYTES) else {
        return Ok((all, None));
    };
    let mut end = [0; END_BYTES as usize];
    file.read_exact_at(bytes, &mut end)?;
    let [mark, number] = end.as_chunks::<8>().0 else {
        return Ok((all, None));
    };
    Ok(if *mark == MARK {
        (bytes, Some(u64::from_le_bytes(*number)))
    } else {
        (all, None)
    })
}

/// Writes the tokens of texts to a file, which gets its name only once it is whole.
pub(super) fn write(
    files: &Arc<dyn Files>,
    parts: Parts,
    options: &DataOptions<'_>,
) -> Result<(), DataError> {
    let (draft, file) = Draft::file(&**files, options.spool)?;
    let mut out = Out {
        file,
        options,
        written: 0,
        done: 0,
        of: parts.bytes(),
    };
    let is_divided = !parts.held_out.is_empty();
    out.add(files, parts.train)?;
    if is_divided {
        let train = out.written;
        out.add(files, parts.held_out)?;
        out.file.write_all(&[MARK, train.to_le_bytes()].concat())?;
    }
    out.file.sync_all()?;
    drop(out.file);
    Ok(draft.persist()?)
}

struct Out<'a> {
    file: Box<dyn FileWrite>,
    options: &'a DataOptions<'a>,
    /// Tokens in the file.
    written: u64,
    /// Bytes of text that are done, and of all.
    done: u64,
    of: u64,
}

impl Out<'_> {
    fn add(&mut self, files: &Arc<dyn Files>, parts: Vec<Found>) -> Result<(), DataError> {
        let places = parts.clone();
        let text = TextBytes::new(Arc::clone(files), parts);
        let mut bytes = Vec::new();
        let width = width(self.options.vocab_size);
        let before = self.done;
        let mut reader = TextReader::new(text);
        let read = reader.counter();
        let encoded = self.options.tokenizer.encode_stream(&mut reader, |tokens| {
            bytes.clear();
            for &token in tokens {
                if token >= self.options.vocab_size {
                    return Err(DataError::Token {
                        path: self.options.spool.to_owned(),
                        index: self.written,
                        token: token.into(),
                        vocab_size: self.options.vocab_size,
                    });
                }
                match width {
                    TokenWidth::U16 => bytes.extend((token as u16).to_le_bytes()),
                    TokenWidth::U32 => bytes.extend(token.to_le_bytes()),
                }
                self.written += 1;
            }
            self.file.write_all(&bytes)?;
            self.done = before + read.get();
            self.options.progress.tell(self.done, self.of);
            Ok::<_, DataError>(())
        });
        encoded.map_err(|error| in_file(error, &places))
    }
}

/// An error with the file that it is about, where it is one of the text.
fn in_file(error: DataError, parts: &[Found]) -> DataError {
    let DataError::Tokenizer(TokenizerError::NotUtf8 { at }) = error else {
        return error;
    };
    let mut start = 0;
    for (path, bytes) in parts {
        if at < start + bytes {
            return DataError::Format {
                path: path.clone(),
                problem: format!(
                    "not UTF-8 at byte {}; convert it, for example with `iconv -f LATIN1 -t UTF-8`",
                    at - start
                ),
            };
        }
        start += bytes;
    }
    error
}
