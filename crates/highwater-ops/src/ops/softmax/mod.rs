//! Softmax over a dimension: `softmax` and `softmax_backward`.

pub(crate) mod cpu;
pub(crate) mod reference;

use crate::kernels::float::{Precise, rows_of_floats};
use crate::kernels::lines::check_dim;
use crate::kernels::pointwise::cost;
use crate::ops::matmul::one_float_dtype;
use crate::{Entry, Fill, Mul, Reject, Sample, Sub, Sum};
use highwater_graph::{Backward, Cost, DType, Layout, Op, OpError, Operand, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[SOFTMAX, SOFTMAX_BACKWARD];

/// `y_i = exp(x_i - max x) / sum_j exp(x_j - max x)` along a dimension.
///
/// As `torch.softmax(x, dim)`; a line of minus infinity alone gives NaN. One float tensor of any layout;
/// the result is row-major. Exponentials and sums are `f32` in lanes of a fixed width. One pass; in
/// place. Backward reads the output, not the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Softmax {
    /// The dimension.
    pub dim: usize,
}

/// The gradient of [`Softmax`], whose output is `y`: `y (g - sum_j g_j y_j)` of inputs `g`, which may be
/// overwritten, and `y`, of one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftmaxBackward {
    /// The dimension.
    pub dim: usize,
}

impl Op for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_usize(self.dim);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 1)?;
        lines_of(self.name(), inputs, self.dim)
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, 14.0)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0).filter(|_| backward.needs(0)) else {
            return Ok(());
        };
        let output = backward.output(0);
        let grad = backward.emit_one(SoftmaxBackward { dim: self.dim }, &[grad, output])?;
        backward.set(0, grad);
        Ok(())
    }
}

impl Op for SoftmaxBackward {
    fn name(&self) -> &'static str {
        "softmax_backward"
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_usize(self.dim);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 2)?;
        lines_of(self.name(), inputs, self.dim)
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, 4.0)
    }

    /// Of the gradient `u`: for `g` it is what this operation makes of `u`, for `y` it is
    /// `u (g - sum g y) - g sum u y`.
    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(u) = backward.grad(0) else {
            return Ok(());
        };
        let (g, y) = (backward.input(0), backward.input(1));
        if backward.needs(0) {
            let grad = backward.emit_one(*self, &[u.clone(), y.clone()])?;
            backward.set(0, grad);
        }
        if backward.needs(1) {
            let mut dot = |x: &Operand| {
                let product = backward.emit_one(Mul, &[x.clone(), y.clone()])?;
                line_sum(backward, product, self.dim)
            };
            let (of_g, of_u) = (dot(&g)?, dot(&u)?);
            let left = backward.emit_one(Sub, &[g.clone(), of_g])?;
            let left = backward.emit_one(Mul, &[u, left])?;
            let right = backward.emit_one(Mul, &[g, of_u])?;
            let grad = backward.emit_one(Sub, &[left, right])?;
            backward.set(1, grad);
        }
        Ok(())
    }
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

/// The sum along a dimension, which stays.
pub(crate) fn line_sum(
    backward: &mut Backward<'_>,
    x: Operand,
    dim: usize,
) -> Result<Operand, OpError> {
    let (dims, keepdim) = (vec![dim], true);
    backward.emit_one(Sum { dims, keepdim }, &[x])
}

const SOFTMAX: Entry = Entry {
    name: "softmax",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::SoftmaxKernel::<T>(PhantomData); Precise::new(reference::reference)
    },
    reference: reference::reference,
    samples: || line_samples(|dim| Softmax { dim }, &[Fill::Normal(2.0)]),
    rejects: || line_rejects(|dim| Softmax { dim }, 1),
};

