//! A product, cut into tasks.

#![expect(unsafe_code, reason = "tasks write tiles of one output")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::Mat;
use super::pack::{PANEL, Panels, pack_rows};
use super::stages::Stages;
use super::tile::{Left, Right, Rows, groups, tile, with_rows};
use crate::vector::{Simd, Task, Version, dispatch};
use crate::{Disjoint, Pool};
use std::ops::Range;

/// Elements of a block of the left factor.
pub(super) const BLOCK: usize = ROWS * DEPTH;

/// Columns of the right factor that a task packs.
const PACK: usize = 4 * PANEL;

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

    fn offset(&self, row: usize, col: usize) -> usize {
        row * self.row_stride + col * self.col_stride
    }

    fn rows(self) -> Rows<P> {
        Rows {
            data: self.data,
            row: self.row_stride,
        }
    }
}

impl At<*const f32> {
    /// The matrix from an element on.
    pub(super) fn skip(self, row: usize, col: usize) -> Self {
        let data = self.data.wrapping_add(self.offset(row, col));
        Self { data, ..self }
    }
}

impl At<*mut f32> {
    /// The matrix from an element on.
    pub(super) fn skip(self, row: usize, col: usize) -> Self {
        let data = self.data.wrapping_add(self.offset(row, col));
        Self { data, ..self }
    }

    /// For reading.
    pub(super) fn read(self) -> At<*const f32> {
        At {
            data: self.data.cast_const(),
            row_stride: self.row_stride,
            col_stride: self.col_stride,
        }
    }
}

/// Most elements of the depth that are summed in one chain. Bits depend on it.
pub(super) const DEPTH: usize = 384;

/// Most columns of the right factor that a stage packs.
pub(super) const COLS: usize = 1024;

/// Most rows of the left factor that a task takes.
pub(super) const ROWS: usize = 84;

/// Tasks that a thread gets in each stage, if there are enough panels: for balance.
const TASKS: usize = 8;

/// `to = a · b`, or `to = from + a · b`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Product<'a> {
    pub(super) a: Mat<'a>,
    pub(super) b: Mat<'a>,
    pub(super) from: Option<At<*const f32>>,
    pub(super) to: At<*mut f32>,
}

// SAFETY: addresses of matrices that outlive the product; tasks write elements of their own.
unsafe impl Sync for Product<'_> {}

/// A slice of the depth of some columns.
struct Stage {
    depth: Range<usize>,
    cols: Range<usize>,
}

impl Product<'_> {
    /// Computes it.
    ///
    /// # Safety
    /// The extents of `a` and `b` must fit together; `from` and `to` must be valid for all rows of
    /// `a` and all columns of `b`, `to` for writes by nobody else; they do not overlap otherwise
    /// than by being the same.
    pub(super) unsafe fn run(&self, pool: &Pool, parallel: bool) {
        let slices = self.a.cols.div_ceil(DEPTH).max(1);
        let slice = self.a.cols.div_ceil(slices);
        let strips = self.b.cols.div_ceil(COLS);
        let stage = |stage: usize| {
            let (strip, i) = (stage / slices, stage % slices);
            Stage {
                depth: (i * slice).min(self.a.cols)..((i + 1) * slice).min(self.a.cols),
                cols: strip * COLS..self.b.cols.min((strip + 1) * COLS),
            }
        };
        let blocks = self.a.rows.div_ceil(ROWS);
        // Whole tiles of the widest instruction set.
        let height = self.a.rows.div_ceil(blocks).next_multiple_of(14);
        let panels = self.b.cols.min(COLS).div_ceil(PANEL);
        let groups = if parallel {
            // Each task packs its rows anew, if they are not read where they lie.
            let least = if self.a.col_stride == 1 { 4 } else { 8 };
            (TASKS * pool.threads())
                .div_ceil(blocks)
                .min(panels.div_ceil(least))
        } else {
            1
        };
        let group = panels.div_ceil(groups) * PANEL;
        let mut packed = [pool.buffers().right(), pool.buffers().right()];
        let packed = packed.each_mut().map(|packed| Disjoint::new(packed));
        let stages = Stages {
            count: strips * slices,
            packs: self.b.cols.min(COLS).div_ceil(PACK),
            products: blocks * groups,
        };
        stages.run(
            parallel.then_some(pool),
            |number, task| {
                let Stage { depth, cols } = stage(number);
                let start = cols.start + task * PACK;
                if start >= cols.end {
                    return;
                }
                let len = PACK.min(cols.end - start);
                let from = self.b.part(depth.clone(), start..start + len);
                // SAFETY: panels of the task's own, in a buffer that no stage reads now.
                let to = unsafe {
                    packed[number % 2].part(
                        task * PACK * depth.len(),
                        len.next_multiple_of(PANEL) * depth.len(),
                    )
                };
                dispatch(Version::Best, Panels { from, to });
            },
            |number, task| {
                let Stage { depth, cols } = stage(number);
                let rows = (task / groups * height).min(self.a.rows)
                    ..self.a.rows.min((task / groups + 1) * height);
                let len = cols.len();
                let own = (task % groups * group).min(len)..len.min((task % groups + 1) * group);
                if own.is_empty() || rows.is_empty() {
                    return;
                }
                let mut buffer = (self.a.col_stride != 1).then(|| pool.buffers().left());
                let (start, from) = match depth.start {
                    0 => (rows.start, self.from),
                    _ => (rows.start, Some(self.to.read())),
                };
                // SAFETY: packed by this stage; nobody writes it before the next but one.
                let panels = unsafe {
                    packed[number % 2].shared(
                        own.start * depth.len(),
                        own.len().next_multiple_of(PANEL) * depth.len(),
                    )
                };
                let col = cols.start + own.start;
                dispatch(
                    Version::Best,
                    Block {
                        a: self.a.part(rows, depth),
                        panels,
                        cols: own.len(),
                        from: from.map(|from| from.skip(start, col)),
                        to: self.to.skip(start, col),
                        buffer: buffer.as_deref_mut(),
                    },
                );
            },
        );
    }
}

