//! Factors that are decoded as they are packed: no more of one is ever there than a task packs.

use super::matrix::Mat;
use super::words::Pack;
use crate::Pool;
use crate::kernels::float::Float;
use crate::kernels::vector::Version;
use half::bf16;
use highwater_graph::DType;
use std::marker::PhantomData;
use std::ops::Range;

/// A matrix that is stored in a form of its own.
pub(crate) trait Decode: Sync {
    /// Writes elements of the stored rows and columns, row by row, as the bytes of their type.
    fn decode(&self, rows: Range<usize>, columns: Range<usize>, to: &mut [u8]);

    /// Writes them in panels of [`PANEL`](super::PANEL) columns, each dense and row by row, the last one filled
    /// up with zeros. Answers whether it knows how to: else it writes nothing.
    fn panels(&self, rows: Range<usize>, columns: Range<usize>, to: &mut [f32]) -> bool {
        let _ = (rows, columns, to);
        false
    }
}

impl<F: Fn(Range<usize>, Range<usize>, &mut [u8]) + Sync> Decode for F {
    fn decode(&self, rows: Range<usize>, columns: Range<usize>, to: &mut [u8]) {
        self(rows, columns, to);
    }
}

/// A matrix that is decoded to elements of `T`, some rows and columns at a time.
#[derive(Clone, Copy)]
pub(crate) struct Coded<'a, T> {
    decode: &'a dyn Decode,
    /// Where it starts in what is stored, and its extents: rows, then columns.
    start: [usize; 2],
    extents: [usize; 2],
    /// Whether it is what is stored, transposed.
    transposed: bool,
    kind: PhantomData<fn() -> T>,
}

impl<'a, T: Float> Coded<'a, T> {
    /// What is stored: of so many rows and columns.
    pub(crate) fn new(decode: &'a dyn Decode, extents: [usize; 2]) -> Self {
        Self {
            decode,
            start: [0, 0],
            extents,
            transposed: false,
            kind: PhantomData,
        }
    }

    /// The transposed matrix.
    pub(crate) fn t(self) -> Self {
        let [rows, cols] = self.extents;
        Self {
            extents: [cols, rows],
            transposed: !self.transposed,
            ..self
        }
    }

    fn part(self, rows: Range<usize>, cols: Range<usize>) -> Self {
        let [row, col] = if self.transposed {
            [cols.start, rows.start]
        } else {
            [rows.start, cols.start]
        };
        Self {
            start: [self.start[0] + row, self.start[1] + col],
            extents: [rows.len(), cols.len()],
            ..self
        }
    }

    fn of_bf16(self) -> Option<Coded<'a, bf16>> {
        T::is(DType::BF16).then_some(Coded {
            decode: self.decode,
            start: self.start,
            extents: self.extents,
            transposed: self.transposed,
            kind: PhantomData,
        })
    }

    /// [`Decode::panels`] of all of it.
    fn in_panels(&self, to: &mut [f32]) -> bool {
        let ([row, col], [rows, cols]) = (self.start, self.extents);
        !self.transposed && (self.decode).panels(row..row + rows, col..col + cols, to)
    }

    /// All of it, in memory of which it takes a part.
    fn decoded<'b>(&self, memory: &'b mut [f32]) -> Mat<'b, T> {
        let ([row, col], [rows, cols]) = (self.start, self.extents);
        let [rows, cols] = if self.transposed {
            [cols, rows]
        } else {
            [rows, cols]
        };
        let memory: &mut [T] = bytemuck::cast_slice_mut(memory);
        let memory = &mut memory[..rows * cols];
        self.decode.decode(
            row..row + rows,
            col..col + cols,
            bytemuck::cast_slice_mut(memory),
        );
        let stored = Mat::dense(memory, rows, cols);
        if self.transposed { stored.t() } else { stored }
    }
}

/// A factor of a product.
#[derive(Clone, Copy)]
pub(crate) enum Factor<'a, T> {
    /// Read where it lies.
    Plain(Mat<'a, T>),
    /// Decoded.
    Coded(Coded<'a, T>),
}

impl<'a, T: Float> Factor<'a, T> {
    pub(super) fn extents(&self) -> [usize; 2] {
        match self {
            Self::Plain(mat) => mat.extents(),
            Self::Coded(coded) => coded.extents,
        }
    }

    /// The transposed matrix.
    pub(super) fn t(self) -> Self {
        match self {
            Self::Plain(mat) => Self::Plain(mat.t()),
            Self::Coded(coded) => Self::Coded(coded.t()),
        }
    }

    /// Whether each task that takes rows of it packs them by columns.
    pub(super) fn packs_rows(&self) -> bool {
        match self {
            Self::Plain(mat) => mat.col_stride != 1,
            Self::Coded(coded) => coded.transposed,
        }
    }

    /// Whether it is decoded.
    pub(super) fn is_coded(&self) -> bool {
        matches!(self, Self::Coded(_))
    }

    /// The matrix, decoded in memory of which it takes a part, if it must be.
    pub(super) fn decoded<'b>(self, memory: &'b mut [f32]) -> Mat<'b, T>
    where
        'a: 'b,
    {
        match self {
            Self::Plain(mat) => mat,
            Self::Coded(coded) => coded.decoded(memory),
        }
    }

    /// Some of the rows and columns.
    pub(super) fn part(self, rows: Range<usize>, cols: Range<usize>) -> Self {
        match self {
            Self::Plain(mat) => Self::Plain(mat.part(rows, cols)),
            Self::Coded(coded) => Self::Coded(coded.part(rows, cols)),
        }
    }

    /// The factor, if its elements are `bf16`.
    pub(super) fn of_bf16(self) -> Option<Factor<'a, bf16>> {
        match self {
            Self::Plain(mat) => mat.of_bf16().map(Factor::Plain),
            Self::Coded(coded) => coded.of_bf16().map(Factor::Coded),
        }
    }

    /// [`Pack::panels`] of all of it; what is coded is decoded to a buffer of the pool's, if it cannot be to
    /// panels.
    pub(super) fn panels<W: Pack<A, T>, A>(self, version: Version, pool: &Pool, to: &mut [f32]) {
        match self {
            Self::Plain(mat) => W::panels(version, mat, to),
            Self::Coded(coded) if W::ELEMENTS == 1 && coded.in_panels(to) => {}
            Self::Coded(coded) => {
                let mut buffer = pool.buffers().small();
                W::panels(version, coded.decoded(&mut buffer), to);
            }
        }
    }
}
