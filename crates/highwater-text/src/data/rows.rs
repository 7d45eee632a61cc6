//! Files of rows of packed documents, and batches of them.
//!
//! A row is `length` numbers of 32 bits, the lowest byte first, of one [`Entry`] each. Behind the last row are nine
//! numbers of 64 bits: a mark, the length of rows, and what [`PackedCounts`] counts. Where the files of the data say
//! what is held out, its rows come after the others, and before those nine numbers stand eight: another mark, and what
//! [`PackedCounts`] counts of the rows that are held out.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use highwater_memory::files::Draft;
use highwater_memory::saved::{Digest, Digester};
use highwater_memory::{FileRead, FileWrite, Files};

use super::packing::{DOCUMENTS_MAX, Entry, PackedCounts};
use super::{BatchShape, Cursor, DataError, Order};

/// What such a file ends with: the first of the numbers.
const MARK: u64 = u64::from_le_bytes(*b"hw-rows1");
/// Numbers at the end of a file.
const NUMBERS: usize = 9;
/// What the numbers of rows that are held out begin with, and how many they are.
const HELD_OUT: u64 = u64::from_le_bytes(*b"hw-held1");
const HELD_OUT_NUMBERS: usize = 8;

/// What is left out of a loss.
pub const IGNORED: i64 = -100;

/// Writes rows, under another name until they are whole.
#[derive(Debug)]
pub struct RowWriter<'a> {
    draft: Draft<'a>,
    file: Box<dyn FileWrite>,
    bytes: Vec<u8>,
}

impl<'a> RowWriter<'a> {
    /// A writer of a file.
    ///
    /// # Errors
    /// As the system says.
    pub fn create(files: &'a dyn Files, path: &Path) -> Result<Self, DataError> {
        let (draft, file) = Draft::file(files, path)?;
        Ok(Self {
            draft,
            file,
            bytes: Vec::new(),
        })
    }

    /// Writes a row.
    ///
    /// # Errors
    /// As the system says.
    pub fn row(&mut self, row: &[Entry]) -> Result<(), DataError> {
        self.bytes.clear();
        let bytes = row.iter().flat_map(|entry| entry.0.to_le_bytes());
        self.bytes.extend(bytes);
        Ok(self.file.write_all(&self.bytes)?)
    }

    /// Writes what was packed into rows of `length`, and how many of the last are held out, and gives the file its
    /// name.
    ///
    /// # Errors
    /// As the system says.
    pub fn finish(
        mut self,
        length: usize,
        packed: PackedCounts,
        held_out: Option<PackedCounts>,
    ) -> Result<(), DataError> {
        let held_out = held_out.into_iter().flat_map(|held_out| {
            let counts = numbers_of(held_out).into_iter();
            std::iter::once(HELD_OUT).chain(counts)
        });
        let packed = [MARK, length as u64].into_iter().chain(numbers_of(packed));
        let numbers = held_out.chain(packed);
        let bytes: Vec<_> = numbers.flat_map(u64::to_le_bytes).collect();
        self.file.write_all(&bytes)?;
        self.file.sync_all()?;
        drop(self.file);
        Ok(self.draft.persist()?)
    }
}

fn numbers_of(packed: PackedCounts) -> [u64; NUMBERS - 2] {
    [
        packed.rows,
        packed.documents,
        packed.tokens,
        packed.learned,
        packed.cut,
        packed.cut_tokens,
        packed.left_out,
    ]
}

fn counts_of(
    [rows, documents, tokens, learned, cut, cut_tokens, left_out]: [u64; 7],
) -> PackedCounts {
    PackedCounts {
        rows,
        documents,
        tokens,
        learned,
        cut,
        cut_tokens,
        left_out,
    }
}

/// The numbers that end at a byte of a file; none where it has no room for them.
fn read_numbers<const N: usize>(
    file: &mut dyn FileRead,
    end: u64,
) -> Result<Option<([u64; N], u64)>, DataError> {
    let Some(at) = end.checked_sub(8 * N as u64) else {
        return Ok(None);
    };
    let mut bytes = vec![0; 8 * N];
    file.read_exact_at(at, &mut bytes)?;
    let mut numbers = [0; N];
    for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks().0) {
        *number = u64::from_le_bytes(*bytes);
    }
    Ok(Some((numbers, at)))
}

/// Rows of packed documents, of which one at a time is in memory. Clones share them.
#[derive(Clone, Debug)]
pub struct Rows {
    file: Arc<Mutex<Box<dyn FileRead>>>,
    path: PathBuf,
    length: usize,
    vocab_size: u32,
    packed: PackedCounts,
    held_out: Option<PackedCounts>,
}

