//! Matrix products.

mod cpu;
mod reference;

pub(crate) use cpu::Stack;

use crate::kernels::checks::one_float_dtype;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::table::{f32_view, f32s, is_shape};
use crate::{Entry, Fill, Reject, Sample};
use highwater_graph::{Autocast, Backward, Cost, DType, Layout, Op, OpError, Operand, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY, SUM_BATCHES];

/// `c[.., i, j] = sum over l of a[.., i, l] * b[.., l, j]`: `torch.matmul` of two tensors of at
/// least two dimensions, the leading ones broadcast.
///
/// Inputs `a: [.., m, k]` and `b: [.., k, n]` of one float dtype, of any strides: transposed
/// operands are read as they lie. Output `[.., m, n]`. Accumulates in `f32` with fused
/// multiply-adds. `2 m n k` operations per product. Operands of one dimension are refused: give
/// them a second one of extent 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MatMul {
    /// Stores the last two dimensions of the output transposed (column-major), so that the storage
    /// of a gradient has the order of its operand's. Shape and meaning stay.
    pub transpose_output: bool,
}

/// [`MatMul`], then summed over the leading dimensions in which `batch` has extent 1 or none: the
/// gradient of an operand that was broadcast. Products are added in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatMulSumBatches {
    /// As in [`MatMul`].
    pub transpose_output: bool,
    /// The leading dimensions of the output; broadcasts to those of the operands' product.
    pub batch: Shape,
}

const ENTRY: Entry = Entry {
    name: "matmul",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::MatMulKernel::<T>(PhantomData); Precise::new(reference::matmul)
    },
    reference: reference::matmul,
    samples,
    rejects,
};

const SUM_BATCHES: Entry = Entry {
    name: "matmul_sum_batches",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::SumBatchesKernel::<T>(PhantomData); Precise::new(reference::sum_batches)
    },
    reference: reference::sum_batches,
    samples: sum_batches_samples,
    rejects: sum_batches_rejects,
};

/// Extents of a product: leading dimensions, then m, n, k.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extents {
    pub(crate) batch: Shape,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

/// The leading dimensions of a matrix or stack of matrices.
pub(crate) fn batch_of(shape: &Shape) -> Shape {
    Shape::from(&shape[..shape.rank().saturating_sub(2)])
}

/// A shape of leading dimensions and two more.
fn stacked(batch: &Shape, rows: usize, cols: usize) -> Shape {
    batch.iter().copied().chain([rows, cols]).collect()
}

/// Whether the columns of a matrix lie dense, and its rows do not.
pub(crate) fn is_column_major(layout: &Layout) -> bool {
    let rank = layout.shape().rank();
    rank >= 2 && layout.strides()[rank - 2] == 1 && layout.strides()[rank - 1] > 1
}

/// A dense layout whose last two dimensions are stored transposed if `transposed`.
pub(crate) fn dense(shape: &Shape, transposed: bool) -> Layout {
    let rank = shape.rank();
    let plain = Layout::contiguous(shape.clone());
    if !transposed || rank < 2 {
        return plain;
    }
    let mut dims: SmallVec<[usize; 5]> = SmallVec::from_slice(shape);
    dims.swap(rank - 2, rank - 1);
    Layout::contiguous(dims.as_slice())
        .transpose(rank - 2, rank - 1)
        .unwrap_or(plain)
}

fn extents(op: &'static str, inputs: &[Spec]) -> Result<Extents, OpError> {
    OpError::check_arity(op, inputs, 2)?;
    let (a, b) = (inputs[0].shape(), inputs[1].shape());
    let bad = |expected: &str| Err(OpError::shape(op, expected, format!("{a} and {b}")));
    let ([.., m, k], [.., k_b, n]) = (a.dims(), b.dims()) else {
        return bad("two tensors of at least two dimensions");
    };
    if k != k_b {
        return bad("as many columns in the first as rows in the second");
    }
    let Some(batch) = batch_of(a).broadcast(&batch_of(b)) else {
        return bad("leading dimensions that broadcast");
    };
    Ok(Extents {
        batch,
        m: *m,
        n: *n,
        k: *k,
    })
}

fn cost(op: &'static str, inputs: &[Spec], outputs: &[Spec]) -> Cost {
    let flops = extents(op, inputs).map_or(0.0, |e| {
        2.0 * e.batch.numel() as f64 * e.m as f64 * e.n as f64 * e.k as f64
    });
    Cost {
        matmul_flops: flops,
        vector_flops: 0.0,
        ..Cost::elementwise(inputs, outputs, 0.0)
    }
}

