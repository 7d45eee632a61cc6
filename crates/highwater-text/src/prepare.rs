//! From files of records to a file of rows: read, written as the model reads it, made tokens, and packed.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use highwater_memory::Files;
use highwater_models::Tokenizer;
use highwater_models::data::{PackedCounts, Packer, RowWriter};

use crate::records::{Record, Records};
use crate::{Document, Encoder, Example, FieldMap, Format, Place, Reader, TextError};

/// Records that are in memory at once, at most.
const AT_ONCE: usize = 256;
/// Bytes of text that they have together, about.
const BYTES_AT_ONCE: usize = 1 << 20;
/// A model of more tokens than this was made for a tokenizer.
const BYTES_VOCABULARY: u32 = 1024;

/// What is to be made of which records.
#[derive(Clone, Debug)]
pub struct Preparation<'a> {
    /// A file of records, or a folder of them.
    pub data: &'a Path,
    /// What fields are called.
    pub map: FieldMap,
    /// How many tokens the model has.
    pub vocab_size: u32,
    /// Tokens of a row.
    pub length: usize,
    /// Whether several records share a row.
    pub packing: bool,
    /// Whether records are to be pairs of answers.
    pub pairs: bool,
    /// Threads to make tokens with.
    pub threads: usize,
}

/// What was made.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    /// What records look like.
    pub format: Format,
    /// How much there is.
    pub counts: PackedCounts,
}

/// Makes rows of all records and writes them to a file, which has its name once it is whole.
///
/// # Errors
/// [`TextError`], naming the first record at fault.
pub fn prepare(
    files: &Arc<dyn Files>,
    encoder: &Encoder<'_>,
    preparation: &Preparation<'_>,
    out: &Path,
) -> Result<Prepared, TextError> {
    let mut examples = Examples::open(files, encoder, preparation)?;
    let mut writer = RowWriter::create(&**files, out)?;
    let mut packer = Packer::new(preparation.length, preparation.packing);
    let threads = preparation.threads.max(1);
    loop {
        let chunk = examples.chunk()?;
        if chunk.is_empty() {
            break;
        }
        let coder = examples.coder;
        let encode = |part: Vec<(Place, Example)>| {
            let encode = |(place, example): (Place, Example)| coder.encode(&place, &example);
            part.into_iter().map(encode).collect::<Vec<_>>()
        };
        let each = chunk.len().div_ceil(threads);
        let mut parts = split(chunk, each);
        let last = parts.pop().unwrap_or_default();
        let documents = thread::scope(|scope| {
            let encode = &encode;
            let started: Vec<_> = parts
                .into_iter()
                .map(|part| scope.spawn(move || encode(part)))
                .collect();
            let last = encode(last);
            let joined = started.into_iter().map(|thread| {
                // A panic goes on where the thread is waited for.
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            joined.chain(std::iter::once(last)).collect::<Vec<_>>()
        });
        for document in documents.into_iter().flatten() {
            match &document?[..] {
                [one] => {
                    let take = |row: &[_]| writer.row(row);
                    packer.add(&one.tokens, &one.learned, one.is_text, take)?;
                }
                [chosen, rejected] => {
                    let parts = [chosen, rejected].map(|it| (&it.tokens[..], &it.learned[..]));
                    packer.add_pair(parts, |row| writer.row(row))?;
                }
                _ => {}
            }
        }
    }
    let counts = packer.finish(|row| writer.row(row))?;
    if counts.rows == 0 {
        let problem = format!(
            "nothing would be learnt of any of its records in rows of {} tokens",
            preparation.length
        );
        let hint = "what is learnt of conversations are turns of the assistant, which may lie behind the end of a \
                    row: --seq; --loss-on all learns everything";
        return Err(TextError::bad(Place::of(preparation.data), problem).hinted(hint));
    }
    writer.finish(preparation.length, counts)?;
    Ok(Prepared {
        format: examples.format(),
        counts,
    })
}

fn split<T>(mut all: Vec<T>, each: usize) -> Vec<Vec<T>> {
    let mut parts = Vec::new();
    while all.len() > each {
        let rest = all.split_off(each);
        parts.push(std::mem::replace(&mut all, rest));
    }
    parts.push(all);
    parts
}

/// The examples of files, in order.
#[derive(Debug)]
pub struct Examples<'a> {
    records: Records,
    first: Option<Record>,
    reader: Reader,
    coder: Coder<'a>,
}

/// Makes the tokens of examples for a model.
#[derive(Clone, Copy, Debug)]
struct Coder<'a> {
    encoder: &'a Encoder<'a>,
    vocab_size: u32,
}

