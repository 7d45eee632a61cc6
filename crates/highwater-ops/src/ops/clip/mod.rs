//! Clipping by the global norm: the norm of all gradients, and what to multiply them by.

mod cpu;
mod reference;

use crate::kernels::checks::one_float_dtype;
use crate::kernels::float::sums_in;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::table::{f32_strided, f32s, is_arity, is_dtype, is_shape};
use crate::{DTypes, Entry, Fill, Reject, Row, Sample};
use highwater_graph::{Cost, DType, Layout, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[GRAD_NORM, CLIP_COEFFICIENT];

/// Elements whose squares one task adds.
const BLOCK: usize = 1 << 15;

/// The 2-norm of several tensors taken together, `sqrt(sum of all squares)`: the norm that
/// `torch.nn.utils.clip_grad_norm_` clips by.
///
/// Any number of inputs of one float dtype and any shapes and layouts; output a scalar, `F32` at
/// least. Squares are added
/// in `f64`, in blocks of a fixed size in logical order, and the blocks' sums in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GradNorm;

impl GradNorm {
    /// Name in the registry.
    pub const NAME: &'static str = "grad_norm";
}

impl Op for GradNorm {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let all: SmallVec<[&Spec; 4]> = inputs.iter().collect();
        let dtype = sums_in(one_float_dtype(Self::NAME, &all)?);
        Ok(smallvec![Spec::contiguous(dtype, Shape::scalar())])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        let elements: usize = inputs.iter().map(|spec| spec.layout.numel()).sum();
        Cost {
            vector_flops: 2.0 * elements as f64,
            ..Cost::elementwise(inputs, outputs, 0.0)
        }
    }
}

/// Number of tasks that a tensor is cut into.
fn blocks(layout: &Layout) -> usize {
    layout.numel().div_ceil(BLOCK)
}

/// What to multiply gradients by so that their norm is at most `max_norm`, as in
/// `torch.nn.utils.clip_grad_norm_`: `min(1, max_norm / (norm + 1e-6))`.
///
/// Input: the norm, a scalar of `F32` or `F64`; output another. NaN stays NaN. `max_norm` may change
/// from step to step: it is not part of a plan's structure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClipCoefficient {
    /// The largest norm that is left as it is.
    pub max_norm: f64,
}

impl ClipCoefficient {
    /// Name in the registry.
    pub const NAME: &'static str = "clip_coefficient";
}

impl Op for ClipCoefficient {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(Self::NAME, inputs, 1)?;
        let dtype = sums_in(inputs[0].dtype);
        OpError::check_dtype(Self::NAME, &inputs[0], dtype)?;
        if inputs[0].shape().rank() != 0 {
            let got = inputs[0].shape().to_string();
            return Err(OpError::shape(Self::NAME, "a scalar, the norm", got));
        }
        Ok(smallvec![Spec::contiguous(dtype, Shape::scalar())])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost::elementwise(inputs, outputs, 3.0)
    }
}

const GRAD_NORM: Entry = Entry {
    name: GradNorm::NAME,
    rows: rows_of_floats! {
        T: [T] -> [Sums];
        cpu::GradNormKernel::<T>(PhantomData); Precise::new(reference::grad_norm)
    },
    reference: reference::grad_norm,
    samples: norm_samples,
    rejects: norm_rejects,
};

const CLIP_COEFFICIENT: Entry = Entry {
    name: ClipCoefficient::NAME,
    rows: &[
        Row::f32(|| Arc::new(cpu::clip_coefficient)),
        Row::cpu(DTypes::new(&[DType::F64], &[DType::F64]), || {
            Arc::new(Precise::new(reference::clip_coefficient))
        }),
    ],
    reference: reference::clip_coefficient,
    samples: coefficient_samples,
    rejects: coefficient_rejects,
};

fn norm_samples() -> Vec<Sample> {
    let samples = vec![
        Sample::new(GradNorm, &[]),
        Sample::new(GradNorm, &[&[5, 37]]),
        Sample::new(GradNorm, &[&[0, 3], &[65], &[], &[3, 130]]),
        Sample::new(GradNorm, &[&[3, 130, 257], &[37]]),
        Sample::new(GradNorm, &[&[37, 65], &[130, 5]])
            .input(0, f32_strided([37, 65], &[1, 40], 3), Fill::Normal(1e3))
            .input(
                1,
                f32_strided([130, 5], &[0, 2], 1),
                Fill::Uniform(-1.0, 2.0),
            ),
    ];
    samples.into_iter().map(|s| s.tolerance(1e-6)).collect()
}

fn norm_rejects() -> Vec<Reject> {
    vec![Reject::new(
        GradNorm,
        vec![f32s([3]), Spec::contiguous(DType::BF16, [3])],
        is_dtype,
    )]
}

fn coefficient_samples() -> Vec<Sample> {
    let sample = |norm| {
        let op = ClipCoefficient { max_norm: 1.0 };
        let spec = f32s([]);
        Sample::new(op, &[&[]])
            .input(0, spec, Fill::Constant(norm))
            .tolerance(1e-6)
    };
    [0.0, 0.5, 1.0, 3.7, 1e6].map(sample).to_vec()
}

fn coefficient_rejects() -> Vec<Reject> {
    let reject = |inputs, error| Reject::new(ClipCoefficient { max_norm: 1.0 }, inputs, error);
    vec![
        reject(Vec::new(), is_arity),
        reject(vec![f32s([2])], is_shape),
        reject(vec![Spec::contiguous(DType::I64, [])], is_dtype),
    ]
}
