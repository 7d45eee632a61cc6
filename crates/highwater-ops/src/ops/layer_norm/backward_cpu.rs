//! The fast backward kernel. One pass: each row gives its gradient, and adds to its block's sums for
//! weight and bias; the blocks' sums are then added in order.
//!
//! A row of gradient and input stays in the first cache while it adds to the sums, gives its two
//! moments and is finished, so that memory sees both once, where a kernel for each would read them
//! twice.
//!
//! A block is 32 rows or more, and there are 128 blocks at most, by the number of rows alone. Its two rows of
//! sums, of `f32`, lie in scratch memory and take its rows in order; then 1,024 columns to a task add up the
//! blocks' in `f64`, in the order of blocks. So sums for weight and bias need no atomics and have the same
//! bits with any threads. A row's two moments are in 32 lanes of `f32` each, added by halves. It runs at 64%
//! of the pace of a copy (BENCHMARKS.md).

#![expect(
    unsafe_code,
    reason = "tasks write their own rows and sums, threads their own buffers"
)]

use super::{BACKWARD, LayerNormBackward, rows_and_width};
use crate::device::in_place;
use crate::kernels::blocks::{BLOCK, Reader, Source};
use crate::kernels::float::{Float, as_f32_mut};
use crate::kernels::simd::{multiversion, sum_lanes};
use crate::{Args, Disjoint, Kernel, KernelError, Pairs, Pool, View, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// Rows that one task works on at least.
const ROWS_MIN: usize = 32;
/// The most blocks that rows are cut into.
const BLOCKS_MAX: usize = 128;

fn rows_per_block(rows: usize) -> usize {
    rows.div_ceil(BLOCKS_MAX).max(ROWS_MIN)
}

/// Bytes of scratch memory for the gradients of a norm of `x`: a row for the weight, two buffers per
/// thread and two sums per block.
pub(crate) fn scratch_bytes(x: &Spec, threads: usize) -> u64 {
    let (rows, width) = rows_and_width(x.shape());
    let blocks = rows.div_ceil(rows_per_block(rows));
    (size_of::<f32>() * width * (1 + 2 * threads + 2 * blocks)) as u64
}

/// May overwrite the gradient.
pub(super) struct BackwardKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for BackwardKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        scratch_bytes(&inputs[1], threads)
    }

    fn in_place(&self, op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        let of_input = op
            .downcast()
            .is_some_and(|op: &LayerNormBackward| op.wanted[0]);
        in_place(&inputs[..usize::from(of_input)], outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let op: &LayerNormBackward = op_as(op)?;
        let [g, x, mean, rstd, weight @ ..] = &*args.inputs else {
            return Err(KernelError::WrongOp { op: BACKWARD });
        };
        let norm = Norm {
            g,
            x,
            mean: Some(mean),
            rstd,
            weight: weight.first(),
            wanted: op.wanted,
        };
        norm.gradients::<T>(args.pool, args.outputs, args.scratch)
    }
}

/// What the gradients of a norm are made from.
pub(crate) struct Norm<'a> {
    /// The output's gradient.
    pub(crate) g: &'a View<'a>,
    pub(crate) x: &'a View<'a>,
    /// None where nothing was taken from `x`.
    pub(crate) mean: Option<&'a View<'a>>,
    pub(crate) rstd: &'a View<'a>,
    pub(crate) weight: Option<&'a View<'a>>,
    /// Which are asked for: of `x`, of the weight, of the bias.
    pub(crate) wanted: [bool; 3],
}

/// What all rows share.
struct Shared<'a, T> {
    /// The output's gradient: where it is, if there is no gradient of the input to overwrite.
    g: Source<'a, T>,
    x: Reader<'a, T>,
    mean: Option<Reader<'a, f32>>,
    rstd: Reader<'a, f32>,
    weight: &'a [f32],
    /// The gradient of the input, if wanted.
    dx: Option<Disjoint<'a, T>>,
}

impl Norm<'_> {
    /// Fills the outputs that are asked for, that of `x` over `g` if it lies there.
    pub(crate) fn gradients<T: Float>(
        &self,
        pool: &Pool,
        outputs: &mut [View<'_>],
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let (rows, width) = rows_and_width(self.x.spec().shape());
        let (dx, params) = outputs.split_at_mut(usize::from(self.wanted[0]));
        let mut dx = dx.first_mut();
        let g = match &dx {
            Some(dx) => Source::<T>::new(self.g, dx)?,
            None => Source::Other(Reader::new(self.g)?),
        };
        let scratch: &mut [f32] = bytemuck::cast_slice_mut(scratch);
        let (weight, scratch) = scratch.split_at_mut(width);
        match self.weight {
            Some(view) => Reader::<T>::new(view)?.widen(0, weight),
            None => weight.fill(1.0),
        }
        let (buffers, sums) = scratch.split_at_mut(2 * width * pool.threads());
        let shared = Shared {
            g,
            x: Reader::new(self.x)?,
            mean: self.mean.map(Reader::new).transpose()?,
            rstd: Reader::new(self.rstd)?,
            weight,
            dx: match &mut dx {
                Some(dx) => Some(Disjoint::new(dx.slice_mut()?)),
                None => None,
            },
        };
        run_blocks(pool, &shared, rows, buffers, sums);
        let offsets = (0..2).filter(|&which| self.wanted[1 + which]);
        for (param, which) in params.iter_mut().zip(offsets) {
            add_blocks::<T>(pool, param, sums, which)?;
        }
        Ok(())
    }
}

