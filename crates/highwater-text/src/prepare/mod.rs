//! From files of records to a file of rows: read, written as the model reads it, made tokens, and packed.

mod encode;

pub use encode::{Document, Encoder, Learn, endless_turns};

use std::path::Path;
use std::sync::Arc;
use std::thread;

use highwater_memory::Files;

use crate::data::{Found, PackedCounts, Packer, Progress, Reads, RowWriter};
use crate::error::{Place, TextError};
use crate::example::{Example, FieldMap, Format, Reader, Unread};
use crate::prepare::encode::no_template;
use crate::records::{Record, Records, record_parts};
use crate::tokenizer::Tokenizer;

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
    /// A file or folder that is held out, instead of what a folder of data has for that.
    pub held_out: Option<&'a Path>,
    /// What the data is read for.
    pub reads: Reads,
    /// Who is told how far it is.
    pub progress: Progress<'a>,
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
#[derive(Clone, Debug)]
pub struct Prepared {
    /// What records look like.
    pub format: Format,
    /// How much there is.
    pub counts: PackedCounts,
    /// Turns of the assistant that no token ends.
    pub endless: u64,
    /// How much of it is held out besides, where files say so.
    pub held_out: Option<PackedCounts>,
    /// What of the records was not read.
    pub unread: Unread,
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
    let ways = (preparation.held_out, preparation.reads);
    let parts = record_parts(&**files, preparation.data, ways)?;
    let of = parts.bytes();
    let mut writer = RowWriter::create(&**files, out)?;
    let mut examples = Examples::of(files, encoder, preparation, parts.train)?;
    let mut pack = |examples: &mut Examples<'_>, before: u64| {
        let tell = |done: u64| preparation.progress.tell(before + done, of);
        pack(examples, preparation, &mut writer, &tell)
    };
    let (counts, mut endless) = pack(&mut examples, 0)?;
    let mut held_out = None;
    if !parts.held_out.is_empty() {
        let before = examples.records.bytes();
        let mut others = examples.others(files, preparation.data, parts.held_out);
        let (counts, more) = pack(&mut others, before)?;
        held_out = Some(counts);
        endless += more;
        examples.unread = others.unread;
    }
    writer.finish(preparation.length, counts, held_out)?;
    Ok(Prepared {
        format: examples.format(),
        counts,
        endless,
        held_out,
        unread: examples.unread,
    })
}

/// Makes rows of some examples.
fn pack(
    examples: &mut Examples<'_>,
    preparation: &Preparation<'_>,
    writer: &mut RowWriter<'_>,
    tell: &dyn Fn(u64),
) -> Result<(PackedCounts, u64), TextError> {
    let mut packer = Packer::new(preparation.length, preparation.packing);
    let threads = preparation.threads.max(1);
    let mut endless = 0;
    loop {
        let chunk = examples.chunk()?;
        if chunk.is_empty() {
            break;
        }
        let documents = encode(examples.coder, chunk, threads);
        for document in documents.into_iter().flatten() {
            let documents = document?;
            endless += documents.iter().map(|it| it.endless as u64).sum::<u64>();
            match &documents[..] {
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
        tell(examples.records.bytes_read());
    }
    let counts = packer.finish(|row| writer.row(row))?;
    if counts.rows == 0 {
        let problem = format!(
            "the loss would be computed on no token of its examples, in rows of {} tokens",
            preparation.length
        );
        let hint = "the loss is computed on assistant turns, which may be behind the end of a row: use a larger \
        --seq, or --loss-on all";
        return Err(TextError::bad(examples.place.clone(), problem).hinted(hint));
    }
    Ok((counts, endless))
}

/// The tokens of some examples, made by several threads, in order.
fn encode(
    coder: Coder<'_>,
    chunk: Vec<(Place, Example)>,
    threads: usize,
) -> Vec<Vec<Result<Vec<Document>, TextError>>> {
    let encode = |part: Vec<(Place, Example)>| {
        let encode = |(place, example): (Place, Example)| coder.encode(&place, &example);
        part.into_iter().map(encode).collect::<Vec<_>>()
    };
    let each = chunk.len().div_ceil(threads);
    let mut parts = split(chunk, each);
    let last = parts.pop().unwrap_or_default();
    thread::scope(|scope| {
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
        joined.chain(std::iter::once(last)).collect()
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
    unread: Unread,
    /// The data as a whole.
    place: Place,
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
        let ways = (preparation.held_out, preparation.reads);
        let parts = record_parts(&**files, preparation.data, ways)?;
        Self::of(files, encoder, preparation, parts.train)
    }

    fn of(
        files: &Arc<dyn Files>,
        encoder: &'a Encoder<'a>,
        preparation: &Preparation<'_>,
        found: Vec<Found>,
    ) -> Result<Self, TextError> {
        let mut records = Records::of(files.clone(), preparation.data, found);
        let first = records.next().ok_or_else(|| {
            TextError::bad(Place::of(preparation.data), "there is no example in it")
        })??;
        let has_template = encoder.template().is_some();
        let reader = Reader::detect(&first, preparation.map.clone(), has_template)?;
        let has_pairs = reader.format() == Format::Pairs;
        if has_pairs != preparation.pairs {
            let (problem, hint) = if has_pairs {
                (
                    "preference pairs, which need --preference",
                    "use `highwater train` with --preference dpo or --preference orpo",
                )
            } else {
                (
                    "no preference pairs, which --preference needs",
                    "each example needs the fields chosen and rejected; other formats can be used without --preference",
                )
            };
            return Err(TextError::bad(Place::of(preparation.data), problem).hinted(hint));
        }
        let by_bytes = matches!(encoder.tokenizer(), Tokenizer::Bytes);
        if by_bytes
            && preparation.vocab_size > BYTES_VOCABULARY
            && reader.format() != Format::Tokens
        {
            let problem = format!(
                "text needs a tokenizer, because the model has a vocabulary of {} tokens",
                preparation.vocab_size
            );
            let error = TextError::bad(Place::of(preparation.data), problem);
            return Err(error.hinted("use --tokenizer FILE with a tokenizer.json"));
        }
        if reader.needs_template() && !has_template {
            return Err(no_template(by_bytes));
        }
        Ok(Self {
            records,
            first: Some(first),
            reader,
            coder: Coder {
                encoder,
                vocab_size: preparation.vocab_size,
            },
            unread: Unread::default(),
            place: Place::of(preparation.data),
        })
    }

    /// Those of other files, which look like these.
    fn others(&mut self, files: &Arc<dyn Files>, path: &Path, found: Vec<Found>) -> Self {
        let place = match &found[..] {
            [(alone, _)] => Place::of(alone),
            _ => Place::of(path),
        };
        Self {
            records: Records::of(files.clone(), path, found),
            first: None,
            reader: self.reader.clone(),
            coder: self.coder,
            unread: std::mem::take(&mut self.unread),
            place,
        }
    }

    /// What of the records so far is not read.
    pub fn unread(&self) -> &Unread {
        &self.unread
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
                error.hinted("use the tokenizer of this model, or data that was tokenized with it")
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
            let template = self.coder.encoder.template();
            self.reader
                .count_unread(&record, &mut self.unread, template);
            Ok((place, self.reader.read(record)?))
        }))
    }
}
