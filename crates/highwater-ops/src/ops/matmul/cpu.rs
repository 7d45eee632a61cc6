//! The fast kernels: stacks of products.
//!
//! Where the second operand is one matrix for the whole stack, all rows are one product, whose right factor
//! is packed once. Else products below 2^23 multiplications are one task each, since there is little to cut
//! in one, and larger ones run one after the other on all threads. `gemm` says how it blocks, and in which
//! order it sums: an element's bits are the same either way. A sum over a stack (`sum_batches`) is added
//! product after product, in their order.

#![expect(unsafe_code, reason = "tasks write matrices of one output")]

use super::{Extents, batch_of};
use crate::kernels::float::Float;
use crate::kernels::gemm::{Mat, MatMut, Plus, gemm, gemm_serial, gemm_sum, staging_len};
use crate::kernels::indices::position;
use crate::{Args, Disjoint, Kernel, KernelError, View};
use highwater_graph::{Layout, Op, Shape, Spec};
use std::marker::PhantomData;

/// Below this many multiplications each, products of a stack run side by side on one thread each.
const SIDE_BY_SIDE: usize = 1 << 23;

/// A stack of matrices to read.
pub(crate) struct Stack<'a, T> {
    data: &'a [T],
    layout: Layout,
}

impl<'a, T: Float> Stack<'a, T> {
    /// The matrices of a view, seen through a layout of its storage.
    pub(crate) fn new(view: &'a View<'_>, layout: Layout) -> Result<Self, KernelError> {
        let data = view.storage()?;
        Ok(Self { data, layout })
    }

    /// The matrix at an index of the leading dimensions.
    pub(crate) fn get(&self, index: usize) -> Mat<'a, T> {
        let (dims, strides) = (self.layout.shape().dims(), self.layout.strides());
        let lead = dims.len() - 2;
        let [rows, cols] = [dims[lead], dims[lead + 1]];
        let start = self.layout.offset() + position(&dims[..lead], &strides[..lead], index);
        let data = if rows * cols == 0 {
            &[]
        } else {
            &self.data[start..]
        };
        Mat::new(data, [rows, cols], [strides[lead], strides[lead + 1]])
    }
}

/// The matrices of a view, its leading dimensions broadcast to `batch`.
fn stack<'a, T: Float>(view: &'a View<'_>, batch: &Shape) -> Result<Stack<'a, T>, KernelError> {
    let dims = view.dims();
    let full: Shape = batch
        .iter()
        .chain(&dims[dims.len() - 2..])
        .copied()
        .collect();
    let layout = view.layout().expand(&full);
    Stack::new(view, layout.unwrap_or_else(|| view.layout().clone()))
}

/// Strides of one matrix of an output.
fn matrix_strides(layout: &Layout) -> [usize; 2] {
    let strides = layout.strides();
    [strides[strides.len() - 2], strides[strides.len() - 1]]
}

/// Keeps sums in scratch memory, where the output is narrower than they are.
pub(super) struct MatMulKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for MatMulKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        let (a, b) = (&inputs[0].layout, &inputs[1].layout);
        let extents = Extents::of(a.shape(), b.shape());
        let Extents { batch, m, n, .. } = &extents;
        let products = match as_rows(a, b, batch) {
            Some(_) => staging_len::<T>(batch.numel() * m, *n),
            None => 0,
        };
        let side_by_side = if extents.are_side_by_side() {
            threads
        } else {
            1
        };
        let staging = products.max(side_by_side * staging_len::<T>(*m, *n));
        (staging * size_of::<f32>()) as u64
    }

    fn launch(&self, _op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        matmul::<T>(args)
    }
}

impl Extents {
    fn of(a: &Shape, b: &Shape) -> Self {
        let batch = batch_of(a).broadcast(&batch_of(b));
        Self {
            batch: batch.unwrap_or_default(),
            m: a[a.rank() - 2],
            n: b[b.rank() - 1],
            k: a[a.rank() - 1],
        }
    }

    /// Whether products of the stack run side by side.
    fn are_side_by_side(&self) -> bool {
        self.m * self.n * self.k < SIDE_BY_SIDE && self.batch.numel() > 1
    }
}

