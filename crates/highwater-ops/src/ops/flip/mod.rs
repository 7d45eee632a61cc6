//! Elements in reverse order.

mod cpu;
mod reference;

use crate::kernels::checks::of_elements;
use crate::kernels::rows::rows_of_each_dtype;
use crate::ops::gradients;
use crate::table::{f32_strided, is_arity, is_attribute, is_dtype};
use crate::{Entry, Fill, Reject, Sample};
use highwater_graph::{Backward, Cost, DType, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// The elements in reverse order along some dimensions, as `torch.flip`.
///
/// One tensor of any dtype but block formats and of any layout; the result is row-major. Gradients are
/// reversed likewise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flip {
    /// Which dimensions, each at most once.
    pub dims: Vec<usize>,
}

const ENTRY: Entry = Entry {
    name: "flip",
    rows: rows_of_each_dtype!(cpu::flip),
    reference: reference::flip,
    samples,
    rejects,
};

impl Op for Flip {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, mut hasher: &mut dyn Hasher) {
        self.dims.hash(&mut hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 1)?;
        let dtype = of_elements(self.name(), &inputs[0])?;
        let shape = inputs[0].shape();
        let wrong =
            |(i, dim): (usize, &usize)| *dim >= shape.rank() || self.dims[..i].contains(dim);
        if self.dims.iter().enumerate().any(wrong) {
            return Err(OpError::Attribute {
                op: self.name(),
                attribute: "dims",
                expected: format!("different dimensions below {}", shape.rank()),
                got: format!("{:?}", self.dims),
            });
        }
        Ok(smallvec![Spec::contiguous(dtype, shape.clone())])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost::elementwise(inputs, outputs, 0.0)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        gradients::from_grad(backward, self.clone())
    }
}

fn samples() -> Vec<Sample> {
    let of = |dims: &[usize], shape: &[usize]| {
        Sample::new(Flip { dims: dims.into() }, &[shape]).tolerance(0.0)
    };
    let whole = |dtype| {
        let fill = Fill::Indices(if dtype == DType::Bool { 2 } else { 100 });
        of(&[0], &[5, 3]).input(0, Spec::contiguous(dtype, [5, 3]), fill)
    };
    let mut samples = vec![
        of(&[0], &[7, 65]),
        of(&[1], &[7, 65]),
        of(&[1, 0], &[130, 300]),
        of(&[1], &[3, 37, 5]),
        of(&[0, 2], &[3, 37, 5]),
        of(&[], &[3, 4]),
        of(&[0], &[40_001]),
        of(&[0], &[0, 5]),
        of(&[1], &[3, 0]),
        of(&[], &[]),
        of(&[0], &[37, 65]).input(0, f32_strided([37, 65], &[1, 40], 2), Fill::Normal(1.0)),
        of(&[1], &[37, 65]).input(0, f32_strided([37, 65], &[0, 1], 3), Fill::Normal(1.0)),
    ];
    let dtypes = [DType::I64, DType::I16, DType::U32, DType::U8, DType::Bool];
    samples.extend(dtypes.map(whole));
    samples
}

fn rejects() -> Vec<Reject> {
    let reject =
        |dims: &[usize], inputs, error| Reject::new(Flip { dims: dims.into() }, inputs, error);
    let of = |dtype| vec![Spec::contiguous(dtype, [64, 3])];
    vec![
        reject(&[2], of(DType::F32), is_attribute),
        reject(&[1, 1], of(DType::F32), is_attribute),
        reject(&[0], of(DType::I8Block { block: 64 }), is_dtype),
        reject(&[0], vec![], is_arity),
    ]
}