/// Some rows times some panels.
struct Block<'a> {
    a: Mat<'a>,
    panels: &'a [f32],
    cols: usize,
    from: Option<At<*const f32>>,
    to: At<*mut f32>,
    /// For packed rows, if they are not read where they lie.
    buffer: Option<&'a mut [f32]>,
}

impl Task for Block<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        // As many sums as registers hold beside a row of the right factor and one of the left.
        match S::LANES {
            16 => self.multiply::<S, 14>(s),
            _ => self.multiply::<S, 6>(s),
        }
    }
}

/// Vectors of columns of a tile.
const VECTORS: usize = 2;

impl Block<'_> {
    #[inline(always)]
    fn multiply<S: Simd, const R: usize>(&mut self, s: S) {
        let (a, depth) = (self.a, self.a.cols);
        if let Some(buffer) = self.buffer.as_deref_mut() {
            pack_rows::<R>(a, &mut buffer[..a.rows * depth]);
        }
        let this = &*self;
        for col in (0..this.cols).step_by(PANEL) {
            for (row, size) in groups::<R>(a.rows) {
                let left = match &this.buffer {
                    Some(buffer) => Left {
                        data: buffer[row * depth..].as_ptr(),
                        row: 1,
                        step: size,
                    },
                    None => Left {
                        data: a.from(row).as_ptr(),
                        row: a.row_stride,
                        step: 1,
                    },
                };
                with_rows!(size, this.panel::<S, R>(s, left, row, col));
            }
        }
    }

    /// `R` rows times a panel.
    #[inline(always)]
    fn panel<S: Simd, const R: usize>(&self, s: S, left: Left, row: usize, col: usize) {
        let end = self.cols.min(col + PANEL);
        let panel = &self.panels[col * self.a.cols..];
        for col in (col..end).step_by(VECTORS * S::LANES) {
            let right = Right {
                data: panel[col % PANEL..].as_ptr(),
                step: PANEL,
            };
            let cols = end - col;
            if cols > S::LANES {
                self.tile::<S, R, VECTORS>(s, left, right, row, col..end);
            } else {
                self.tile::<S, R, 1>(s, left, right, row, col..end);
            }
        }
    }

    /// `R` rows times `V` vectors of columns, of which those behind `cols` are not written.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const V: usize>(
        &self,
        s: S,
        left: Left,
        right: Right,
        row: usize,
        cols: Range<usize>,
    ) {
        let (depth, width) = (self.a.cols, cols.len().min(V * S::LANES));
        let to = self.to.skip(row, cols.start);
        let from = self.from.map(|from| from.skip(row, cols.start));
        let whole = width == V * S::LANES
            && to.col_stride == 1
            && from.is_none_or(|from| from.col_stride == 1);
        if whole {
            let (from, to) = (from.map(At::rows), to.rows());
            // SAFETY: a whole tile of the output; `multiply` and `panel` checked where the factors
            // start, and both hold `depth` steps of the tile.
            return unsafe { tile::<S, R, V>(s, left, right, depth, from, to) };
        }
        let mut sums = [[0.0; PANEL]; R];
        let sums_at = Rows {
            data: sums.as_mut_ptr().cast(),
            row: PANEL,
        };
        // SAFETY: as above, into rows that are as wide as a panel.
        unsafe { tile::<S, R, V>(s, left, right, depth, None, sums_at) };
        // SAFETY: rows of the tile, columns of the output.
        unsafe { add_edge(&sums, width, from, to) };
    }
}

/// Writes the first `width` columns of rows of sums, plus `from`.
///
/// # Safety
/// The rows and columns of `from` and `to` must be valid.
#[inline(never)]
unsafe fn add_edge(
    sums: &[[f32; PANEL]],
    width: usize,
    from: Option<At<*const f32>>,
    to: At<*mut f32>,
) {
    for (r, sums) in sums.iter().enumerate() {
        for (c, &sum) in sums[..width].iter().enumerate() {
            // SAFETY: the caller's.
            unsafe {
                let from = from.map(|from| *from.data.add(from.offset(r, c)));
                *to.data.add(to.offset(r, c)) = from.map_or(sum, |from| from + sum);
            }
        }
    }
}
