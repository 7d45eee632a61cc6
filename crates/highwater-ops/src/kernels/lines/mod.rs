//! Work along one dimension, whichever it is: tiles of lines that lie side by side.
//!
//! Along the last dimension a line is a row, which stays in the first cache while it is gone over as often as
//! need be. Along others a tile is lines side by side: 8,192 elements, 32 KiB as `f32`, or 16 lines where
//! those are long. It is copied a row of neighbours at a time, 16 or more where there are as many, so that no
//! line is walked by its stride in memory. Most kernels keep a row of numbers there, one for each line:
//! neighbouring lines are the lanes of a vector, and nothing is summed across lanes. A line's elements are
//! taken in their order, however wide the tile. Either way memory sees one reading and one writing.

#![expect(unsafe_code, reason = "tasks write disjoint tiles of one output")]

mod operation;
mod samples;

pub(crate) use operation::{LineKernel, OfLine, OfPair, PairKernel, line_ops};
pub(crate) use samples::{line_rejects, line_samples};

use crate::kernels::blocks::{BLOCK, Reader, Source, map_rows, row_bytes};
use crate::kernels::checks::one_float_dtype;
use crate::kernels::float::Float;
use crate::{Args, Array, Disjoint, KernelError, Pool, View};
use highwater_graph::{OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};

/// Elements of a tile, about: it stays in the cache nearest to the processor.
const TILE: usize = 8 * BLOCK;
/// Columns that a tile has at least, where there are as many: short pieces of rows are slow to fetch.
const COLUMNS_MIN: usize = 16;
/// Elements that one task works on at least.
const TASK: usize = 32 * BLOCK;

/// A row-major shape about one of its dimensions: what is before it, itself, what is behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lines {
    /// Product of the extents before the dimension.
    pub(crate) outer: usize,
    /// Its extent: the length of a line.
    pub(crate) extent: usize,
    /// Product of the extents behind it: elements from one of a line to the next.
    pub(crate) inner: usize,
}

impl Lines {
    /// About a dimension that is there; a scalar has one of extent 1.
    pub(crate) fn new(shape: &Shape, dim: usize) -> Self {
        let Some((before, [extent, behind @ ..])) = shape.dims().split_at_checked(dim) else {
            return Self {
                outer: 1,
                extent: 1,
                inner: 1,
            };
        };
        Self {
            outer: before.iter().product(),
            extent: *extent,
            inner: behind.iter().product(),
        }
    }

    /// Number of columns that are worked on at once: a function of the shape alone.
    fn width(self) -> usize {
        let width = TILE / self.extent.max(1);
        width.clamp(COLUMNS_MIN, BLOCK).min(self.inner).max(1)
    }

    /// Bytes of scratch memory that [`map_along`] wants.
    pub(crate) fn bytes<T: Float>(self, threads: usize) -> u64 {
        match self.inner {
            1 => row_bytes::<T>(self.extent, threads),
            _ => self.tile_bytes(1, threads),
        }
    }

    /// Bytes of scratch memory that [`map_pairs_along`] wants: of rows one for each thread.
    pub(crate) fn pair_bytes<T: Float>(self, threads: usize) -> u64 {
        if self.inner != 1 {
            return self.tile_bytes(2, threads);
        }
        (self.extent * threads * size_of::<f32>()) as u64 + row_bytes::<T>(self.extent, threads)
    }

    /// Bytes that [`map_lines`] wants for `tiles` inputs.
    fn tile_bytes(self, tiles: usize, threads: usize) -> u64 {
        (tiles * threads * self.extent * self.width() * size_of::<f32>()) as u64
    }
}

/// Checks that a shape has a dimension; a scalar may be asked for its first.
pub(crate) fn check_dim(op: &'static str, shape: &Shape, dim: usize) -> Result<(), OpError> {
    if dim < shape.rank().max(1) {
        return Ok(());
    }
    Err(OpError::Attribute {
        op,
        attribute: "dim",
        expected: format!("below the rank of {shape}"),
        got: dim.to_string(),
    })
}

/// A row-major output of the shape that all inputs have, along whose dimension an operation works.
pub(crate) fn lines_of(
    op: &'static str,
    inputs: &[Spec],
    dim: usize,
) -> Result<SmallVec<[Spec; 2]>, OpError> {
    let all: SmallVec<[&Spec; 2]> = inputs.iter().collect();
    let dtype = one_float_dtype(op, &all)?;
    let shape = inputs[0].shape();
    if let Some(other) = inputs.iter().find(|other| other.shape() != shape) {
        return Err(OpError::shape(op, shape.to_string(), other.to_string()));
    }
    check_dim(op, shape, dim)?;
    Ok(smallvec![Spec::contiguous(dtype, shape.clone())])
}

/// Makes the lines of the only output of those of the only input, along a dimension: `row` of each where it is the
/// last, else `columns` of a tile of them (as in [`map_lines`]). The output may lie over the input; scratch
/// memory is of [`Lines::bytes`].
pub(crate) fn map_along<T: Float>(
    args: &mut Args<'_>,
    dim: usize,
    row: &(dyn Fn(&mut [f32]) + Sync),
    columns: &(dyn Fn(&mut [f32], usize) + Sync),
) -> Result<(), KernelError> {
    let (input, output) = (&args.inputs[0], &mut args.outputs[0]);
    let scratch = bytemuck::cast_slice_mut(args.scratch);
    let lines = Lines::new(output.spec().shape(), dim);
    if lines.inner == 1 {
        return map_rows::<T>(args.pool, input, output, scratch, &|_, _, x| row(x));
    }
    map_lines::<T, 1>(args.pool, lines, [input], output, scratch, &|[x], width| {
        columns(x, width);
    })
}

