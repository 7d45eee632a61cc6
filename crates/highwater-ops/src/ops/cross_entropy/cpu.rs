//! The fast kernels: a row of logits at a time.
//!
//! Forward reads logits once from memory and keeps no probabilities; backward makes them again in
//! place of the logits, so that the pair needs no memory of the logits' size. Losses of rows are kept
//! apart and added in their order, whatever thread had which. `row.rs` has the loops.
//!
//! A task is four rows forward, as rows of a vocabulary are long, and backward as many as come to 32,768
//! elements. They run at 28 and 42% of the pace of a copy (rows of 8,192, BENCHMARKS.md): forward there is an
//! exponential for four bytes.

use super::{CrossEntropy, CrossEntropyBackward, loss_of_row, softmax_minus_label};
use crate::device::in_place;
use crate::kernels::blocks::{map_rows, row_bytes};
use crate::kernels::float::Float;
use crate::kernels::indices::Indices;
use crate::{Args, Kernel, KernelError, Pairs, View, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// Rows per task.
const ROWS: usize = 4;

/// Keeps the losses of rows in scratch memory.
pub(super) struct ForwardKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for ForwardKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], _threads: usize) -> u64 {
        (inputs[1].layout.numel() * size_of::<f64>()) as u64
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        forward::<T>(*op_as(op)?, args)
    }
}

/// May overwrite the logits.
pub(super) struct BackwardKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for BackwardKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        let width = inputs[0].shape().last().copied().unwrap_or(1);
        row_bytes::<T>(width, threads)
    }

    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        in_place(&inputs[..1], outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        backward::<T>(*op_as(op)?, args)
    }
}

/// What the plain references trust: that labels are classes, or ignored.
pub(super) fn check_labels(inputs: &[View<'_>], ignore_index: i64) -> Result<(), KernelError> {
    let width = inputs[0].dims().last().copied().unwrap_or(1);
    Indices::of(&inputs[1])?.check(width, Some(ignore_index))?;
    Ok(())
}

fn forward<T: Float>(op: CrossEntropy, args: &mut Args<'_>) -> Result<(), KernelError> {
    let CrossEntropy {
        reduction,
        ignore_index,
    } = op;
    let Args {
        inputs,
        outputs,
        scratch,
        pool,
    } = args;
    let (x, labels) = (&inputs[0], Indices::of(&inputs[1])?);
    let width = x.dims().last().copied().unwrap_or(1);
    let count = labels.check(width, Some(ignore_index))?;
    let (layout, x) = (x.layout(), x.storage::<T>()?);
    let losses = &mut bytemuck::cast_slice_mut::<u8, f64>(scratch)[..labels.len()];
    pool.for_each_chunk(losses, ROWS, |task, losses| {
        for (i, loss) in losses.iter_mut().enumerate() {
            let row = task * ROWS + i;
            let label = labels.get(row);
            *loss = if label == ignore_index {
                0.0
            } else {
                loss_of_row(x, layout, row, label as usize)
            };
        }
    });
    let loss = reduction.reduce(losses, count) as f32;
    outputs[0].slice_mut::<T>()?[0] = T::nearest(loss);
    Ok(())
}

fn backward<T: Float>(op: CrossEntropyBackward, args: &mut Args<'_>) -> Result<(), KernelError> {
    let CrossEntropyBackward {
        reduction,
        ignore_index,
    } = op;
    let [x, labels, grad] = &*args.inputs else {
        return Ok(());
    };
    let labels = Indices::of(labels)?;
    let width = x.dims().last().copied().unwrap_or(1);
    let count = labels.check(width, Some(ignore_index))?;
    let grad = f64::from(grad.storage::<T>()?[grad.layout().offset()].wide());
    let factor = reduction.factor(count) * grad;
    let (out, staging) = (&mut args.outputs[0], bytemuck::cast_slice_mut(args.scratch));
    map_rows::<T>(args.pool, x, out, staging, &|_, row, out| {
        let label = labels.get(row);
        if label == ignore_index {
            out.fill(0.0);
        } else {
            softmax_minus_label(out, label as usize, factor);
        }
    })
}