impl<'a> Examples<'a> {
    /// Opens files, and sees what their records look like.
    ///
    /// # Errors
    /// [`TextError`] where there are none, or the model cannot read such.
    pub fn open(
        files: &Arc<dyn Files>,
        encoder: &'a Encoder<'a>,
        preparation: &Preparation<'_>,
    ) -> Result<Self, TextError> {
        let mut records = Records::open(files.clone(), preparation.data)?;
        let first = records.next().ok_or_else(|| {
            TextError::bad(Place::of(preparation.data), "there is no record in it")
        })??;
        let has_template = encoder.template().is_some();
        let reader = Reader::detect(&first, preparation.map.clone(), has_template)?;
        let has_pairs = reader.format() == Format::Pairs;
        if has_pairs != preparation.pairs {
            let (problem, hint) = if has_pairs {
                (
                    "pairs of answers, of which one is preferred",
                    "say --preference dpo or --preference orpo to learn from them",
                )
            } else {
                (
                    "no pairs of answers, which --preference learns from",
                    "its records need chosen and rejected; leave out --preference to learn from others",
                )
            };
            return Err(TextError::bad(Place::of(preparation.data), problem).hinted(hint));
        }
        if reader.needs_template() && !has_template {
            return Err(crate::encode::no_template());
        }
        let by_bytes = matches!(encoder.tokenizer(), Tokenizer::Bytes);
        if by_bytes
            && preparation.vocab_size > BYTES_VOCABULARY
            && reader.format() != Format::Tokens
        {
            let problem = format!(
                "text needs the tokenizer of a model with {} tokens",
                preparation.vocab_size
            );
            let error = TextError::bad(Place::of(preparation.data), problem);
            return Err(error.hinted("say --tokenizer FILE, a tokenizer.json"));
        }
        Ok(Self {
            records,
            first: Some(first),
            reader,
            coder: Coder {
                encoder,
                vocab_size: preparation.vocab_size,
            },
        })
    }

    /// What records look like.
    pub fn format(&self) -> Format {
        self.reader.format()
    }

    /// Some examples, with where they are; none at the end.
    fn chunk(&mut self) -> Result<Vec<(Place, Example)>, TextError> {
        let mut chunk = Vec::new();
        let mut bytes = 0;
        while chunk.len() < AT_ONCE && bytes < BYTES_AT_ONCE {
            let Some((place, example)) = self.next().transpose()? else {
                break;
            };
            bytes += example.bytes();
            chunk.push((place, example));
        }
        Ok(chunk)
    }

    /// The tokens of an example; of a pair those of the chosen answer and of the rejected one.
    ///
    /// # Errors
    /// [`TextError`], naming the record.
    pub fn encode(&self, place: &Place, example: &Example) -> Result<Vec<Document>, TextError> {
        self.coder.encode(place, example)
    }
}

impl Coder<'_> {
    fn encode(self, place: &Place, example: &Example) -> Result<Vec<Document>, TextError> {
        let encoded = self.encoder.encode(example);
        let documents = encoded.map_err(|error| error.at(place))?;
        let mut tokens = documents.iter().flat_map(|document| &document.tokens);
        if let Some(token) = tokens.find(|token| **token >= self.vocab_size) {
            let problem = format!(
                "token {token}; the model has tokens 0 to {}",
                self.vocab_size - 1
            );
            let error = TextError::bad(place.clone(), problem);
            return Err(
                error.hinted("the tokens were made for another model, or with another tokenizer")
            );
        }
        Ok(documents)
    }
}

impl Iterator for Examples<'_> {
    type Item = Result<(Place, Example), TextError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = match self.first.take() {
            Some(first) => Ok(first),
            None => self.records.next()?,
        };
        Some(record.and_then(|record| {
            let place = record.place.clone();
            Ok((place, self.reader.read(record)?))
        }))
    }
}
