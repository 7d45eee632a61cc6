//! The fast kernel: logits of some rows at a time, which become losses and gradients in place.
//!
//! 256 rows of a vocabulary of 50,257 are 51 MB instead of the 412 MB of 2,048 rows. Per chunk: one
//! product makes logits, one walk over each row makes its loss and its logits' gradients in their
//! place, and two products make the gradients of `x` and, added up over the chunks, of the weight.
//! Each chunk reads the weight again, which leaves its products about four fifths of the pace of
//! products as large as a block's. Where weights are `bf16`, gradients of logits are rounded to
//! it, so that their products are of pairs too.
//!
//! A row of logits is one task, and its loss and gradients are those of `cross_entropy/row.rs`. Losses are
//! added in the order of rows, gradients of the weight chunk after chunk, in the order that `gemm` has within
//! each. How many rows a chunk has is an attribute, which no number of threads changes. The products reach
//! 79% of what the processor does at most, in `bf16` and in `f32` (BENCHMARKS.md, *Matrix products*).

#![expect(
    unsafe_code,
    reason = "tasks write rows of logits and their losses at once"
)]

use super::{LinearCrossEntropy, as_rows};
use crate::kernels::float::{Float, PIECE};
use crate::kernels::gemm::{Mat, MatMut, Plus, gemm, staging_len};
use crate::kernels::indices::Indices;
use crate::kernels::strided::gather;
use crate::ops::cross_entropy::{loss_of_row, softmax_minus_label};
use crate::ops::matmul::Stack;
use crate::{Args, Disjoint, Kernel, KernelError, Pool, Reduction, View, op_as};
use highwater_graph::{Cost, DType, Layout, Op, Spec};
use std::marker::PhantomData;

/// Whether gradients of logits are rounded before products are made of them, as PyTorch's are. `F16` would
/// lose those that are small: it is only later that they are scaled.
fn is_narrowed<T: Float>() -> bool {
    T::is(DType::BF16)
}

/// Rounds a row, into its front part.
fn narrow<T: Float>(row: &mut [f32]) {
    let mut piece = [0.0; PIECE];
    for start in (0..row.len()).step_by(PIECE) {
        let part = start..row.len().min(start + PIECE);
        let piece = &mut piece[..part.len()];
        piece.copy_from_slice(&row[part.clone()]);
        T::round(piece, &mut bytemuck::cast_slice_mut::<f32, T>(row)[part]);
    }
}

/// What all chunks share.
struct Loss<'a, T> {
    op: &'a LinearCrossEntropy,
    pool: &'a Pool,
    w: Mat<'a, T>,
    labels: Indices<'a>,
    classes: usize,
    /// One over the number of rows that count.
    factor: f64,
    /// Whether logits become gradients.
    wants_gradient: bool,
}

impl<T: Float> Loss<'_, T> {
    /// Fills `logits` with those of `x`, the rows from `first` on, or with the gradients of their
    /// losses if gradients are wanted; and `losses`.
    fn chunk(&self, first: usize, x: Mat<'_, T>, logits: &mut [f32], losses: &mut [f64]) {
        let out = MatMut::dense(logits, losses.len(), self.classes);
        gemm(self.pool, out, x, self.w.t(), Plus::Nothing, &mut []);
        let losses = Disjoint::new(losses);
        self.pool
            .for_each_chunk(logits, self.classes, |row, logits| {
                // SAFETY: each task has its own row.
                let loss = unsafe { losses.part(row, 1) };
                loss[0] = self.row(first + row, logits);
            });
    }

    fn row(&self, row: usize, logits: &mut [f32]) -> f64 {
        let label = self.labels.get(row);
        if label == self.op.ignore_index {
            if self.wants_gradient {
                logits.fill(0.0);
            }
            return 0.0;
        }
        if self.wants_gradient {
            let loss = softmax_minus_label(logits, label as usize, self.factor);
            if is_narrowed::<T>() {
                narrow::<T>(logits);
            }
            return loss;
        }
        loss_of_row(
            logits,
            &Layout::contiguous([self.classes]),
            0,
            label as usize,
        )
    }
}

/// The gradients that a run fills: in `x` by rows, in `w` with its strides.
struct Gradients<'a, T> {
    x: Option<&'a mut [T]>,
    w: Option<(&'a mut [T], [usize; 2])>,
}

impl<'a, T: Float> Gradients<'a, T> {
    fn of(op: &LinearCrossEntropy, outputs: &'a mut [View<'_>]) -> Result<Self, KernelError> {
        let (of_x, of_w) = outputs.split_at_mut(usize::from(op.grad_x));
        let of_x = of_x.first_mut().filter(|dx| !dx.is_left_out());
        let of_w = of_w.first_mut().filter(|dw| !dw.is_left_out());
        let w = match of_w {
            Some(dw) => {
                let strides = dw.layout().strides();
                let strides = [strides[0], strides[1]];
                Some((dw.storage_mut::<T>()?, strides))
            }
            None => None,
        };
        let x = of_x.map(View::slice_mut::<T>).transpose()?;
        Ok(Self { x, w })
    }

    /// What the gradients of a chunk of logits make, of rows from `first` on; `factors` are the chunk of
    /// `x`, and `w`.
    fn add<L: Float>(
        &mut self,
        pool: &Pool,
        first: usize,
        logits: Mat<'_, L>,
        [x, w]: [Mat<'_, T>; 2],
        staging: &mut [f32],
    ) {
        let (len, [classes, width]) = (x.extents()[0], w.extents());
        if let Some(dx) = &mut self.x {
            let dx = &mut dx[first * width..(first + len) * width];
            let dx = MatMut::dense(dx, len, width);
            gemm(pool, dx, logits, w, Plus::Nothing, staging);
        }
        if let Some((dw, strides)) = &mut self.w {
            let dw = MatMut::new(dw, [classes, width], *strides);
            let plus = Plus::output_if(first > 0);
            gemm(pool, dw, logits.t(), x, plus, staging);
        }
    }
}

