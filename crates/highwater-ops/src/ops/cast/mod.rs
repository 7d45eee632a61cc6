//! Changing the element type.

mod cpu;

use crate::kernels::float::half_ulp;
use crate::kernels::pointwise::one_pass;
use crate::ops::gradients;
use crate::table::{is_arity, is_dtype};
use crate::{Array, Entry, Fill, Reject, Sample};
use highwater_graph::{Backward, Cost, DType, Layout, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// The same numbers in another element type.
///
/// As `Tensor.to(dtype)`, between `F32`, `F64`, `BF16`, `F16`, `I64`, `U32`, `U8` and `Bool`. Floats are
/// rounded to nearest, ties to even, and too large numbers become infinite; whole types take what stands
/// before the point; `Bool` is true where the number is not 0. One tensor of any shape and layout; one pass. Backward casts
/// the gradient back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cast {
    /// The element type of the result.
    pub dtype: DType,
}

impl Cast {
    const NAME: &'static str = "cast";

    fn takes(self, from: DType) -> bool {
        let plain = |dtype| FLOATS.contains(&dtype) || WHOLE.contains(&dtype);
        plain(from) && plain(self.dtype)
    }
}

impl Op for Cast {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        std::hash::Hash::hash(&self.dtype, &mut { hasher });
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(Self::NAME, inputs, 1)?;
        let input = &inputs[0];
        if !self.takes(input.dtype) {
            return Err(OpError::DType {
                op: Self::NAME,
                expected: format!("one that converts to {}", self.dtype),
                got: input.dtype,
            });
        }
        let layout = if input.layout.covers(input.layout.numel()) {
            input.layout.clone()
        } else {
            Layout::contiguous(input.shape().clone())
        };
        Ok(smallvec![Spec {
            dtype: self.dtype,
            layout
        }])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        one_pass(inputs, outputs, outputs[0].layout.numel() as f64)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let dtype = backward.input(0).spec.dtype;
        gradients::from(backward, Self { dtype }, &[])
    }
}

const ENTRY: Entry = Entry {
    name: Cast::NAME,
    rows: cpu::ROWS,
    reference,
    samples,
    rejects,
};

/// The plain reference: the same numbers, but for what the type cannot hold at all.
fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &Cast = op.downcast().expect("cast");
    let mut input = inputs[0].clone();
    for x in &mut input.data {
        *x = match op.dtype {
            DType::Bool => f64::from(u8::from(*x != 0.0)),
            dtype if dtype.is_float() => *x,
            _ => x.trunc(),
        };
    }
    vec![Array::new(op.dtype, input.shape, input.data)]
}

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::BF16, DType::F16];
const WHOLE: [DType; 4] = [DType::I64, DType::U32, DType::U8, DType::Bool];

fn samples() -> Vec<Sample> {
    let sample = |from, to, layout: &Layout, fill| Sample {
        op: Arc::new(Cast { dtype: to }),
        inputs: vec![(
            Spec {
                dtype: from,
                layout: layout.clone(),
            },
            fill,
        )],
        tolerance: [from, to].map(half_ulp).into_iter().fold(0.0, f64::max),
    };
    let dense = Layout::contiguous([3, 5, 37]);
    let mut samples = Vec::new();
    for (from, to) in FLOATS.iter().flat_map(|&a| FLOATS.map(|b| (a, b))) {
        samples.push(sample(from, to, &dense, Fill::Normal(100.0)));
    }
    let layouts = [
        Layout::contiguous([130, 257]),
        Layout::strided([37, 130], &[1, 37], 0),
        Layout::strided([9, 65], &[130, 2], 3),
        Layout::contiguous([0, 5]),
        Layout::contiguous([]),
    ];
    for layout in &layouts {
        samples.push(sample(DType::F32, DType::BF16, layout, Fill::Normal(1.0)));
        samples.push(sample(DType::BF16, DType::F32, layout, Fill::Normal(1.0)));
    }
    for from in [DType::I64, DType::U32] {
        samples.push(sample(from, DType::F32, &dense, Fill::Indices(1 << 30)));
    }
    for (whole, other) in WHOLE.iter().flat_map(|&a| FLOATS.map(|b| (a, b))) {
        let below = if whole == DType::Bool { 2 } else { 200 };
        samples.push(sample(whole, other, &dense, Fill::Indices(below)));
        samples.push(sample(other, whole, &dense, Fill::Uniform(0.0, 3.0)));
    }
    for (from, to) in WHOLE.iter().flat_map(|&a| WHOLE.map(|b| (a, b))) {
        samples.push(sample(from, to, &dense, Fill::Indices(2)));
    }
    samples.push(sample(DType::F32, DType::I64, &dense, Fill::Normal(1e6)));
    samples
}

fn rejects() -> Vec<Reject> {
    let reject = |dtype, inputs, error| Reject::new(Cast { dtype }, inputs, error);
    let spec = |dtype| Spec::contiguous(dtype, [3]);
    vec![
        reject(DType::I16, vec![spec(DType::F32)], is_dtype),
        reject(DType::BF16, vec![spec(DType::I16)], is_dtype),
        reject(DType::F32, vec![spec(DType::F64); 2], is_arity),
    ]
}
