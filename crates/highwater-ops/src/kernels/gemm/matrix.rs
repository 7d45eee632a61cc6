//! Matrices: to read, to fill, and by address.

use super::tile::Rows;
use crate::kernels::float::Float;
use half::bf16;
use highwater_graph::DType;
use std::ops::Range;

/// A matrix to read: any strides, 0 included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mat<'a, T = f32> {
    pub(super) data: &'a [T],
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
}

/// Whether the last element of a matrix lies inside its data.
fn fits(len: usize, rows: usize, cols: usize, row_stride: usize, col_stride: usize) -> bool {
    let reach = |extent: usize, stride: usize| (extent - 1).saturating_mul(stride);
    rows == 0 || cols == 0 || reach(rows, row_stride).saturating_add(reach(cols, col_stride)) < len
}

impl<'a, T: Float> Mat<'a, T> {
    /// A matrix that starts with `data`; `shape` and `strides` are of rows, then columns.
    ///
    /// # Panics
    /// If it ends behind `data`.
    pub(crate) fn new(data: &'a [T], shape: [usize; 2], strides: [usize; 2]) -> Self {
        let ([rows, cols], [row_stride, col_stride]) = (shape, strides);
        assert!(
            fits(data.len(), rows, cols, row_stride, col_stride),
            "a matrix must end inside its data"
        );
        Self {
            data,
            rows,
            cols,
            row_stride,
            col_stride,
        }
    }

    /// A dense row-major matrix.
    pub(crate) fn dense(data: &'a [T], rows: usize, cols: usize) -> Self {
        Self::new(data, [rows, cols], [cols, 1])
    }

    /// Rows and columns.
    pub(crate) fn extents(&self) -> [usize; 2] {
        [self.rows, self.cols]
    }

    /// The transposed matrix.
    pub(crate) fn t(self) -> Self {
        Self::new(
            self.data,
            [self.cols, self.rows],
            [self.col_stride, self.row_stride],
        )
    }

    /// Some of the rows.
    pub(crate) fn rows(self, start: usize, len: usize) -> Self {
        self.part(start..start + len, 0..self.cols)
    }

    /// Some of the rows and columns.
    pub(super) fn part(self, rows: Range<usize>, cols: Range<usize>) -> Self {
        assert!(
            rows.end <= self.rows && cols.end <= self.cols,
            "a part must be of the matrix"
        );
        let skip = rows.start * self.row_stride + cols.start * self.col_stride;
        Self::new(
            &self.data[skip.min(self.data.len())..],
            [rows.len(), cols.len()],
            [self.row_stride, self.col_stride],
        )
    }

    /// The data from a row on.
    pub(super) fn from(&self, row: usize) -> &'a [T] {
        &self.data[(row * self.row_stride).min(self.data.len())..]
    }

    pub(super) fn at(&self, row: usize, col: usize) -> f32 {
        self.data[row * self.row_stride + col * self.col_stride].wide()
    }

    /// Whether rows lie so far apart that all of a tile's fall into one set of a first cache, and drive each
    /// other out: at a width of 3072 `f32` products took a fifth longer.
    pub(super) fn rows_collide(&self) -> bool {
        (self.row_stride * size_of::<T>()).is_multiple_of(4096) && self.rows > 1
    }

    /// The matrix, if its elements are `bf16`.
    pub(super) fn of_bf16(self) -> Option<Mat<'a, bf16>> {
        let (shape, strides) = ([self.rows, self.cols], [self.row_stride, self.col_stride]);
        T::is(DType::BF16).then(|| Mat::new(bytemuck::cast_slice(self.data), shape, strides))
    }
}

/// A matrix to fill, whose elements all lie apart.
#[derive(Debug)]
pub(crate) struct MatMut<'a, T = f32> {
    pub(super) data: &'a mut [T],
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
}

impl<'a, T: Float> MatMut<'a, T> {
    /// A matrix that starts with `data`; `shape` and `strides` are of rows, then columns.
    ///
    /// # Panics
    /// If it ends behind `data`.
    pub(crate) fn new(data: &'a mut [T], shape: [usize; 2], strides: [usize; 2]) -> Self {
        let ([rows, cols], [row_stride, col_stride]) = (shape, strides);
        assert!(
            fits(data.len(), rows, cols, row_stride, col_stride),
            "a matrix must end inside its data"
        );
        Self {
            data,
            rows,
            cols,
            row_stride,
            col_stride,
        }
    }

    /// A dense row-major matrix.
    pub(crate) fn dense(data: &'a mut [T], rows: usize, cols: usize) -> Self {
        Self::new(data, [rows, cols], [cols, 1])
    }
}

/// What a product is added to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Plus<'a, T = f32> {
    /// Nothing: the output is filled.
    Nothing,
    /// The output.
    Output,
    /// One row, as wide as the output, for all rows.
    Row(&'a [T]),
}

impl<T: Float> Plus<'_, T> {
    /// The output if `yes`, else nothing.
    pub(crate) fn output_if(yes: bool) -> Self {
        if yes { Self::Output } else { Self::Nothing }
    }
}

/// Where a matrix starts, and its strides.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<P> {
    pub(super) data: P,
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
}

impl<P> At<P> {
    /// The transposed matrix.
    pub(super) fn t(self) -> Self {
        Self {
            data: self.data,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
        }
    }

    pub(super) fn offset(&self, row: usize, col: usize) -> usize {
        row * self.row_stride + col * self.col_stride
    }

    /// Its rows, if their columns lie side by side.
    pub(super) fn rows(self) -> Rows<P> {
        Rows {
            data: self.data,
            row: self.row_stride,
        }
    }
}

impl<T> At<*const T> {
    /// The same addresses, of another type: one of the same size.
    pub(super) fn cast<U>(self) -> At<*const U> {
        At {
            data: self.data.cast(),
            row_stride: self.row_stride,
            col_stride: self.col_stride,
        }
    }

    /// The matrix from an element on.
    pub(super) fn skip(self, row: usize, col: usize) -> Self {
        let data = self.data.wrapping_add(self.offset(row, col));
        Self { data, ..self }
    }
}

impl<T> At<*mut T> {
    /// The same addresses, of another type: one of the same size.
    pub(super) fn cast<U>(self) -> At<*mut U> {
        At {
            data: self.data.cast(),
            row_stride: self.row_stride,
            col_stride: self.col_stride,
        }
    }

    /// The matrix from an element on.
    pub(super) fn skip(self, row: usize, col: usize) -> Self {
        let data = self.data.wrapping_add(self.offset(row, col));
        Self { data, ..self }
    }

    /// For reading.
    pub(super) fn read(self) -> At<*const T> {
        At {
            data: self.data.cast_const(),
            row_stride: self.row_stride,
            col_stride: self.col_stride,
        }
    }
}
