//! The fast kernels: one product of all rows, where those lie evenly, and the bias's gradient by columns.
//!
//! The bias goes to `gemm` as a row that all rows of the product are added to, so that no pass writes it to
//! the output first, unless its elements lie apart. `gemm` says how it blocks, and in which order it sums.
//!
//! The gradient is a sum of rows. A task has a band of columns, 1,024 at most and as many bands as threads or
//! a multiple of them, and goes down all rows: neighbours are added side by side in `f32`, 64 rows to a sum,
//! and these sums to each other, each in order, so that rounding grows with a 64th of the rows. No task waits
//! for another, and neither threads nor bands change the order. Sums of a band (4 KiB) stay in a first cache;
//! a row's part is a long run of memory.

use crate::kernels::float::Float;
use crate::kernels::gemm::{Mat, MatMut, Plus, gemm, staging_len};
use crate::kernels::simd::add_to;
use crate::kernels::strided::{for_each_piece, gather};
use crate::ops::matmul::Stack;
use crate::{Args, Kernel, KernelError, View};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// Rows of the output that one task fills with the bias.
const BIAS_ROWS: usize = 64;
/// Columns that one task sums: at most, and a number that theirs is a multiple of.
const COLUMNS: [usize; 2] = [1024, 64];
/// Rows that are summed before their sum is added to the others'.
const SUM_ROWS: usize = 64;

/// Keeps sums in scratch memory, where the output is narrower than they are.
pub(super) struct LinearKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for LinearKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, _: &[Spec], outputs: &[Spec], _threads: usize) -> u64 {
        staging_bytes::<T>(&outputs[0])
    }

    fn launch(&self, _op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        linear::<T>(args)
    }
}

/// What a product that fills all of an output needs besides.
pub(crate) fn staging_bytes<T: Float>(output: &Spec) -> u64 {
    let shape = output.shape();
    let outs = shape.last().copied().unwrap_or(1);
    let rows = shape.numel() / outs.max(1);
    (staging_len::<T>(rows, outs) * size_of::<f32>()) as u64
}

fn linear<T: Float>(args: &mut Args<'_>) -> Result<(), KernelError> {
    let w = &args.inputs[1];
    let [outs, _] = *w.dims() else {
        return Ok(());
    };
    let w = Stack::<T>::new(w, w.layout().clone())?.get(0).t();
    let out = args.outputs[0].slice_mut::<T>()?;
    let staging: &mut [f32] = bytemuck::cast_slice_mut(args.scratch);
    if out.is_empty() {
        return Ok(());
    }
    let bias = args.inputs.get(2);
    let bias = bias
        .map(|b| Ok((b.storage::<T>()?, b.layout())))
        .transpose()?;
    let plus = match bias {
        None => Plus::Nothing,
        Some((bias, layout)) if layout.strides()[0] == 1 => {
            Plus::Row(&bias[layout.offset()..layout.offset() + outs])
        }
        Some((bias, layout)) => {
            args.pool.for_each_chunk(out, BIAS_ROWS * outs, |_, rows| {
                for row in rows.chunks_mut(outs) {
                    gather(bias, layout, 0, row);
                }
            });
            Plus::Output
        }
    };
    each_matrix(&args.inputs[0], out, outs, |out, x| {
        gemm(args.pool, out, x, w, plus, staging);
    })
}

/// Hands `multiply` the rows of a tensor as matrices, as few as can be, each with the rows of so many columns
/// that it fills.
pub(crate) fn each_matrix<T: Float>(
    x: &View<'_>,
    out: &mut [T],
    cols: usize,
    mut multiply: impl FnMut(MatMut<'_, T>, Mat<'_, T>),
) -> Result<(), KernelError> {
    if out.is_empty() {
        return Ok(());
    }
    let width = x.dims().last().copied().unwrap_or(1);
    let rows = out.len() / cols;
    if let Some(flat) = x.layout().reshape(&[rows, width].into()) {
        multiply(MatMut::dense(out, rows, cols), Stack::new(x, flat)?.get(0));
        return Ok(());
    }
    let stack = Stack::new(x, x.layout().clone())?;
    let rows = x.dims()[x.dims().len() - 2];
    for (i, out) in out.chunks_mut(rows * cols).enumerate() {
        multiply(MatMut::dense(out, rows, cols), stack.get(i));
    }
    Ok(())
}

pub(super) fn bias_backward<T: Float>(
    _op: &dyn Op,
    args: &mut Args<'_>,
) -> Result<(), KernelError> {
    let grad = &args.inputs[0];
    let (layout, grad) = (grad.layout(), grad.storage::<T>()?);
    let out = args.outputs[0].slice_mut::<T>()?;
    let width = out.len();
    if width == 0 {
        return Ok(());
    }
    let count = layout.numel() / width;
    let [most, multiple] = COLUMNS;
    let bands = width.div_ceil(most).next_multiple_of(args.pool.threads());
    let band = width.div_ceil(bands).next_multiple_of(multiple);
    args.pool.for_each_chunk(out, band, |i, out| {
        let [mut block, mut total] = [[0.0; COLUMNS[0]]; 2];
        let len = out.len();
        let (block, total) = (&mut block[..len], &mut total[..len]);
        for first in (0..count).step_by(SUM_ROWS) {
            block.fill(0.0);
            for row in first..count.min(first + SUM_ROWS) {
                let start = row * width + i * band;
                for_each_piece(grad, layout, start, len, &mut |at, x| {
                    add_to(&mut block[at..], x);
                });
            }
            add_to(total, block);
        }
        T::round(total, out);
    });
    Ok(())
}