const SOFTMAX_BACKWARD: Entry = Entry {
    name: "softmax_backward",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::BackwardKernel::<T>(PhantomData); Precise::new(reference::backward)
    },
    reference: reference::backward,
    samples: || {
        line_samples(
            |dim| SoftmaxBackward { dim },
            &[Fill::Normal(1.0), Fill::Uniform(0.0, 0.05)],
        )
    },
    rejects: || line_rejects(|dim| SoftmaxBackward { dim }, 2),
};

/// Samples of an operation along a dimension: the last and others, short and long lines, many and few,
/// views of every kind, a scalar and nothing.
pub(crate) fn line_samples<O: Op>(op: impl Fn(usize) -> O, fills: &[Fill]) -> Vec<Sample> {
    let layouts = [
        (Layout::contiguous([5, 37]), 1),
        (Layout::contiguous([2, 3, 5, 33]), 3),
        (Layout::contiguous([7, 1]), 1),
        (Layout::contiguous([2, 1025]), 1),
        (Layout::contiguous([130, 270]), 1),
        (Layout::contiguous([64]), 0),
        (Layout::contiguous([0, 5]), 1),
        (Layout::contiguous([3, 0]), 1),
        (Layout::strided([6, 37], &[1, 6], 0), 1),
        (Layout::strided([9, 65], &[130, 2], 3), 1),
        (Layout::strided([4, 9, 33], &[33, 0, 1], 0), 2),
        (Layout::contiguous([37, 5]), 0),
        (Layout::contiguous([3, 130, 70]), 1),
        (Layout::contiguous([2, 9, 5, 33]), 1),
        (Layout::contiguous([3, 2000]), 0),
        (Layout::contiguous([700, 40]), 0),
        (Layout::contiguous([0, 5]), 0),
        (Layout::strided([37, 6], &[1, 37], 0), 0),
        (Layout::strided([9, 4, 33], &[33, 0, 1], 2), 0),
        (Layout::contiguous([]), 0),
    ];
    let sample = |(layout, dim): (Layout, usize)| {
        let dense = Spec::contiguous(DType::F32, layout.shape().clone());
        let view = Spec {
            dtype: DType::F32,
            layout,
        };
        // Long lines beside each other are summed one element after the other.
        let is_long = dim == 0 && view.shape().first() > Some(&500);
        let specs = std::iter::once(view).chain(std::iter::repeat(dense));
        Sample {
            op: Arc::new(op(dim)),
            inputs: specs.zip(fills.iter().copied()).collect(),
            tolerance: if is_long { 2e-5 } else { 2e-6 },
        }
    };
    let mut samples: Vec<Sample> = layouts.map(sample).into();
    let large = [1, 0].map(|dim| {
        let mut large = sample((Layout::contiguous([4, 48]), dim));
        large.inputs[0].1 = Fill::Normal(100.0);
        large.tolerance = 2e-5;
        large
    });
    samples.extend(large);
    samples
}

/// What an operation along a dimension must refuse.
pub(crate) fn line_rejects<O: Op>(op: impl Fn(usize) -> O, arity: usize) -> Vec<Reject> {
    let reject = |dim, inputs, error| Reject {
        op: Arc::new(op(dim)),
        inputs,
        error,
    };
    let f32s = |shape: &[usize]| Spec::contiguous(DType::F32, shape);
    let is_dim: fn(&OpError) -> bool = |error| matches!(error, OpError::Attribute { .. });
    let mut rejects = vec![
        reject(2, vec![f32s(&[2, 3]); arity], is_dim),
        reject(1, vec![f32s(&[]); arity], is_dim),
        reject(0, vec![f32s(&[3]); arity + 1], |error| {
            matches!(error, OpError::Arity { .. })
        }),
        reject(0, vec![Spec::contiguous(DType::I16, [3]); arity], |error| {
            matches!(error, OpError::DType { .. })
        }),
    ];
    if arity == 2 {
        rejects.push(reject(0, vec![f32s(&[2, 3]), f32s(&[3])], |error| {
            matches!(error, OpError::Shape { .. })
        }));
    }
    rejects
}
