//! Batches of sequences with their targets.

use std::ops::Range;

use super::{Cursor, DataError, Order, Tokens};

/// How large batches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape {
    /// Sequences in a batch.
    pub batch: usize,
    /// Tokens in a sequence.
    pub seq: usize,
}

impl BatchShape {
    /// Tokens in a batch.
    pub fn tokens(self) -> usize {
        self.batch * self.seq
    }
}

/// An endless run of batches over a stretch of tokens. The target of each token is the one that
/// follows it.
#[derive(Debug)]
pub struct Batches {
    tokens: Tokens,
    range: Range<u64>,
    shape: BatchShape,
    order: Order,
    seed: u64,
    cursor: Cursor,
    /// One sequence and the token behind it.
    sequence: Vec<u32>,
}

impl Batches {
    /// Batches over `range` of the tokens, from its start.
    ///
    /// # Errors
    /// [`DataError::TooShort`] where `range` has less than [`Order::Sequential`] needs for a batch,
    /// or [`Order::Shuffled`] for a sequence; [`DataError::BatchShape`].
    pub fn new(
        tokens: Tokens,
        range: Range<u64>,
        shape: BatchShape,
        order: Order,
        seed: u64,
    ) -> Result<Self, DataError> {
        let BatchShape { batch, seq } = shape;
        let size = batch.checked_mul(seq).filter(|&size| size > 0);
        let size = size.ok_or(DataError::BatchShape { batch, seq })? as u64;
        let (needs, size) = match order {
            Order::Sequential => ("a batch needs", size),
            Order::Shuffled => ("a sequence needs", seq as u64),
        };
        let found = range.end.saturating_sub(range.start);
        if found <= size {
            return Err(DataError::TooShort {
                part: "the data has",
                tokens: found,
                needs,
                needed: size + 1,
            });
        }
        Ok(Self {
            tokens,
            range,
            shape,
            order,
            seed,
            cursor: Cursor::default(),
            sequence: vec![0; seq + 1],
        })
    }

    /// How large batches are.
    pub fn shape(&self) -> BatchShape {
        self.shape
    }

    /// Where the next batch starts.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Goes on from there.
    ///
    /// # Errors
    /// [`DataError::Cursor`] for a position that these data do not have.
    pub fn seek(&mut self, cursor: Cursor) -> Result<(), DataError> {
        let end = match self.order {
            Order::Sequential => self.len(),
            Order::Shuffled => self.sequences(),
        };
        cursor.check(end)?;
        self.cursor = cursor;
        Ok(())
    }

    /// How many whole batches an epoch has.
    pub fn per_epoch(&self) -> u64 {
        match self.order {
            Order::Sequential => (self.len() - 1) / self.shape.tokens() as u64,
            Order::Shuffled => self.sequences() / self.shape.batch as u64,
        }
    }

    /// Fills both buffers, [batch, seq] each, and moves on. After an error the cursor is where it
    /// was.
    ///
    /// # Errors
    /// [`DataError`] when reading fails, and for buffers of another size.
    pub fn next_batch(&mut self, tokens: &mut [u32], targets: &mut [u32]) -> Result<(), DataError> {
        let expected = self.shape.tokens();
        for found in [tokens.len(), targets.len()] {
            if found != expected {
                return Err(DataError::Buffer { expected, found });
            }
        }
        let mut cursor = self.cursor;
        self.start_batch(&mut cursor);
        let rows = tokens.chunks_exact_mut(self.shape.seq);
        for (tokens, targets) in rows.zip(targets.chunks_exact_mut(self.shape.seq)) {
            let start = self.range.start + self.take_sequence(&mut cursor);
            self.tokens.read(start, &mut self.sequence)?;
            tokens.copy_from_slice(&self.sequence[..self.shape.seq]);
            targets.copy_from_slice(&self.sequence[1..]);
        }
        self.cursor = cursor;
        Ok(())
    }

    /// Sequential batches wrap whole: a batch never has the end and the start of the data.
    fn start_batch(&self, cursor: &mut Cursor) {
        let needed = self.shape.tokens() as u64 + 1;
        if self.order == Order::Sequential && cursor.position + needed > self.len() {
            cursor.epoch += 1;
            cursor.position = 0;
        }
    }

    /// Where the next sequence starts in the range.
    fn take_sequence(&self, cursor: &mut Cursor) -> u64 {
        let seq = self.shape.seq as u64;
        match self.order {
            Order::Sequential => {
                let start = cursor.position;
                cursor.position += seq;
                start
            }
            Order::Shuffled => cursor.take(self.sequences(), self.order, self.seed) * seq,
        }
    }

    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Sequences that have a target for each of their tokens.
    fn sequences(&self) -> u64 {
        (self.len() - 1) / self.shape.seq as u64
    }
}
