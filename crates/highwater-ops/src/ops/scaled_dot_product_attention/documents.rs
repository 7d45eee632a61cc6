//! Several documents in one sequence.

use crate::kernels::indices::Integers;
use crate::{KernelError, View};
use std::ops::Range;

/// The lengths of documents that lie one after the other, for each sequence of a batch: `[B, N]`, in any
/// layout. What is left of a sequence behind them is one more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Documents<'a> {
    lengths: Integers<'a>,
    offset: usize,
    strides: [usize; 2],
    count: usize,
}

/// The documents of one sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    lengths: Integers<'a>,
    offset: usize,
    stride: usize,
    count: usize,
}

impl<'a> Documents<'a> {
    /// The documents of sequences of so many tokens.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] for lengths below 0, or of more than a sequence together.
    pub(super) fn new(view: &'a View<'_>, tokens: usize) -> Result<Self, KernelError> {
        let (dims, layout) = (view.dims(), view.layout());
        let strides = layout.strides();
        let documents = Self {
            lengths: Integers::of(view)?,
            offset: layout.offset(),
            strides: [strides[0], strides[1]],
            count: dims[1],
        };
        for batch in 0..dims[0] {
            let row = documents.row(batch);
            let mut left = tokens as i64;
            for i in 0..row.count {
                let length = row.length(i);
                if length < 0 || length > left {
                    return Err(KernelError::Unsupported {
                        expected: "lengths of documents of 0 or more, together no longer than the sequence",
                        got: format!("{length} at [{batch}, {i}] for sequences of {tokens}"),
                    });
                }
                left -= length;
            }
        }
        Ok(documents)
    }

    /// Those of a sequence.
    pub(super) fn row(self, batch: usize) -> Row<'a> {
        Row {
            lengths: self.lengths,
            offset: self.offset + batch * self.strides[0],
            stride: self.strides[1],
            count: self.count,
        }
    }
}

impl Row<'_> {
    /// All is one document.
    pub(super) const WHOLE: Self = Self {
        lengths: Integers::I64(&[]),
        offset: 0,
        stride: 0,
        count: 0,
    };

    fn length(&self, i: usize) -> i64 {
        self.lengths.at(self.offset + i * self.stride)
    }

    /// The documents that have any of these positions.
    pub(super) fn over(&self, positions: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let (first, end) = (positions.start, positions.end);
        let mut start = 0;
        let all = (0..=self.count).map(move |i| {
            let document = if i < self.count {
                start..start + self.length(i) as usize
            } else {
                start..usize::MAX
            };
            start = document.end;
            document
        });
        let all = all.skip_while(move |document| document.end <= first);
        all.take_while(move |document| document.start < end)
            .filter(|document| !document.is_empty())
    }

    /// The document of a position.
    pub(super) fn of(&self, position: usize) -> Range<usize> {
        let positions = position..position + 1;
        self.over(&positions).next().unwrap_or(0..usize::MAX)
    }

    /// Whether there is an end of a document between these positions.
    pub(super) fn part(&self, positions: &Range<usize>) -> bool {
        self.count > 0 && self.of(positions.start).end < positions.end
    }
}
