use super::{Extents, batch_of};
use crate::gemm::{Mat, MatMut, Plus, gemm, gemm_serial};
use crate::indices::position;
use crate::{Args, KernelError, View};
use highwater_graph::{Layout, Op, Shape};

/// Below this many multiplications each, products of a stack run side by side on one thread each.
const SIDE_BY_SIDE: usize = 1 << 23;

/// A stack of matrices to read.
pub(crate) struct Stack<'a> {
    data: &'a [f32],
    layout: Layout,
}

impl<'a> Stack<'a> {
    /// The matrices of a view, seen through a layout of its storage.
    pub(crate) fn new(view: &'a View<'_>, layout: Layout) -> Result<Self, KernelError> {
        let data = view.storage()?;
        Ok(Self { data, layout })
    }

    /// The matrix at an index of the leading dimensions.
    pub(crate) fn get(&self, index: usize) -> Mat<'a> {
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
fn stack<'a>(view: &'a View<'_>, batch: &Shape) -> Result<Stack<'a>, KernelError> {
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

fn extents(inputs: &[View<'_>]) -> Extents {
    let (a, b) = (inputs[0].dims(), inputs[1].dims());
    let batch = batch_of(inputs[0].layout().shape());
    let batch = batch.broadcast(&batch_of(inputs[1].layout().shape()));
    Extents {
        batch: batch.unwrap_or_default(),
        m: a[a.len() - 2],
        n: b[b.len() - 1],
        k: a[a.len() - 1],
    }
}

pub(super) fn matmul(_op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let Extents { batch, m, n, k } = extents(args.inputs);
    let (a, b) = (&args.inputs[0], &args.inputs[1]);
    let strides = matrix_strides(args.outputs[0].layout());
    let out = args.outputs[0].storage_mut::<f32>()?;
    let out = &mut out[..batch.numel() * m * n];
    let batches = batch.numel();
    if let Some(flat) = as_rows(a, b, &batch).filter(|_| strides == [n, 1]) {
        let a = Stack::new(a, flat)?.get(0);
        let b = stack(b, &Shape::scalar())?.get(0);
        gemm(
            args.pool,
            MatMut::dense(out, batches * m, n),
            a,
            b,
            Plus::Nothing,
        );
        return Ok(());
    }
    let (a, b) = (stack(a, &batch)?, stack(b, &batch)?);
    if m * n * k < SIDE_BY_SIDE && batches > 1 {
        args.pool.for_each_chunk(out, m * n, |i, out| {
            gemm_serial(
                args.pool,
                MatMut::new(out, [m, n], strides),
                a.get(i),
                b.get(i),
                Plus::Nothing,
            );
        });
    } else {
        for (i, out) in out.chunks_mut((m * n).max(1)).enumerate() {
            let out = MatMut::new(out, [m, n], strides);
            gemm(args.pool, out, a.get(i), b.get(i), Plus::Nothing);
        }
    }
    Ok(())
}

/// If the second operand is one matrix for the whole stack, the stack as rows of one matrix.
fn as_rows(a: &View<'_>, b: &View<'_>, batch: &Shape) -> Option<Layout> {
    let [.., m, k] = *a.dims() else { return None };
    if b.dims().len() != 2 || batch_of(a.layout().shape()) != *batch {
        return None;
    }
    a.layout().reshape(&[batch.numel() * m, k].into())
}

pub(super) fn sum_batches(_op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let Extents { batch, m, n, .. } = extents(args.inputs);
    let (a, b) = (
        stack(&args.inputs[0], &batch)?,
        stack(&args.inputs[1], &batch)?,
    );
    let layout = args.outputs[0].layout();
    let strides = matrix_strides(layout);
    let own = batch_of(layout.shape());
    let targets = Layout::contiguous(own.clone()).expand(&batch);
    let targets = targets.unwrap_or_else(|| Layout::contiguous(own));
    let out = args.outputs[0].storage_mut::<f32>()?;
    out[..layout.numel()].fill(0.0);
    for i in 0..batch.numel() {
        let start = position(batch.dims(), targets.strides(), i) * m * n;
        let out = MatMut::new(&mut out[start..start + m * n], [m, n], strides);
        gemm(args.pool, out, a.get(i), b.get(i), Plus::Output);
    }
    Ok(())
}
