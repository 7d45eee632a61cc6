//! The fast forward kernel: a row at a time, with scale and shift in place.
//!
//! One pass over memory: a row stays in the first cache for its mean, the squares of what differs
//! from it and the scaling. Squares are of differences from the mean, in two parts, instead of a sum
//! of squares made in the same go: a third walk through the cache is the price of digits where
//! the mean is large.
//!
//! A task is as many rows as come to 32,768 elements; scale and shift are read 1,024 at a time. The mean is a
//! sum in 32 lanes of `f64`, the squares are in 64 lanes of `f32` (four vectors with AVX-512, eight with
//! AVX2); an element's lane follows from its place in the row, and lanes are added by halves. It runs at 51%
//! of the pace of a copy, for the walks (BENCHMARKS.md).

#![expect(unsafe_code, reason = "tasks write statistics of their own rows")]

use super::{LayerNorm, rows_and_width};
use crate::device::in_place;
use crate::kernels::blocks::{BLOCK, Reader, map_rows, row_bytes};
use crate::kernels::float::Float;
use crate::kernels::simd::{multiversion, sum_block, sum_lanes};
use crate::{Args, Disjoint, Kernel, KernelError, Pairs, View, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// May overwrite its input.
pub(super) struct LayerNormKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for LayerNormKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        row_bytes::<T>(rows_and_width(inputs[0].shape()).1, threads)
    }

    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        in_place(&inputs[..1], outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        layer_norm::<T>(op_as(op)?, args)
    }
}

fn layer_norm<T: Float>(op: &LayerNorm, args: &mut Args<'_>) -> Result<(), KernelError> {
    let [y, mean, rstd] = args.outputs else {
        return Err(KernelError::WrongOp { op: super::NAME });
    };
    let weight = affine::<T>(args.inputs, 1)?;
    let bias = affine::<T>(args.inputs, 2)?;
    let mean = Disjoint::new(mean.slice_mut::<f32>()?);
    let rstd = Disjoint::new(rstd.slice_mut::<f32>()?);
    let staging = bytemuck::cast_slice_mut(args.scratch);
    map_rows::<T>(args.pool, &args.inputs[0], y, staging, &|_, row, data| {
        let (high, low) = split_mean(data);
        let variance = squares(data, high, low) / data.len() as f32;
        let scale = (1.0 / (f64::from(variance) + op.eps).sqrt()) as f32;
        // SAFETY: every row is visited once.
        let (mean, rstd) = unsafe { (mean.part(row, 1), rstd.part(row, 1)) };
        (mean[0], rstd[0]) = (high, scale);
        for (i, data) in data.chunks_mut(BLOCK).enumerate() {
            let (start, len) = (i * BLOCK, data.len());
            let mut buffers = [[0.0; BLOCK]; 2];
            let [weights, biases] = &mut buffers;
            let weight = part(weight.as_ref(), &ONES, start, &mut weights[..len]);
            let bias = part(bias.as_ref(), &ZEROS, start, &mut biases[..len]);
            normalise(data, weight, bias, (high, low), scale);
        }
    })
}

/// The `i`-th input, if there is one.
pub(crate) fn affine<'a, T: Float>(
    inputs: &'a [View<'_>],
    i: usize,
) -> Result<Option<Reader<'a, T>>, KernelError> {
    inputs.get(i).map(Reader::new).transpose()
}

pub(crate) static ONES: [f32; BLOCK] = [1.0; BLOCK];
pub(crate) static ZEROS: [f32; BLOCK] = [0.0; BLOCK];

/// The elements from the `start`-th, as many as `buffer` holds; those of `otherwise` if there are none.
pub(crate) fn part<'a>(
    reader: Option<&'a Reader<'_, impl Float>>,
    otherwise: &'static [f32; BLOCK],
    start: usize,
    buffer: &'a mut [f32],
) -> &'a [f32] {
    match reader {
        Some(reader) => reader.read(start, buffer),
        None => &otherwise[..buffer.len()],
    }
}

/// The mean, as the sum of two numbers of which the first is the mean rounded.
fn split_mean(x: &[f32]) -> (f32, f32) {
    let mean = sum_block(x) / x.len() as f64;
    let high = mean as f32;
    (high, (mean - f64::from(high)) as f32)
}

multiversion! {
    /// The sum of the squares of distances from the mean.
    pub(crate) fn squares[I](x: &[f32], high: f32, low: f32) -> f32 {
        const LANES: usize = 64;
        let mut lanes = [0.0; LANES];
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                let distance = (x - high) - low;
                *lane = I::fma(distance, distance, *lane);
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            let distance = (x - high) - low;
            *lane = I::fma(distance, distance, *lane);
        }
        sum_lanes(lanes)
    }
}

multiversion! {
    /// Normalises a part of a row.
    pub(crate) fn normalise[I](x: &mut [f32], weight: &[f32], bias: &[f32], mean: (f32, f32), scale: f32) {
        for ((x, &weight), &bias) in x.iter_mut().zip(weight).zip(bias) {
            let distance = (*x - mean.0) - mean.1;
            *x = I::fma(distance * scale, weight, bias);
        }
    }
}
