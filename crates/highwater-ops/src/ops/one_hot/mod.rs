//! Classes as vectors.

mod cpu;
mod reference;

use crate::kernels::checks::check_indices;
use crate::kernels::rows::rows_of_floats;
use crate::table::{is_arity, is_attribute, is_dtype, is_shape};
use crate::{Entry, Fill, Reject, Row, Sample};
use highwater_graph::{Cost, DType, Layout, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// For each class a vector with 1 at that place and 0 elsewhere, as `torch.nn.functional.one_hot`.
///
/// Input: classes (I64 or U32) of any shape. Output: the same shape and one more dimension, of `classes`
/// elements, row-major. A class outside stops the step with the class and its position. No gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OneHot {
    /// How many classes there are.
    pub classes: usize,
    /// What the result is made of: I64, as in PyTorch, or a float type.
    pub dtype: DType,
}

const FLOATS: &[Row] = rows_of_floats! {
    T: [I64] -> [T], [U32] -> [T]; cpu::one_hot::<T>; cpu::one_hot::<f64>
};

const WHOLE: &[Row] = &[
    Row::cpu(crate::DTypes::new(&[DType::I64], &[DType::I64]), || {
        Arc::new(cpu::one_hot::<i64>)
    }),
    Row::cpu(crate::DTypes::new(&[DType::U32], &[DType::I64]), || {
        Arc::new(cpu::one_hot::<i64>)
    }),
];

use DType::{I64, U32};

const ENTRY: Entry = Entry {
    name: "one_hot",
    rows: {
        const FOLDERS: &[&[Row]] = &[WHOLE, FLOATS];
        &crate::table::joined::<_, { crate::table::count(FOLDERS) }>(FOLDERS)
    },
    reference: reference::one_hot,
    samples,
    rejects,
};

impl Op for OneHot {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, mut hasher: &mut dyn Hasher) {
        self.classes.hash(&mut hasher);
        self.dtype.hash(&mut hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 1)?;
        check_indices(self.name(), &inputs[0])?;
        if self.dtype != DType::I64 && !self.dtype.is_float() {
            return Err(OpError::Attribute {
                op: self.name(),
                attribute: "dtype",
                expected: "int64 or a float type".to_owned(),
                got: self.dtype.to_string(),
            });
        }
        let dims: SmallVec<[usize; 8]> = inputs[0]
            .shape()
            .iter()
            .copied()
            .chain([self.classes])
            .collect();
        let shape = Shape::checked(&dims).ok_or_else(|| {
            let expected = "classes whose vectors can be counted";
            OpError::shape(self.name(), expected, format!("{dims:?}"))
        })?;
        Ok(smallvec![Spec::contiguous(self.dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost::elementwise(inputs, outputs, 0.0)
    }
}

fn samples() -> Vec<Sample> {
    let of = |classes, dtype, indices: Spec| {
        let fill = Fill::Indices(classes);
        Sample::new(OneHot { classes, dtype }, &[&[]])
            .input(0, indices, fill)
            .tolerance(0.0)
    };
    let i64 = |shape: &[usize]| Spec::contiguous(DType::I64, shape);
    let strided = Spec {
        dtype: DType::U32,
        layout: Layout::strided([30, 5], &[1, 30], 2),
    };
    let mut samples = vec![
        of(7, DType::I64, i64(&[2, 5])),
        of(1, DType::I64, i64(&[])),
        of(9, DType::I64, i64(&[0])),
        of(300, DType::I64, i64(&[400])),
        of(11, DType::I64, strided.clone()),
    ];
    let floats = [DType::F32, DType::F64, DType::BF16, DType::F16];
    samples.extend(floats.map(|dtype| of(37, dtype, i64(&[70]))));
    samples.extend(floats.map(|dtype| of(11, dtype, strided.clone())));
    samples
}

fn rejects() -> Vec<Reject> {
    let reject =
        |classes, dtype, inputs, error| Reject::new(OneHot { classes, dtype }, inputs, error);
    let of = |dtype| vec![Spec::contiguous(dtype, [3])];
    vec![
        reject(3, DType::I64, of(DType::F32), is_dtype),
        reject(3, DType::U8, of(DType::I64), is_attribute),
        reject(usize::MAX, DType::I64, of(DType::I64), is_shape),
        reject(3, DType::I64, vec![], is_arity),
    ]
}
