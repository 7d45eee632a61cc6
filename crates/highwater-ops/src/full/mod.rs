//! A tensor of one number.

use crate::{Args, Array, Entry, KernelError, Reject, Row, Sample, op_as};
use highwater_graph::{Cost, DType, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// Elements that one task fills.
const BLOCK: usize = 1 << 16;

/// A new `F32` tensor, `value` everywhere: `torch.full`. No inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Full {
    /// The number, rounded to `f32`.
    pub value: f64,
    /// Extents.
    pub shape: Shape,
}

const ENTRY: Entry = Entry {
    name: "full",
    rows: &[Row::f32(|| Arc::new(kernel))],
    reference,
    samples,
    rejects,
};

impl Op for Full {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.value.to_bits());
        for &extent in self.shape.iter() {
            hasher.write_usize(extent);
        }
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 0)?;
        Ok(smallvec![Spec::contiguous(DType::F32, self.shape.clone())])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost::elementwise(inputs, outputs, 0.0)
    }

    fn constant(&self) -> Option<f64> {
        Some(self.value)
    }
}

fn kernel(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let value = op_as::<Full>(op)?.value as f32;
    let out = args.outputs[0].slice_mut::<f32>()?;
    args.pool
        .for_each_chunk(out, BLOCK, |_, out| out.fill(value));
    Ok(())
}

fn reference(op: &dyn Op, _inputs: &[Array]) -> Vec<Array> {
    let full = op.downcast::<Full>().expect("registered for Full");
    vec![Array::from_fn(full.shape.clone(), |_| full.value)]
}

fn samples() -> Vec<Sample> {
    let shapes: [&[usize]; 4] = [&[], &[0, 3], &[37, 65], &[300, 500]];
    let sample = |shape: &&[usize]| {
        let full = Full {
            value: -1.5,
            shape: (*shape).into(),
        };
        Sample::new(full, &[]).tolerance(0.0)
    };
    shapes.iter().map(sample).collect()
}

fn rejects() -> Vec<Reject> {
    let full = Full {
        value: 1.0,
        shape: Shape::scalar(),
    };
    vec![Reject {
        op: Arc::new(full),
        inputs: vec![Spec::contiguous(DType::F32, [1])],
        error: |error| matches!(error, OpError::Arity { .. }),
    }]
}