impl Rows {
    /// Opens a file that [`RowWriter`] wrote.
    ///
    /// # Errors
    /// [`DataError::Format`] for another file; [`DataError::Empty`] for one without rows.
    pub fn open(files: &dyn Files, path: &Path, vocab_size: u32) -> Result<Self, DataError> {
        let mut file = files.open(path)?;
        let format = |problem: &str| DataError::Format {
            path: path.to_owned(),
            problem: problem.to_owned(),
        };
        let end = file.bytes();
        let (numbers, at) = read_numbers::<NUMBERS>(file.as_mut(), end)?
            .ok_or_else(|| format("too short for a file of packed documents"))?;
        let [mark, length, counts @ ..] = numbers;
        if mark != MARK {
            return Err(format("not a file of packed documents"));
        }
        let packed = counts_of(counts);
        let bytes = |rows: u64| rows.checked_mul(length).and_then(|n| n.checked_mul(4));
        let mut held_out = None;
        if bytes(packed.rows) != Some(at) || length == 0 {
            let found = read_numbers::<HELD_OUT_NUMBERS>(file.as_mut(), at)?;
            held_out = found.and_then(|([mark, counts @ ..], at)| {
                let found = counts_of(counts);
                let rows = packed.rows.checked_add(found.rows)?;
                (mark == HELD_OUT && bytes(rows) == Some(at) && length > 0).then_some(found)
            });
            if held_out.is_none() {
                return Err(format(
                    "another length than its end says; truncated or damaged",
                ));
            }
        }
        if packed.rows == 0 {
            return Err(DataError::Empty {
                path: path.to_owned(),
            });
        }
        Ok(Self {
            file: Arc::new(Mutex::new(file)),
            path: path.to_owned(),
            length: length as usize,
            vocab_size,
            packed,
            held_out,
        })
    }

    /// Tokens of a row.
    pub fn length(&self) -> usize {
        self.length
    }

    /// What is in the rows, those that are held out not counted.
    pub fn packed(&self) -> PackedCounts {
        self.packed
    }

    /// What is in the rows behind those, where files say what is held out.
    pub fn held_out(&self) -> Option<PackedCounts> {
        self.held_out
    }

    /// Reads a row.
    ///
    /// # Errors
    /// [`DataError`] when reading fails, and for a token that the model does not have.
    pub fn read(&self, row: u64, out: &mut Vec<Entry>) -> Result<(), DataError> {
        let mut bytes = vec![0; 4 * self.length];
        let at = row * bytes.len() as u64;
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.read_exact_at(at, &mut bytes)?;
        out.clear();
        let numbers = bytes.as_chunks().0.iter();
        out.extend(numbers.map(|&bytes| Entry(u32::from_le_bytes(bytes))));
        let wrong = out
            .iter()
            .position(|entry| entry.token() >= self.vocab_size);
        wrong.map_or(Ok(()), |index| {
            Err(DataError::Token {
                path: self.path.clone(),
                index: row * self.length as u64 + index as u64,
                token: out[index].token().into(),
                vocab_size: self.vocab_size,
            })
        })
    }

    /// What the rows are known by. Reads all of them.
    ///
    /// # Errors
    /// As [`Rows::read`].
    pub fn digest(&self) -> Result<Digest, DataError> {
        let (mut digester, mut row, mut bytes) = (Digester::default(), Vec::new(), Vec::new());
        let held_out = self.held_out.map_or(0, |held_out| held_out.rows);
        for at in 0..self.packed.rows + held_out {
            self.read(at, &mut row)?;
            bytes.clear();
            bytes.extend(row.iter().flat_map(|entry| entry.0.to_le_bytes()));
            digester.update(&bytes);
        }
        Ok(digester.finish())
    }
}

/// A batch of rows `[B, T]`, as a model is given them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedBatch {
    /// Tokens `[B, T]`.
    pub tokens: Vec<u32>,
    /// What follows each `[B, T]`; [`IGNORED`] where nothing is learnt.
    pub targets: Vec<i64>,
    /// Lengths of the documents of each row `[B, N]`, with 0 where there are fewer. What a row is filled up with is of
    /// none.
    pub lengths: Vec<u32>,
    /// Where each token is in its document `[B, T]`.
    pub positions: Vec<i64>,
    /// How many tokens are learnt.
    pub learned: usize,
    /// How many are of each row.
    pub counts: Vec<usize>,
}

impl PackedBatch {
    /// The most documents of a row of so many tokens: N of [`PackedBatch::lengths`].
    pub fn documents(length: usize) -> usize {
        DOCUMENTS_MAX.min(length)
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.counts.len()
    }

    /// A batch of rows of one document each, to plan with.
    pub fn blank(BatchShape { batch, seq }: BatchShape) -> Self {
        let mut blank = Self::default();
        let row: Vec<_> = (0..seq).map(|i| Entry::new(0, i > 0, i == 0)).collect();
        (0..batch).for_each(|_| blank.push(&row));
        blank
    }

