//! A tensor of one number.

use crate::kernels::float::numbers_to;
use crate::table::{f32s, is_arity};
use crate::{Args, Array, DTypes, Element, Entry, KernelError, Reject, Row, Sample, op_as};
use half::{bf16, f16};
use highwater_graph::{Cost, DType, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// Elements that one task fills.
const BLOCK: usize = 1 << 16;

/// A new tensor, `value` everywhere: `torch.full`. No inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Full {
    /// The number, cast to the dtype as a number of `F64` is.
    pub value: f64,
    /// The element type: a float type, `I64`, `U32`, `U8` or `Bool`.
    pub dtype: DType,
    /// Extents.
    pub shape: Shape,
}

macro_rules! rows {
    ($($dtype:ident: $type:ty,)*) => {
        &[$(Row::cpu(DTypes::new(&[], &[DType::$dtype]), || Arc::new(kernel::<$type>))),*]
    };
}

const ENTRY: Entry = Entry {
    name: "full",
    rows: rows! {
        F32: f32,
        BF16: bf16,
        F16: f16,
        F64: f64,
        I64: i64,
        U32: u32,
        U8: u8,
        Bool: u8,
    },
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
        let whole = [DType::I64, DType::U32, DType::U8, DType::Bool];
        if !self.dtype.is_float() && !whole.contains(&self.dtype) {
            return Err(OpError::DType {
                op: self.name(),
                expected: "one of numbers or bool".to_owned(),
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

fn kernel<T: Element>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let full: &Full = op_as(op)?;
    let mut value = [T::zeroed()];
    numbers_to(
        &[full.value],
        full.dtype,
        bytemuck::cast_slice_mut(&mut value),
    )?;
    let out = args.outputs[0].slice_mut::<T>()?;
    args.pool
        .for_each_chunk(out, BLOCK, |_, out| out.fill(value[0]));
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
            value: if dtype.is_float() { -1.5 } else { 1.0 },
            dtype,
            shape: shape.into(),
        };
        Sample::new(full, &[]).tolerance(0.0)
    };
    let others = [
        DType::BF16,
        DType::F16,
        DType::F64,
        DType::I64,
        DType::U32,
        DType::U8,
        DType::Bool,
    ];
    let dtypes = others.map(|dtype| (shapes[2], dtype));
    let all = shapes.iter().map(|&shape| (shape, DType::F32));
    all.chain(dtypes).map(sample).collect()
}

fn rejects() -> Vec<Reject> {
    let full = Full {
        value: 1.0,
        dtype: DType::F32,
        shape: Shape::scalar(),
    };
    vec![Reject::new(full, vec![f32s([1])], is_arity)]
}
