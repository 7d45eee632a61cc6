//! A product, cut into tasks.

#![expect(unsafe_code, reason = "tasks write tiles of one output")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::coded::Factor;
use super::matrix::{At, Mat};
use super::stages::Stages;
use super::tile::{Left, Right, Rows, groups, tile, with_rows};
use super::words::{COLS, DEPTH, PACK, PANEL, Pack, ROWS, SERIAL_COLS, slices};
use crate::kernels::float::Float;
use crate::kernels::vector::{Simd, Task, Version, dispatch};
use crate::{Disjoint, Pool};
use std::marker::PhantomData;
use std::ops::Range;

/// Tasks that a thread gets in each stage, if there are enough panels: for balance, and so that the panels of a
/// task do not drive its rows out of the second cache.
const TASKS: usize = 8;

/// Sums of a product that is rounded, of some columns at a time.
#[derive(Clone, Copy)]
pub(super) struct Staged<'a> {
    /// How many columns, all but the last time.
    pub(super) cols: usize,
    /// Whether each task keeps its sums, which are of one slice, in its cache until they are rounded.
    pub(super) is_kept: bool,
    /// Told when sums are whole: the first of their rows and columns in the product, how many there
    /// are, and where. None where others are added to them.
    pub(super) round: Option<Round<'a>>,
    /// Asked for sums that need no rounding; see [`Place`].
    pub(super) place: Option<Place<'a>>,
}

/// Of the sums of a row and of some columns from the first on: how many belong together, whole panels unless
/// they are the last, and where they can be summed, if their place in the output will do.
pub(super) type Place<'a> =
    &'a (dyn Fn(usize, Range<usize>) -> (usize, Option<At<*mut f32>>) + Sync);

/// See [`Staged::round`].
pub(super) type Round<'a> = &'a (dyn Fn([usize; 2], [usize; 2], At<*const f32>) + Sync);

/// `to = a · b`, or `to = from + a · b`.
#[derive(Clone, Copy)]
pub(super) struct Product<'a, W, A, B> {
    pub(super) words: PhantomData<fn() -> W>,
    pub(super) version: Version,
    pub(super) a: Factor<'a, A>,
    pub(super) b: Factor<'a, B>,
    pub(super) from: Option<At<*const f32>>,
    pub(super) to: At<*mut f32>,
    /// If so, `from` and `to` are as wide as that, and hold one strip of columns after the other.
    pub(super) staged: Option<Staged<'a>>,
}

// SAFETY: addresses of matrices that outlive the product; tasks write elements of their own.
unsafe impl<W, A: Float, B: Float> Sync for Product<'_, W, A, B> {}

/// How a product is cut: into strips of columns, their depths into slices (each a stage), the rows
/// of a stage into blocks and its panels into groups (each pair a task).
struct Cuts {
    strip: usize,
    strips: usize,
    /// Elements of the depth: whole words.
    slice: usize,
    slices: usize,
    height: usize,
    blocks: usize,
    /// Columns of a group.
    group: usize,
    groups: usize,
}

/// The `i`th piece of `len` of a range, which may be short or empty at the end.
fn piece(of: &Range<usize>, len: usize, i: usize) -> Range<usize> {
    (of.start + i * len).min(of.end)..(of.start + (i + 1) * len).min(of.end)
}

