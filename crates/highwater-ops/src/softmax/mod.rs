//! Softmax over the last dimension: `softmax` and `softmax_backward`.

mod cpu;
mod reference;

use crate::float::{Precise, rows_of_floats};
use crate::matmul::one_float_dtype;
use crate::pointwise::cost;
use crate::{Entry, Fill, Reject, Sample};
use highwater_graph::{Backward, Cost, DType, Layout, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[SOFTMAX, SOFTMAX_BACKWARD];

/// `y_i = exp(x_i - max x) / sum_j exp(x_j - max x)` along the last dimension.
///
/// As `torch.softmax(x, -1)`; a row of minus infinity alone gives NaN. One float tensor of one
/// dimension or more and any layout; the result is row-major. Exponentials and sums are `f32` in
/// lanes of a fixed width. One pass; in place. Backward reads the output, not the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Softmax;

/// `y (g - sum_j g_j y_j)` of inputs `g`, which may be overwritten, and `y`, of one shape.
#[derive(Debug, Clone, Copy)]
struct SoftmaxBackward;

impl Op for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 1)?;
        rows(self.name(), inputs)
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, 14.0)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0).filter(|_| backward.needs(0)) else {
            return Ok(());
        };
        let output = backward.output(0);
        let grad = backward.emit_one(SoftmaxBackward, &[grad, output])?;
        backward.set(0, grad);
        Ok(())
    }
}

impl Op for SoftmaxBackward {
    fn name(&self) -> &'static str {
        "softmax_backward"
    }

    fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 2)?;
        if inputs[0].shape() != inputs[1].shape() {
            let expected = inputs[0].shape().to_string();
            return Err(OpError::shape(self.name(), expected, inputs[1].to_string()));
        }
        rows(self.name(), inputs)
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, 4.0)
    }
}

/// A row-major output of the first input's shape, which has rows.
fn rows(op: &'static str, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
    let all: SmallVec<[&Spec; 2]> = inputs.iter().collect();
    let dtype = one_float_dtype(op, &all)?;
    let shape = inputs[0].shape();
    if shape.rank() == 0 {
        return Err(OpError::shape(
            op,
            "one dimension or more",
            shape.to_string(),
        ));
    }
    Ok(smallvec![Spec::contiguous(dtype, shape.clone())])
}

const SOFTMAX: Entry = Entry {
    name: "softmax",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::SoftmaxKernel::<T>(PhantomData); Precise::new(reference::reference)
    },
    reference: reference::reference,
    samples: || samples(&Softmax, &[Fill::Normal(2.0)]),
    rejects,
};

const SOFTMAX_BACKWARD: Entry = Entry {
    name: "softmax_backward",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::BackwardKernel::<T>(PhantomData); Precise::new(reference::backward)
    },
    reference: reference::backward,
    samples: || {
        samples(
            &SoftmaxBackward,
            &[Fill::Normal(1.0), Fill::Uniform(0.0, 0.05)],
        )
    },
    rejects: backward_rejects,
};

fn samples(op: &(impl Op + Clone), fills: &[Fill]) -> Vec<Sample> {
    let layouts = [
        Layout::contiguous([5, 37]),
        Layout::contiguous([2, 3, 5, 33]),
        Layout::contiguous([7, 1]),
        Layout::contiguous([2, 1025]),
        Layout::contiguous([130, 270]),
        Layout::contiguous([64]),
        Layout::contiguous([0, 5]),
        Layout::contiguous([3, 0]),
        Layout::strided([6, 37], &[1, 6], 0),
        Layout::strided([9, 65], &[130, 2], 3),
        Layout::strided([4, 9, 33], &[33, 0, 1], 0),
    ];
    let sample = |layout: Layout| {
        let dense = Spec::contiguous(DType::F32, layout.shape().clone());
        let view = Spec {
            dtype: DType::F32,
            layout,
        };
        let specs = std::iter::once(view).chain(std::iter::repeat(dense));
        Sample {
            op: Arc::new(op.clone()),
            inputs: specs.zip(fills.iter().copied()).collect(),
            tolerance: 2e-6,
        }
    };
    let mut samples: Vec<Sample> = layouts.map(sample).into();
    let mut large = sample(Layout::contiguous([4, 48]));
    large.inputs[0].1 = Fill::Normal(100.0);
    large.tolerance = 2e-5;
    samples.push(large);
    samples
}

fn rejects() -> Vec<Reject> {
    let reject = |inputs, error| Reject {
        op: Arc::new(Softmax),
        inputs,
        error,
    };
    let f32s = |shape: &[usize]| Spec::contiguous(DType::F32, shape);
    vec![
        reject(vec![f32s(&[])], |error| {
            matches!(error, OpError::Shape { .. })
        }),
        reject(vec![f32s(&[3]); 2], |error| {
            matches!(error, OpError::Arity { .. })
        }),
        reject(vec![Spec::contiguous(DType::I64, [3])], |error| {
            matches!(error, OpError::DType { .. })
        }),
    ]
}

fn backward_rejects() -> Vec<Reject> {
    let reject = |inputs, error| Reject {
        op: Arc::new(SoftmaxBackward),
        inputs,
        error,
    };
    let f32s = |shape: &[usize]| Spec::contiguous(DType::F32, shape);
    vec![
        reject(vec![f32s(&[2, 3]), f32s(&[3])], |error| {
            matches!(error, OpError::Shape { .. })
        }),
        reject(vec![f32s(&[3])], |error| {
            matches!(error, OpError::Arity { .. })
        }),
    ]
}