/// What is made of columns of two inputs that lie side by side, so many, in the first.
type Columns<'f> = &'f (dyn Fn(&mut [f32], &[f32], usize) + Sync);

/// As [`map_along`], of the lines of two inputs, the first of which the output may lie over; scratch memory is of
/// [`Lines::pair_bytes`].
pub(crate) fn map_pairs_along<T: Float>(
    args: &mut Args<'_>,
    dim: usize,
    row: &(dyn Fn(&mut [f32], &[f32]) + Sync),
    columns: Columns<'_>,
) -> Result<(), KernelError> {
    let (inputs, output) = ([&args.inputs[0], &args.inputs[1]], &mut args.outputs[0]);
    let scratch: &mut [f32] = bytemuck::cast_slice_mut(args.scratch);
    let lines = Lines::new(output.spec().shape(), dim);
    if lines.inner != 1 {
        return map_lines::<T, 2>(
            args.pool,
            lines,
            inputs,
            output,
            scratch,
            &|[a, b], width| {
                columns(a, b, width);
            },
        );
    }
    let width = lines.extent;
    let (rows, staging) = scratch.split_at_mut(width * args.pool.threads());
    let (rows, others) = (Disjoint::new(rows), Reader::<T>::new(inputs[1])?);
    map_rows::<T>(args.pool, inputs[0], output, staging, &|thread, line, x| {
        // SAFETY: a thread works on one row at a time, and has this part to itself.
        let buffer = unsafe { rows.part(thread * width, width) };
        row(x, others.read(line * width, buffer));
    })
}

/// Fills a row-major `output` line by line from inputs of its shape; it may lie over the first of them.
///
/// `f(tiles, width)` finds each input's elements in a tile, as rows of `width` neighbours, one for each
/// element of a line, and leaves the output's in the first. `scratch` is of [`Lines::tile_bytes`]. What is
/// computed for a line must not depend on those beside it.
fn map_lines<T: Float, const N: usize>(
    pool: &Pool,
    lines: Lines,
    inputs: [&View<'_>; N],
    output: &mut View<'_>,
    scratch: &mut [f32],
    f: &(dyn Fn([&mut [f32]; N], usize) + Sync),
) -> Result<(), KernelError> {
    let Lines {
        outer,
        extent,
        inner,
    } = lines;
    let first = Source::<T>::new(inputs[0], output)?;
    let mut others: [Option<Reader<'_, T>>; N] = [const { None }; N];
    for (input, other) in inputs.iter().zip(&mut others).skip(1) {
        *other = Some(Reader::new(input)?);
    }
    let output = output.slice_mut::<T>()?;
    if output.is_empty() {
        return Ok(());
    }
    let width = lines.width();
    let (across, tile) = (inner.div_ceil(width), extent * width);
    let (tiles, each) = (outer * across, (TASK / tile).max(1));
    let (output, scratch) = (Disjoint::new(output), Disjoint::new(scratch));
    pool.for_each_on_thread(tiles.div_ceil(each), |task, thread| {
        for number in task * each..tiles.min((task + 1) * each) {
            let column = number % across * width;
            let width = width.min(inner - column);
            let start = |row: usize| (number / across * extent + row) * inner + column;
            // SAFETY: a thread works on one tile at a time, and has these parts to itself.
            let mut tiles = std::array::from_fn(|i| unsafe {
                scratch.part((thread * N + i) * tile, extent * width)
            });
            // Whole rows lie one behind the other.
            let len = if width == inner {
                extent * width
            } else {
                width
            };
            // SAFETY: every part of every row is visited once.
            let out = |row: usize| unsafe { output.part(start(row), len) };
            for (i, tile) in tiles.iter_mut().enumerate() {
                for (row, to) in tile.chunks_exact_mut(len).enumerate() {
                    match &others[i] {
                        None => first.load(start(row), out(row), to),
                        Some(reader) => reader.widen(start(row), to),
                    }
                }
            }
            f(tiles.each_mut().map(|tile| &mut **tile), width);
            for (row, from) in tiles[0].chunks_exact(len).enumerate() {
                T::round(from, out(row));
            }
        }
    });
    Ok(())
}

/// Applies `f` to every line along a dimension; one of the output is as long.
pub(crate) fn by_lines(
    inputs: &[Array],
    dim: usize,
    f: impl Fn(&[&[f64]]) -> Vec<f64>,
) -> Vec<Array> {
    let mut out = Array::new(
        inputs[0].dtype,
        inputs[0].shape.clone(),
        inputs[0].data.clone(),
    );
    let lines = Lines::new(&out.shape, dim);
    for line in 0..lines.outer * lines.inner {
        let start = line / lines.inner * lines.extent * lines.inner + line % lines.inner;
        let at = |i: usize| start + i * lines.inner;
        let of =
            |input: &Array| -> Vec<f64> { (0..lines.extent).map(|i| input.data[at(i)]).collect() };
        let of_inputs: Vec<Vec<f64>> = inputs.iter().map(of).collect();
        let of_inputs: Vec<&[f64]> = of_inputs.iter().map(Vec::as_slice).collect();
        for (i, x) in f(&of_inputs).into_iter().enumerate() {
            out.data[at(i)] = x;
        }
    }
    vec![out]
}