impl<W: Pack<A, B>, A: Float, B: Float> Product<'_, W, A, B> {
    /// For a number of threads; only [`Cuts::slice`] may matter to the bits.
    fn cuts(&self, threads: usize) -> Cuts {
        let ([rows, depth], [_, cols]) = (self.a.extents(), self.b.extents());
        let most = if threads == 1 { SERIAL_COLS } else { COLS };
        let most = self.staged.map_or(most, |staged| staged.cols.min(most));
        // Strips of one width, but for whole panels.
        let strip = cols
            .div_ceil(cols.div_ceil(most))
            .next_multiple_of(PANEL)
            .min(cols);
        let words = depth.div_ceil(W::ELEMENTS);
        let slices = slices(words);
        let blocks = rows.div_ceil(ROWS);
        let panels = strip.div_ceil(PANEL);
        // Each task packs its rows anew, if they are not read where they lie.
        let is_ready = matches!(&self.a, Factor::Plain(a) if W::is_ready(a));
        let least = if is_ready { 4 } else { 8 };
        let groups = (TASKS * threads).div_ceil(blocks);
        let groups = groups.min(panels.div_ceil(least));
        let group = panels.div_ceil(groups);
        // Few rows and columns are cut finer, for threads to share.
        let is_alone = threads > 1 && blocks * groups < 2 * threads;
        let blocks = if is_alone {
            rows.div_ceil(ROWS / 3)
        } else {
            blocks
        };
        Cuts {
            strip,
            strips: cols.div_ceil(strip),
            slice: words.div_ceil(slices) * W::ELEMENTS,
            slices,
            // Whole tiles of the widest instruction set.
            height: rows.div_ceil(blocks).next_multiple_of(14),
            blocks,
            group: group * PANEL,
            groups: panels.div_ceil(group),
        }
    }

    /// Computes it, on the threads of a pool or on the one that calls.
    ///
    /// # Safety
    /// The extents of `a` and `b` must fit together; `from` and `to` must be valid for all rows of
    /// `a` and all columns of `b` (of a strip where sums are staged), `to` for writes by nobody else;
    /// they do not overlap otherwise than by being the same.
    pub(super) unsafe fn run(&self, pool: &Pool, parallel: bool) {
        let cuts = self.cuts(if parallel { pool.threads() } else { 1 });
        let buffer = || {
            if cuts.strip <= SERIAL_COLS {
                pool.buffers().small()
            } else {
                pool.buffers().large()
            }
        };
        let mut packed = [buffer(), buffer()];
        let packed = packed.each_mut().map(|packed| Disjoint::new(packed));
        let stages = Stages {
            count: cuts.strips * cuts.slices,
            packs: cuts.strip.div_ceil(PACK),
            products: cuts.blocks * cuts.groups,
        };
        let depth_and_columns = |stage: usize| {
            let depth = piece(&(0..self.a.extents()[1]), cuts.slice, stage % cuts.slices);
            let cols = piece(&(0..self.b.extents()[1]), cuts.strip, stage / cuts.slices);
            (depth, cols, &packed[stage % 2])
        };
        let pack = |stage: usize, task: usize| {
            let (depth, cols, packed) = depth_and_columns(stage);
            let words = depth.len().div_ceil(W::ELEMENTS);
            let from = self.b.part(depth, piece(&cols, PACK, task));
            let len = from.extents()[1].next_multiple_of(PANEL) * words;
            // SAFETY: panels of the task's own, which the stage that read them is done with.
            let to = unsafe { packed.part(task * PACK * words, len) };
            from.panels::<W, A>(self.version, pool, to);
        };
        let multiply = |stage: usize, task: usize| {
            let (depth, cols, packed) = depth_and_columns(stage);
            let words = depth.len().div_ceil(W::ELEMENTS);
            let rows = piece(&(0..self.a.extents()[0]), cuts.height, task / cuts.groups);
            let own = piece(&cols, cuts.group, task % cuts.groups);
            // SAFETY: the stage has packed, and the next but one waits for this task.
            let panels = unsafe {
                let start = (own.start - cols.start) * words;
                packed.shared(start, own.len().next_multiple_of(PANEL) * words)
            };
            self.block(pool, panels, depth, cols.start, rows, own);
        };
        stages.run(parallel.then_some(pool), pack, multiply);
    }

    /// Some rows times some panels, which are columns `own` of the strip from column `strip` on, for a
    /// slice of the depth.
    fn block(
        &self,
        pool: &Pool,
        panels: &[f32],
        depth: Range<usize>,
        strip: usize,
        rows: Range<usize>,
        own: Range<usize>,
    ) {
        let words = depth.len().div_ceil(W::ELEMENTS);
        let (first, is_first, is_last) = (
            rows.start,
            depth.start == 0,
            depth.end == self.a.extents()[1],
        );
        let a = self.a.part(rows, depth);
        let is_coded = a.is_coded();
        let round = self.staged.and_then(|staged| staged.round);
        let round = round.filter(|_| is_last);
        let is_kept = self.staged.is_some_and(|staged| staged.is_kept);
        assert!(
            !is_kept || round.is_some() && is_first,
            "what is kept is of one slice"
        );
        let in_place = matches!(&a, Factor::Plain(a) if W::is_ready(a));
        let mut buffer = (!in_place || is_kept).then(|| pool.buffers().small());
        let buffer = buffer.as_deref_mut().unwrap_or_default();
        let (decoded, buffer) = buffer.split_at_mut(if is_coded { ROWS * DEPTH } else { 0 });
        let a = a.decoded(decoded);
        let is_packed = !W::is_ready(&a);
        let (packed, sums) = buffer.split_at_mut(if is_packed { a.rows * words } else { 0 });
        // Rows that are packed are packed for all columns at once.
        let place = self.staged.and_then(|staged| staged.place);
        let place = place.filter(|_| in_place);
        let mut done = own.start;
        while done < own.end {
            let (len, direct) =
                place.map_or((own.end - done, None), |place| place(first, done..own.end));
            // Strips take turns where sums are staged: each begins when the one before has ended.
            let col = done - self.staged.map_or(0, |_| strip);
            let to = match direct {
                Some(to) => to,
                None if is_kept => At {
                    data: sums.as_mut_ptr(),
                    row_stride: len,
                    col_stride: 1,
                },
                None => self.to.skip(first, col),
            };
            let from = if is_first {
                self.from.map(|from| from.skip(first, col))
            } else {
                Some(to.read())
            };
            let block = Block::<W, A, B> {
                from,
                to,
                a,
                words,
                panels: &panels[(done - own.start) * words..],
                cols: len,
                buffer: is_packed.then_some(&mut *packed),
                kind: PhantomData,
            };
            dispatch(self.version, block);
            if let Some(round) = round.filter(|_| direct.is_none()) {
                round([first, done], [a.rows, len], to.read());
            }
            done += len;
        }
    }
}