fn run_blocks(
    pool: &Pool,
    shared: &Shared<'_, impl Float>,
    rows: usize,
    buffers: &mut [f32],
    sums: &mut [f32],
) {
    let width = shared.weight.len();
    let step = rows_per_block(rows);
    let (buffers, sums) = (Disjoint::new(buffers), Disjoint::new(sums));
    pool.for_each_on_thread(rows.div_ceil(step), |block, thread| {
        // SAFETY: a thread works on one block at a time, and a block is visited once.
        let (buffers, sums) = unsafe {
            let part = 2 * width;
            (
                buffers.part(thread * part, part),
                sums.part(block * part, part),
            )
        };
        sums.fill(0.0);
        for row in block * step..rows.min((block + 1) * step) {
            run_row(shared, row, buffers, sums);
        }
    });
}

fn run_row<T: Float>(shared: &Shared<'_, T>, row: usize, buffers: &mut [f32], sums: &mut [f32]) {
    let width = shared.weight.len();
    let (g_buffer, x_buffer) = buffers.split_at_mut(width);
    let (dweight, dbias) = sums.split_at_mut(width);
    let x = shared.x.read(row * width, x_buffer);
    let [mut mean, mut rstd] = [[0.0]; 2];
    if let Some(reader) = &shared.mean {
        reader.widen(row, &mut mean);
    }
    shared.rstd.widen(row, &mut rstd);
    let statistics = [mean[0], rstd[0]];
    let mut work = |g: &mut [f32], wanted: bool| {
        accumulate(g, x, statistics, dweight, dbias);
        if wanted {
            let mut moments = moments(g, x, shared.weight, statistics);
            if shared.mean.is_none() {
                moments[0] = 0.0;
            }
            finish(g, x, shared.weight, statistics, moments);
        }
    };
    let at = row * width;
    // SAFETY: every row is visited once.
    let dx = (shared.dx.as_ref()).map(|dx| unsafe { dx.part(at, width) });
    match dx {
        None => {
            shared.g.load(at, &[], g_buffer);
            work(g_buffer, false);
        }
        Some(dx) => {
            if let Some(g) = as_f32_mut(dx) {
                shared.g.widen_over(at, g);
                work(g, true);
            } else {
                shared.g.load(at, dx, g_buffer);
                work(g_buffer, true);
                T::round(g_buffer, dx);
            }
        }
    }
}

/// Adds the sums of all blocks for the weight (0) or the bias (1).
fn add_blocks<T: Float>(
    pool: &Pool,
    param: &mut View<'_>,
    sums: &[f32],
    which: usize,
) -> Result<(), KernelError> {
    let param = param.slice_mut::<T>()?;
    let width = param.len();
    pool.for_each_chunk(param, BLOCK, |chunk, param| {
        let mut total = [0.0; BLOCK];
        for sums in sums.chunks_exact(2 * width) {
            let sums = &sums[which * width + chunk * BLOCK..];
            for (total, &sum) in total[..param.len()].iter_mut().zip(sums) {
                *total += f64::from(sum);
            }
        }
        for (param, total) in param.iter_mut().zip(total) {
            *param = T::nearest(total as f32);
        }
    });
    Ok(())
}

/// The normalised input.
#[expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]
#[inline(always)]
fn normalised(x: f32, [mean, rstd]: [f32; 2]) -> f32 {
    (x - mean) * rstd
}

multiversion! {
    /// Adds a row to the gradients of weight and bias.
    fn accumulate[I](
        g: &[f32],
        x: &[f32],
        statistics: [f32; 2],
        dweight: &mut [f32],
        dbias: &mut [f32],
    ) {
        let sums = dweight.iter_mut().zip(dbias);
        for ((&g, &x), (dweight, dbias)) in g.iter().zip(x).zip(sums) {
            *dweight = I::fma(g, normalised(x, statistics), *dweight);
            *dbias += g;
        }
    }
}

multiversion! {
    /// The means of the scaled gradient, and of its products with the normalised input.
    fn moments[I](g: &[f32], x: &[f32], weight: &[f32], statistics: [f32; 2]) -> [f32; 2] {
        const LANES: usize = 32;
        let (mut of_g, mut of_gx) = ([0.0; LANES], [0.0; LANES]);
        let (g_chunks, g_rest) = g.as_chunks::<LANES>();
        let (x_chunks, x_rest) = x.as_chunks::<LANES>();
        let (weight_chunks, weight_rest) = weight.as_chunks::<LANES>();
        for ((g, x), weight) in g_chunks.iter().zip(x_chunks).zip(weight_chunks) {
            for i in 0..LANES {
                let scaled = g[i] * weight[i];
                of_g[i] += scaled;
                of_gx[i] = I::fma(scaled, normalised(x[i], statistics), of_gx[i]);
            }
        }
        for (i, ((&g, &x), &weight)) in g_rest.iter().zip(x_rest).zip(weight_rest).enumerate() {
            let scaled = g * weight;
            of_g[i] += scaled;
            of_gx[i] = I::fma(scaled, normalised(x, statistics), of_gx[i]);
        }
        [of_g, of_gx].map(|lanes| sum_lanes(lanes) / g.len() as f32)
    }
}

multiversion! {
    /// Turns the gradient of the output into that of the input.
    fn finish[I](
        g: &mut [f32],
        x: &[f32],
        weight: &[f32],
        statistics: [f32; 2],
        moments: [f32; 2],
    ) {
        let [mean_g, mean_gx] = moments;
        for ((g, &x), &weight) in g.iter_mut().zip(x).zip(weight) {
            let hat = normalised(x, statistics);
            let centred = I::fma(*g, weight, -mean_g);
            *g = statistics[1] * I::fma(hat, -mean_gx, centred);
        }
    }
}