fn matmul<T: Float>(args: &mut Args<'_>) -> Result<(), KernelError> {
    let (a, b) = (&args.inputs[0], &args.inputs[1]);
    let extents = Extents::of(a.layout().shape(), b.layout().shape());
    let Extents { batch, m, n, .. } = &extents;
    let (m, n) = (*m, *n);
    let strides = matrix_strides(args.outputs[0].layout());
    let out = args.outputs[0].storage_mut::<T>()?;
    let batches = batch.numel();
    let out = &mut out[..batches * m * n];
    let staging: &mut [f32] = bytemuck::cast_slice_mut(args.scratch);
    if let Some(flat) = as_rows(a.layout(), b.layout(), batch).filter(|_| strides == [n, 1]) {
        let a = Stack::<T>::new(a, flat)?.get(0);
        let b = stack::<T>(b, &Shape::scalar())?.get(0);
        let out = MatMut::dense(out, batches * m, n);
        gemm(args.pool, out, a, b, Plus::Nothing, staging);
        return Ok(());
    }
    let (a, b) = (stack::<T>(a, batch)?, stack::<T>(b, batch)?);
    if extents.are_side_by_side() {
        let (out, staging) = (Disjoint::new(out), Disjoint::new(staging));
        let len = staging_len::<T>(m, n);
        args.pool.for_each_on_thread(batches, |i, thread| {
            // SAFETY: each product is computed once, and a thread has its staging to itself.
            let (out, staging) =
                unsafe { (out.part(i * m * n, m * n), staging.part(thread * len, len)) };
            let out = MatMut::new(out, [m, n], strides);
            gemm_serial(args.pool, out, a.get(i), b.get(i), Plus::Nothing, staging);
        });
    } else {
        for (i, out) in out.chunks_mut((m * n).max(1)).enumerate() {
            let out = MatMut::new(out, [m, n], strides);
            gemm(args.pool, out, a.get(i), b.get(i), Plus::Nothing, staging);
        }
    }
    Ok(())
}

/// If the second operand is one matrix for the whole stack, the stack as rows of one matrix.
fn as_rows(a: &Layout, b: &Layout, batch: &Shape) -> Option<Layout> {
    let [.., m, k] = *a.shape().dims() else {
        return None;
    };
    if b.shape().rank() != 2 || batch_of(a.shape()) != *batch {
        return None;
    }
    a.reshape(&[batch.numel() * m, k].into())
}

/// Keeps sums in scratch memory, where the output is narrower than they are.
pub(super) struct SumBatchesKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for SumBatchesKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], _threads: usize) -> u64 {
        let Extents { m, n, .. } = Extents::of(inputs[0].shape(), inputs[1].shape());
        (staging_len::<T>(m, n) * size_of::<f32>()) as u64
    }

    fn launch(&self, _op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        sum_batches::<T>(args)
    }
}

fn sum_batches<T: Float>(args: &mut Args<'_>) -> Result<(), KernelError> {
    let (a, b) = (&args.inputs[0], &args.inputs[1]);
    let Extents { batch, m, n, .. } = Extents::of(a.layout().shape(), b.layout().shape());
    let (a, b) = (stack::<T>(a, &batch)?, stack::<T>(b, &batch)?);
    let layout = args.outputs[0].layout();
    let strides = matrix_strides(layout);
    let own = batch_of(layout.shape());
    let targets = Layout::contiguous(own.clone()).expand(&batch);
    let targets = targets.unwrap_or_else(|| Layout::contiguous(own));
    let target = |i: usize| position(batch.dims(), targets.strides(), i);
    let out = args.outputs[0].storage_mut::<T>()?;
    let staging: &mut [f32] = bytemuck::cast_slice_mut(args.scratch);
    let out = &mut out[..layout.numel()];
    out.fill(T::zeroed());
    for (matrix, out) in out.chunks_exact_mut((m * n).max(1)).enumerate() {
        let own = (0..batch.numel()).filter(|&i| target(i) == matrix);
        let factors = own.map(|i| (a.get(i), b.get(i)));
        let out = MatMut::new(out, [m, n], strides);
        gemm_sum(args.pool, out, factors, staging);
    }
    Ok(())
}
