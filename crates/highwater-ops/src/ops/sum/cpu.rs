//! The fast kernel, cut as `reduction.rs` says: it adds along rows, or whole rows to a row of sums.
//!
//! A block of 1,024 elements is added in 32 lanes of `f64`: four vectors with AVX-512, eight
//! with AVX2, so that additions need not wait for each other. An element's lane is its place modulo 32, and
//! lanes are added by halves; blocks of a segment, and then segments, in their order. All of it follows from
//! shape, strides and dimensions: threads decide who adds a segment, and nothing else. Columns are added in
//! `f64` too, neighbours side by side, row after row. Rows run at 87% of the pace of a copy, columns at 97%
//! (BENCHMARKS.md).

#![expect(unsafe_code, reason = "tasks write disjoint sums")]

use super::Reduction;
use crate::kernels::blocks::{BLOCK, Reader};
use crate::kernels::float::Float;
use crate::kernels::reduction::{Plan, TASK};
use crate::kernels::simd::{multiversion, sum_block};
use crate::{Args, Disjoint, Kernel, KernelError, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// Keeps the sums of segments in scratch memory.
pub(super) struct SumKernel<R, T>(pub(super) PhantomData<fn() -> (R, T)>);

impl<R: Reduction, T: Float> Kernel for SumKernel<R, T> {
    fn scratch_bytes(&self, op: &dyn Op, inputs: &[Spec], _: &[Spec], _threads: usize) -> u64 {
        let layout = &inputs[0].layout;
        let plan = op
            .downcast()
            .and_then(|op: &R| op.plan(layout.shape()).ok());
        plan.map_or(0, |(mask, _)| Plan::new(layout, &mask).scratch_bytes())
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        reduce::<R, T>(op_as::<R>(op)?, args)
    }
}

fn reduce<R: Reduction, T: Float>(op: &R, args: &mut Args<'_>) -> Result<(), KernelError> {
    let input = &args.inputs[0];
    let Ok((mask, _)) = op.plan(input.spec().shape()) else {
        return Err(KernelError::WrongOp { op: op.name() });
    };
    let plan = Plan::new(input.layout(), &mask);
    let divisor = op.divisor(plan.count);
    let reader = Reader::<T>::through(input, &plan.layout)?;
    let output = args.outputs[0].slice_mut::<T>()?;
    let segments = plan.segments();
    if segments == 1 {
        let output = Disjoint::new(output);
        for_each_tile(args.pool, &plan, &reader, |_, start, sums| {
            // SAFETY: tiles do not overlap.
            let output = unsafe { output.part(start, sums.len()) };
            for (y, sum) in output.iter_mut().zip(sums) {
                *y = T::nearest((sum / divisor) as f32);
            }
        });
        return Ok(());
    }
    let scratch: &mut [f64] = bytemuck::cast_slice_mut(args.scratch);
    let partial = Disjoint::new(&mut scratch[..segments * plan.sums]);
    for_each_tile(args.pool, &plan, &reader, |segment, start, sums| {
        // SAFETY: tiles of one segment, and rows of different segments, do not overlap.
        unsafe { partial.part(segment * plan.sums + start, sums.len()) }.copy_from_slice(sums);
    });
    args.pool.for_each_chunk(output, BLOCK, |chunk, output| {
        for (i, y) in output.iter_mut().enumerate() {
            let of_segments = scratch[chunk * BLOCK + i..].iter().step_by(plan.sums);
            let sum: f64 = of_segments.take(segments).sum();
            *y = T::nearest((sum / divisor) as f32);
        }
    });
    Ok(())
}

/// Computes the sums of every segment, up to [`BLOCK`] neighbours at a time, and hands them on with
/// the segment's number and the first sum's position.
fn for_each_tile(
    pool: &crate::Pool,
    plan: &Plan,
    reader: &Reader<'_, impl Float>,
    done: impl Fn(usize, usize, &[f64]) + Send + Sync,
) {
    let width = if plan.columns {
        BLOCK
    } else {
        (TASK / plan.count.clamp(1, TASK)).min(BLOCK)
    };
    let tiles = plan.sums.div_ceil(width);
    pool.for_each(tiles * plan.segments(), |task| {
        let (segment, start) = (task / tiles, task % tiles * width);
        let mut sums = [0.0; BLOCK];
        let sums = &mut sums[..width.min(plan.sums - start)];
        if plan.columns {
            sum_columns(plan, reader, plan.range(segment), start, sums);
        } else {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = sum_row(plan, reader, plan.range(segment), start + i);
            }
        }
        done(segment, start, sums);
    });
}

/// A part of one sum.
fn sum_row(
    plan: &Plan,
    reader: &Reader<'_, impl Float>,
    range: std::ops::Range<usize>,
    sum: usize,
) -> f64 {
    let mut buffer = [0.0; BLOCK];
    let blocks = range.clone().step_by(BLOCK).map(|start| {
        let len = BLOCK.min(range.end - start);
        sum_block(reader.read(sum * plan.count + start, &mut buffer[..len]))
    });
    blocks.sum()
}

/// Parts of neighbouring sums.
fn sum_columns(
    plan: &Plan,
    reader: &Reader<'_, impl Float>,
    range: std::ops::Range<usize>,
    first: usize,
    sums: &mut [f64],
) {
    let mut buffer = [0.0; BLOCK];
    let buffer = &mut buffer[..sums.len()];
    for row in range {
        add_to(sums, reader.read(row * plan.sums + first, buffer));
    }
}

multiversion! {
    fn add_to[I](y: &mut [f64], x: &[f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y += f64::from(x);
        }
    }
}