    /// Adds a row.
    pub fn push(&mut self, row: &[Entry]) {
        let (mut start, before) = (0, self.learned);
        let first_length = self.lengths.len();
        for (i, entry) in row.iter().enumerate() {
            if entry.is_first() && i > 0 {
                self.lengths.push((i - start) as u32);
                start = i;
            }
            let next = row.get(i + 1).filter(|next| next.is_learned());
            self.tokens.push(entry.token());
            self.targets
                .push(next.map_or(IGNORED, |next| next.token().into()));
            self.positions.push((i - start) as i64);
            self.learned += usize::from(next.is_some());
        }
        self.counts.push(self.learned - before);
        let last = row.iter().rposition(|entry| *entry != Entry::PADDING);
        let end = last.map_or(start, |last| last + 1);
        self.lengths.push((end - start) as u32);
        self.lengths
            .resize(first_length + Self::documents(row.len()), 0);
    }
}

/// An endless run of batches over some of the rows: one by one, or in groups that stay together.
#[derive(Debug)]
pub struct RowBatches {
    rows: Rows,
    range: Range<u64>,
    batch: usize,
    group: u64,
    order: Order,
    seed: u64,
    cursor: Cursor,
}

impl RowBatches {
    /// Batches of `batch` groups of so many rows each, of the groups in `range`, from its start; where there are
    /// fewer, they come again within a batch.
    ///
    /// # Errors
    /// [`DataError::BatchShape`] for batches of nothing; [`DataError::TooShort`] where there is no row.
    pub fn new(
        rows: Rows,
        (range, group): (Range<u64>, usize),
        batch: usize,
        order: Order,
        seed: u64,
    ) -> Result<Self, DataError> {
        if batch == 0 || group == 0 {
            let seq = rows.length;
            return Err(DataError::BatchShape { batch, seq });
        }
        if range.is_empty() {
            return Err(DataError::TooShort {
                part: "there are no documents left to train on:",
                tokens: 0,
                needs: "a batch needs",
                needed: 1,
            });
        }
        Ok(Self {
            rows,
            range,
            batch,
            group: group as u64,
            order,
            seed,
            cursor: Cursor::default(),
        })
    }

    /// Rows of a group.
    pub fn group(&self) -> usize {
        self.group as usize
    }

    /// Where the next batch starts, in groups.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Goes on from there.
    ///
    /// # Errors
    /// [`DataError::Cursor`] for a position that these data do not have.
    pub fn seek(&mut self, cursor: Cursor) -> Result<(), DataError> {
        cursor.check(self.range.end - self.range.start)?;
        self.cursor = cursor;
        Ok(())
    }

    /// The next batch. After an error the cursor is where it was.
    ///
    /// # Errors
    /// As [`Rows::read`].
    pub fn next_batch(&mut self) -> Result<PackedBatch, DataError> {
        let (mut batch, mut cursor) = (PackedBatch::default(), self.cursor);
        self.each_of_next(1, &mut cursor, |row| batch.push(row))?;
        self.cursor = cursor;
        Ok(batch)
    }

    /// How many tokens are learnt of the next batches together.
    ///
    /// # Errors
    /// As [`Rows::read`].
    pub fn learned_of_next(&self, batches: usize) -> Result<usize, DataError> {
        let (mut learned, mut cursor) = (0, self.cursor);
        self.each_of_next(batches, &mut cursor, |row| {
            learned += row.iter().filter(|entry| entry.is_learned()).count();
        })?;
        Ok(learned)
    }

    fn each_of_next(
        &self,
        batches: usize,
        cursor: &mut Cursor,
        mut take: impl FnMut(&[Entry]),
    ) -> Result<(), DataError> {
        let count = self.range.end - self.range.start;
        let mut row = Vec::new();
        for _ in 0..batches * self.batch {
            let at = cursor.take(count, self.order, self.seed);
            let first = (self.range.start + at) * self.group;
            for row_at in first..first + self.group {
                self.rows.read(row_at, &mut row)?;
                take(&row);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fills_a_row_up_is_of_no_document() {
        let document = |length: u32| (0..length).map(|i| Entry::new(7 + i, i > 0, i == 0));
        let mut batch = PackedBatch::default();
        let mut row: Vec<Entry> = document(3).chain(document(2)).collect();
        batch.push(&row);
        row.resize(9, Entry::PADDING);
        batch.push(&row);
        batch.push(&[Entry::PADDING; 2]);
        let (full, filled) = batch.lengths.split_at(PackedBatch::documents(5));
        let (filled, empty) = filled.split_at(PackedBatch::documents(9));
        assert_eq!((&full[..3], &filled[..3]), (&[3, 2, 0][..], &[3, 2, 0][..]));
        assert_eq!(empty, [0, 0]);
        assert_eq!(batch.counts, [3, 3, 0]);
    }
}