/// Some rows times some panels.
struct Block<'a, W, A, B> {
    a: Mat<'a, A>,
    /// Of the depth.
    words: usize,
    panels: &'a [f32],
    cols: usize,
    from: Option<At<*const f32>>,
    to: At<*mut f32>,
    /// For packed rows, if they are not read where they lie.
    buffer: Option<&'a mut [f32]>,
    kind: PhantomData<fn() -> (W, B)>,
}

impl<W: Pack<A, B>, A: Float, B: Float> Task for Block<'_, W, A, B> {
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

impl<W: Pack<A, B>, A: Float, B: Float> Block<'_, W, A, B> {
    #[inline(always)]
    fn multiply<S: Simd, const R: usize>(&mut self, s: S) {
        let (a, words) = (self.a, self.words);
        if let Some(buffer) = self.buffer.as_deref_mut() {
            W::rows::<S, R>(s, a, buffer);
        }
        let this = &*self;
        for col in (0..this.cols).step_by(PANEL) {
            for (row, size) in groups::<R>(a.rows) {
                let left = match &this.buffer {
                    Some(buffer) if a.col_stride == 1 => {
                        Left::words(&buffer[row * words..], words, 1)
                    }
                    Some(buffer) => Left::words(&buffer[row * words..], 1, size),
                    None => Left {
                        data: a.from(row).as_ptr().cast(),
                        row: a.row_stride * size_of::<A>(),
                        step: size_of::<f32>(),
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
        let panel = &self.panels[col * self.words..];
        for col in (col..end).step_by(VECTORS * S::LANES) {
            // A panel of no depth has no elements, and none is read.
            let first = (col % PANEL).min(panel.len());
            let right = Right {
                data: panel[first..].as_ptr(),
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
        let (words, width) = (self.words, cols.len().min(V * S::LANES));
        let to = self.to.skip(row, cols.start);
        let from = self.from.map(|from| from.skip(row, cols.start));
        let whole = width == V * S::LANES
            && to.col_stride == 1
            && from.is_none_or(|from| from.col_stride == 1);
        if whole {
            let (from, to) = (from.map(At::rows), to.rows());
            // SAFETY: a whole tile of the output; `multiply` and `panel` checked where the factors
            // start, and both hold as many words as the tile takes.
            return unsafe { tile::<W, S, R, V>(s, left, right, words, from, to) };
        }
        let mut sums = [[0.0; PANEL]; R];
        let sums_at = Rows {
            data: sums.as_mut_ptr().cast(),
            row: PANEL,
        };
        // SAFETY: as above, into rows that are as wide as a panel.
        unsafe { tile::<W, S, R, V>(s, left, right, words, None, sums_at) };
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
