//! One of two elements, by a third that is true or false: `where`.

mod cpu;

use crate::kernels::pointwise;
use crate::ops::gradients::{self, set_reduced};
use crate::table::{is_arity, is_dtype, is_shape};
use crate::{Array, Entry, Fill, Reject, Sample};
use highwater_graph::{Backward, Cost, DType, Op, OpError, Promotion, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// `a` where the condition is true, else `b`: `torch.where(condition, a, b)`.
///
/// Inputs: the condition, of `Bool`, and two tensors of one dtype, in any layouts, whose shapes broadcast.
/// One pass; the output may lie over `a` or `b`. What is not taken gets no gradient, not even that of an
/// infinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Where;

const ENTRY: Entry = Entry {
    name: "where",
    rows: cpu::ROWS,
    reference: |_, inputs: &[Array]| {
        vec![pointwise::map_arrays(
            inputs,
            |[condition, a, b]: [f64; 3]| {
                if condition == 0.0 { b } else { a }
            },
        )]
    },
    samples,
    rejects,
};

impl Op for Where {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 3)?;
        OpError::check_dtype(self.name(), &inputs[0], DType::Bool)?;
        let dtype = inputs[1].dtype;
        OpError::check_dtype(self.name(), &inputs[2], dtype)?;
        let shape = pointwise::broadcast(self.name(), inputs)?;
        Ok(smallvec![pointwise::dense_like(&inputs[1..], dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        pointwise::cost(inputs, outputs, 1.0)
    }

    fn promotion(&self) -> Option<Promotion> {
        Some(Promotion {
            first: 1,
            ..Promotion::ALL
        })
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let condition = backward.input(0);
        let dtype = backward.input(1).spec.dtype;
        set_reduced(backward, 1, |backward, grad| {
            let zero = gradients::zero(backward, dtype)?;
            backward.emit_one(Self, &[condition.clone(), grad, zero])
        })?;
        set_reduced(backward, 2, |backward, grad| {
            let zero = gradients::zero(backward, dtype)?;
            backward.emit_one(Self, &[condition.clone(), zero, grad])
        })
    }
}

fn samples() -> Vec<Sample> {
    let fills = [Fill::Indices(2), Fill::Normal(1.0), Fill::Normal(1.0)];
    let mut samples = pointwise::ternary_samples(&Where, fills);
    for sample in &mut samples {
        sample.inputs[0].0.dtype = DType::Bool;
    }
    let of = |dtype: DType| {
        let mut sample = samples[2].clone();
        for (spec, fill) in &mut sample.inputs[1..] {
            spec.dtype = dtype;
            *fill = Fill::Indices(if dtype == DType::Bool { 2 } else { 100 });
        }
        sample
    };
    let whole = [DType::I64, DType::I16, DType::U32, DType::U8, DType::Bool].map(of);
    samples.extend(whole);
    samples
}

fn rejects() -> Vec<Reject> {
    let reject = |dtypes: &[DType], shapes: [&[usize]; 3], error| {
        Reject::new(
            Where,
            (dtypes.iter().zip(shapes))
                .map(|(&dtype, shape)| Spec::contiguous(dtype, shape))
                .collect(),
            error,
        )
    };
    let (truth, float, double) = (DType::Bool, DType::F32, DType::F64);
    vec![
        reject(&[truth, float], [&[3]; 3], is_arity),
        reject(&[float, float, float], [&[3]; 3], is_dtype),
        reject(&[truth, float, double], [&[3]; 3], is_dtype),
        reject(&[truth, float, float], [&[2], &[3], &[3]], is_shape),
    ]
}