/// Keeps losses and a chunk of logits in scratch memory; may leave gradients out.
pub(super) struct LossKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for LossKernel<T> {
    fn scratch_bytes(&self, op: &dyn Op, inputs: &[Spec], _: &[Spec], _threads: usize) -> u64 {
        let (x, w) = (&inputs[0].layout, &inputs[1].layout);
        let elements = op.downcast().map_or(0, |op: &LinearCrossEntropy| {
            op.scratch(x, w).iter().sum::<usize>() + staging::<T>(op, w)
        });
        (elements * size_of::<f32>()) as u64
    }

    fn optional(
        &self,
        op: &dyn Op,
        output: usize,
        inputs: &[Spec],
        outputs: &[Spec],
    ) -> Option<Cost> {
        let op: &LinearCrossEntropy = op.downcast()?;
        let made = outputs.get(output).filter(|_| output > 0)?;
        Some(Cost {
            written_bytes: made.bytes(),
            ..op.product(inputs, op.passes(output))
        })
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        loss::<T>(op_as(op)?, args)
    }
}

/// What the plain reference trusts: that labels are classes, or ignored.
pub(super) fn check_labels(op: &dyn Op, inputs: &[View<'_>]) -> Result<(), KernelError> {
    let op: &LinearCrossEntropy = op_as(op)?;
    let labels = Indices::of(&inputs[2])?;
    labels.check(inputs[1].dims()[0], Some(op.ignore_index))?;
    Ok(())
}

/// Elements of staging for the products that make gradients narrower than `f32`.
fn staging<T: Float>(op: &LinearCrossEntropy, w: &Layout) -> usize {
    let (classes, width) = (w.shape()[0], w.shape()[1]);
    staging_len::<T>(op.chunk_rows, width).max(staging_len::<T>(classes, width))
}

fn loss<T: Float>(op: &LinearCrossEntropy, args: &mut Args<'_>) -> Result<(), KernelError> {
    let Args {
        inputs,
        outputs,
        scratch,
        pool,
    } = args;
    let [x, w, labels] = &**inputs else {
        return Ok(());
    };
    let ([classes, width], labels) = ([w.dims()[0], w.dims()[1]], Indices::of(labels)?);
    let count = labels.check(classes, Some(op.ignore_index))?;
    let rows = labels.len();

    let lens = op.scratch(x.layout(), w.layout());
    let scratch = bytemuck::cast_slice_mut::<u8, f32>(scratch);
    let (losses, scratch) = scratch.split_at_mut(lens[0]);
    let (logits, scratch) = scratch.split_at_mut(lens[1]);
    let (copied, staging) = scratch.split_at_mut(lens[2]);
    // As many elements fit: none is wider than `f32`.
    let copied = bytemuck::cast_slice_mut::<f32, T>(copied);
    let losses = bytemuck::cast_slice_mut::<f32, f64>(losses);

    let [of_loss, of_gradients @ ..] = &mut **outputs else {
        return Ok(());
    };
    let mut gradients = Gradients::<T>::of(op, of_gradients)?;
    if let Some((dw, _)) = gradients.w.as_mut().filter(|_| rows == 0) {
        dw[..classes * width].fill(T::zeroed());
    }

    let (storage, w) = (
        x.storage::<T>()?,
        Stack::<T>::new(w, w.layout().clone())?.get(0),
    );
    let flat = as_rows(x.layout())
        .map(|flat| Stack::<T>::new(x, flat))
        .transpose()?;
    let factor = Reduction::Mean.factor(count);
    let loss = Loss {
        op,
        pool,
        w,
        labels,
        classes,
        factor,
        wants_gradient: gradients.x.is_some() || gradients.w.is_some(),
    };
    for first in (0..rows).step_by(op.chunk_rows) {
        let len = op.chunk_rows.min(rows - first);
        let x = if let Some(x) = &flat {
            x.get(0).rows(first, len)
        } else {
            let copied = &mut copied[..len * width];
            gather(storage, x.layout(), first * width, copied);
            Mat::dense(copied, len, width)
        };
        let logits = &mut logits[..len * classes];
        loss.chunk(first, x, logits, &mut losses[first..first + len]);
        if !loss.wants_gradient {
            continue;
        }
        if is_narrowed::<T>() {
            let strides = [classes * size_of::<f32>() / size_of::<T>(), 1];
            let logits = Mat::<T>::new(bytemuck::cast_slice(logits), [len, classes], strides);
            gradients.add(pool, first, logits, [x, w], staging);
        } else {
            let logits = Mat::<f32>::dense(logits, len, classes);
            gradients.add(pool, first, logits, [x, w], staging);
        }
    }
    let loss = Reduction::Mean.reduce(losses, count) as f32;
    of_loss.slice_mut::<f32>()?[0] = loss;
    Ok(())
}
