//! A tensor of one number.

use crate::float::{Float, Precise, rows_of_floats};
use crate::{Args, Array, Entry, KernelError, Reject, Sample, op_as};
use highwater_graph::{Cost, DType, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// Elements that one task fills.
const BLOCK: usize = 1 << 16;

/// A new tensor of a float dtype, `value` everywhere: `torch.full`. No inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Full {
    /// The number, rounded to `f32` and then to the dtype.
    pub value: f64,
    /// The element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Shape,
}

const ENTRY: Entry = Entry {
    name: "full",
    rows: rows_of_floats! { T: [] -> [T]; kernel::<T>; Precise::new(reference) },
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
        Hash::hash(&self.dtype, &mut { &mut *hasher });
        for &extent in self.shape.iter() {
            hasher.write_usize(extent);
        }
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 0)?;
        if !self.dtype.is_float() {
            return Err(OpError::DType {
                op: self.name(),
                expected: "a float type".to_owned(),
                got: self.dtype,
            });
        }
        Ok(smallvec![Spec::contiguous(self.dtype, self.shape.clone())])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost::elementwise(inputs, outputs, 0.0)
    }

    fn constant(&self) -> Option<f64> {
        Some(self.value)
    }
}

fn kernel<T: Float>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let value = T::nearest(op_as::<Full>(op)?.value as f32);
    let out = args.outputs[0].slice_mut::<T>()?;
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
    let sample = |(shape, dtype): (&[usize], DType)| {
        let full = Full {
            value: -1.5,
            dtype,
            shape: shape.into(),
        };
        Sample::new(full, &[]).tolerance(0.0)
    };
    let dtypes = [DType::BF16, DType::F16, DType::F64].map(|dtype| (shapes[2], dtype));
    let all = shapes.iter().map(|&shape| (shape, DType::F32));
    all.chain(dtypes).map(sample).collect()
}

fn rejects() -> Vec<Reject> {
    let full = Full {
        value: 1.0,
        dtype: DType::F32,
        shape: Shape::scalar(),
    };
    vec![Reject {
        op: Arc::new(full),
        inputs: vec![Spec::contiguous(DType::F32, [1])],
        error: |error| matches!(error, OpError::Arity { .. }),
    }]
}