impl Op for MatMul {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_u8(self.transpose_output.into());
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let Extents { batch, m, n, .. } = extents(self.name(), inputs)?;
        let dtype = one_float_dtype(self.name(), &[&inputs[0], &inputs[1]])?;
        let layout = dense(&stacked(&batch, m, n), self.transpose_output);
        Ok(smallvec![Spec { dtype, layout }])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(self.name(), inputs, outputs)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0) else {
            return Ok(());
        };
        set_both(backward, &grad)
    }
}

impl Op for MatMulSumBatches {
    fn name(&self) -> &'static str {
        SUM_BATCHES.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_u8(self.transpose_output.into());
        hasher.write_usize(self.batch.rank());
        for &extent in self.batch.iter() {
            hasher.write_usize(extent);
        }
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let Extents { batch, m, n, .. } = extents(self.name(), inputs)?;
        let dtype = one_float_dtype(self.name(), &[&inputs[0], &inputs[1]])?;
        if Layout::contiguous(self.batch.clone())
            .expand(&batch)
            .is_none()
        {
            let expected =
                format!("an attribute that broadcasts to the leading dimensions {batch}");
            return Err(OpError::shape(
                self.name(),
                expected,
                self.batch.to_string(),
            ));
        }
        let layout = dense(&stacked(&self.batch, m, n), self.transpose_output);
        Ok(smallvec![Spec { dtype, layout }])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(self.name(), inputs, outputs)
    }

    /// That of a product whose batches all have the one gradient.
    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0) else {
            return Ok(());
        };
        let (a, b) = (backward.input(0), backward.input(1));
        let Extents { batch, m, n, .. } = extents(self.name(), &[a.spec.clone(), b.spec.clone()])?;
        let all = stacked(&batch, m, n);
        let repeated = grad.spec.layout.expand(&all);
        let refused = || OpError::shape(self.name(), all.to_string(), grad.spec.to_string());
        let grad = grad.with_layout(repeated.ok_or_else(refused)?);
        set_both(backward, &grad)
    }
}

/// Sets the gradients of both factors, of the product's.
fn set_both(backward: &mut Backward<'_>, grad: &Operand) -> Result<(), OpError> {
    let (a, b) = (backward.input(0), backward.input(1));
    if backward.needs(0) {
        let grad = product_like(backward, &a, grad, &transposed(&b))?;
        backward.set(0, grad);
    }
    if backward.needs(1) {
        let grad = product_like(backward, &b, &transposed(&a), grad)?;
        backward.set(1, grad);
    }
    Ok(())
}

/// The operand with its last two dimensions swapped.
pub(crate) fn transposed(operand: &Operand) -> Operand {
    let rank = operand.shape().rank();
    let layout = operand.spec.layout.transpose(rank - 2, rank - 1);
    layout.map_or_else(|| operand.clone(), |layout| operand.with_layout(layout))
}

/// Emits `left · right`, summed to the shape of `like` and stored in its order.
pub(crate) fn product_like(
    backward: &mut Backward<'_>,
    like: &Operand,
    left: &Operand,
    right: &Operand,
) -> Result<Operand, OpError> {
    let transpose_output = is_column_major(&like.spec.layout);
    let plain = MatMul { transpose_output };
    let want = batch_of(like.shape());
    let full = batch_of(left.shape()).broadcast(&batch_of(right.shape()));
    let product = if full.is_none_or(|full| full.numel() == want.numel()) {
        backward.emit_one(plain, &[left.clone(), right.clone()])?
    } else if let Some(flat) = batches_as_depth(left, right).filter(|_| want.numel() == 1) {
        backward.emit_one(plain, &flat)?
    } else {
        let sum = MatMulSumBatches {
            transpose_output,
            batch: want,
        };
        backward.emit_one(sum, &[left.clone(), right.clone()])?
    };
    let reshaped = product.spec.layout.reshape(like.shape());
    Ok(reshaped.map_or_else(|| product.clone(), |layout| product.with_layout(layout)))
}

/// `[.., m, k]` and `[.., k, n]` seen as `[m, .. k]` and `[.. k, n]`, whose product is the sum over
/// the leading dimensions. `None` if strides cannot say so.
fn batches_as_depth(left: &Operand, right: &Operand) -> Option<[Operand; 2]> {
    let rank = left.shape().rank();
    if batch_of(left.shape()) != batch_of(right.shape()) {
        return None;
    }
    let order: SmallVec<[usize; 5]> = std::iter::once(rank - 2)
        .chain(0..rank - 2)
        .chain([rank - 1])
        .collect();
    let depth = batch_of(left.shape()).numel() * left.shape()[rank - 1];
    let (m, n) = (left.shape()[rank - 2], right.shape()[rank - 1]);
    let left_layout = left
        .spec
        .layout
        .permute(&order)?
        .reshape(&[m, depth].into())?;
    let right_layout = right.spec.layout.reshape(&[depth, n].into())?;
    Some([
        left.with_layout(left_layout),
        right.with_layout(right_layout),
    ])
}

