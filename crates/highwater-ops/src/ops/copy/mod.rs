//! Views made dense.

mod cpu;

use crate::kernels::rows::rows_of_each_dtype;
use crate::{Array, Entry, Fill, Reject, Sample};
use highwater_graph::{Backward, Cost, DType, Layout, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// The same elements, dense and row-major: `torch.Tensor.contiguous`, of any view and any dtype
/// but block formats. The gradient passes as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy;

const ENTRY: Entry = Entry {
    name: "copy",
    rows: rows_of_each_dtype!(cpu::copy),
    reference: |_, inputs: &[Array]| vec![inputs[0].clone()],
    samples,
    rejects,
};

impl Op for Copy {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 1)?;
        let Spec { dtype, .. } = inputs[0];
        if dtype.element_bytes().is_none() {
            return Err(OpError::DType {
                op: self.name(),
                expected: "whose elements have addresses".to_owned(),
                got: dtype,
            });
        }
        Ok(smallvec![Spec::contiguous(
            dtype,
            inputs[0].shape().clone()
        )])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost::elementwise(inputs, outputs, 0.0)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        if let Some(grad) = backward.grad(0).filter(|_| backward.needs(0)) {
            backward.set(0, grad);
        }
        Ok(())
    }
}

fn samples() -> Vec<Sample> {
    let sample = |dtype, layout: Layout| {
        let fill = if dtype == DType::Bool {
            Fill::Indices(2)
        } else {
            Fill::Indices(100)
        };
        let copy = Sample::new(Copy, &[&[]]).tolerance(0.0);
        copy.input(0, Spec { dtype, layout }, fill)
    };
    vec![
        sample(DType::F32, Layout::contiguous([37, 65])),
        sample(DType::F32, Layout::strided([130, 300], &[1, 130], 0)),
        sample(
            DType::F32,
            Layout::strided([2, 65, 3, 37], &[9000, 37, 2500, 1], 3),
        ),
        sample(DType::F64, Layout::strided([37, 65], &[0, 1], 5)),
        sample(DType::BF16, Layout::strided([37, 65], &[1, 40], 0)),
        sample(DType::F16, Layout::strided([5, 7, 3], &[3, 15, 1], 0)),
        sample(DType::I64, Layout::strided([4, 0], &[1, 4], 0)),
        sample(DType::I16, Layout::strided([9, 6], &[1, 9], 2)),
        sample(DType::U32, Layout::strided([], &[], 7)),
        sample(DType::U8, Layout::strided([70, 70], &[1, 70], 0)),
        sample(DType::Bool, Layout::strided([3, 5], &[0, 0], 1)),
    ]
}

fn rejects() -> Vec<Reject> {
    vec![Reject {
        op: std::sync::Arc::new(Copy),
        inputs: vec![Spec::contiguous(DType::I8Block { block: 64 }, [64])],
        error: |error| matches!(error, OpError::DType { op: "copy", .. }),
    }]
}