fn samples() -> Vec<Sample> {
    let plain = |shapes: &[&[usize]]| Sample::new(MatMul::default(), shapes).tolerance(1e-4);
    let stored = MatMul {
        transpose_output: true,
    };
    let normal = Fill::Normal(1.0);
    let flipped = |rows, cols| f32_view(dense(&[rows, cols].into(), true));
    let wide = Layout::strided([7, 13], &[20, 1], 43);
    let sparse = Layout::strided([13, 7], &[22, 3], 1);
    let heads = Layout::strided([2, 3, 9, 8], &[216, 8, 24, 1], 0);
    let keys = Layout::strided([2, 3, 8, 9], &[216, 8, 1, 24], 0);
    let repeated = Layout::strided([3, 5, 7], &[0, 7, 1], 0);
    vec![
        plain(&[&[5, 7], &[7, 3]]),
        plain(&[&[1, 33], &[33, 1]]),
        plain(&[&[37, 130], &[130, 65]]),
        plain(&[&[130, 700], &[700, 65]]),
        plain(&[&[2, 5, 7], &[7, 3]]),
        plain(&[&[5, 7], &[2, 7, 3]]),
        plain(&[&[2, 1, 4, 5], &[3, 5, 6]]),
        plain(&[&[0, 5], &[5, 3]]),
        plain(&[&[4, 0], &[0, 3]]),
        plain(&[&[0, 4, 5], &[0, 5, 3]]),
        plain(&[&[13, 17], &[17, 19]])
            .input(0, flipped(13, 17), normal)
            .input(1, flipped(17, 19), normal),
        plain(&[&[7, 13], &[13, 7]])
            .input(0, f32_view(wide), normal)
            .input(1, f32_view(sparse), normal),
        plain(&[&[2, 3, 9, 8], &[2, 3, 8, 9]])
            .input(0, f32_view(heads), normal)
            .input(1, f32_view(keys), normal),
        plain(&[&[3, 5, 7], &[3, 7, 2]]).input(0, f32_view(repeated), normal),
        Sample::new(stored, &[&[37, 20], &[20, 65]]).tolerance(1e-4),
        Sample::new(stored, &[&[3, 4, 20], &[20, 65]]).tolerance(1e-4),
    ]
}

fn rejects() -> Vec<Reject> {
    let reject = |a: Spec, b: Spec, error| Reject::new(MatMul::default(), vec![a, b], error);
    let f32 = |shape: &[usize]| f32s(shape);
    let shape = |error: &OpError| matches!(error, OpError::Shape { op: "matmul", .. });
    let dtype = |error: &OpError| matches!(error, OpError::DType { op: "matmul", .. });
    vec![
        reject(f32(&[3]), f32(&[3, 2]), shape),
        reject(f32(&[2, 3]), f32(&[3]), shape),
        reject(f32(&[2, 3]), f32(&[4, 2]), shape),
        reject(f32(&[2, 2, 3]), f32(&[3, 3, 2]), shape),
        reject(f32(&[2, 3]), Spec::contiguous(DType::BF16, [3, 2]), dtype),
        reject(
            Spec::contiguous(DType::I64, [2, 3]),
            Spec::contiguous(DType::I64, [3, 2]),
            dtype,
        ),
        Reject {
            op: Arc::new(MatMul::default()),
            inputs: vec![f32(&[2, 2])],
            error: |error| matches!(error, OpError::Arity { op: "matmul", .. }),
        },
    ]
}

fn sum_batches_samples() -> Vec<Sample> {
    let sample = |batch: &[usize], transpose_output, shapes: &[&[usize]]| {
        let op = MatMulSumBatches {
            transpose_output,
            batch: batch.into(),
        };
        Sample::new(op, shapes).tolerance(1e-4)
    };
    vec![
        sample(&[], false, &[&[3, 5, 7], &[3, 7, 4]]),
        sample(&[1], true, &[&[3, 37, 7], &[3, 7, 65]]),
        sample(&[2, 1], false, &[&[2, 3, 5, 7], &[3, 7, 4]]),
        sample(&[3, 1], false, &[&[2, 3, 4, 5, 7], &[4, 7, 4]]),
        sample(&[], false, &[&[0, 5, 7], &[0, 7, 4]]),
        sample(&[2], false, &[&[2, 5, 0], &[2, 0, 4]]),
    ]
}

fn sum_batches_rejects() -> Vec<Reject> {
    let op = MatMulSumBatches {
        transpose_output: false,
        batch: [3].into(),
    };
    vec![Reject::new(
        op,
        vec![f32s([2, 5, 7]), f32s([2, 7, 5])],
        is_shape,
    )]
}
