//! Concatenation.

mod cpu;
mod reference;

use crate::kernels::rows::rows_of_each_dtype;
use crate::table::{f32_strided, is_arity, is_attribute, is_dtype, is_shape};
use crate::{Entry, Fill, Reject, Sample};
use highwater_graph::{Autocast, Backward, Cost, DType, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// The inputs one after the other along a dimension, as `torch.cat`.
///
/// Inputs: one or more of one dtype (any but block formats), in any layouts, whose shapes differ in
/// that dimension at most. Output: dense. The gradient of an input is a view of the output's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cat {
    /// The dimension.
    pub dim: usize,
}

const ENTRY: Entry = Entry {
    name: "cat",
    rows: rows_of_each_dtype!(cpu::cat),
    reference: reference::reference,
    samples,
    rejects,
};

impl Op for Cat {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, mut hasher: &mut dyn Hasher) {
        self.dim.hash(&mut hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let op = self.name();
        let Some(first) = inputs.first() else {
            return Err(OpError::Arity {
                op,
                expected: 1,
                got: 0,
            });
        };
        if first.dtype.element_bytes().is_none() {
            return Err(OpError::DType {
                op,
                expected: "whose elements have addresses".to_owned(),
                got: first.dtype,
            });
        }
        let rank = first.shape().rank();
        if self.dim >= rank {
            return Err(OpError::Attribute {
                op,
                attribute: "dim",
                expected: format!("below the rank of {}", first.shape()),
                got: self.dim.to_string(),
            });
        }
        let mut extent = 0_usize;
        for (i, spec) in inputs.iter().enumerate() {
            OpError::check_dtype(op, spec, first.dtype)?;
            let others = |shape: &Shape| -> SmallVec<[usize; 5]> {
                let dims = shape.iter().copied().enumerate();
                dims.filter(|&(d, _)| d != self.dim)
                    .map(|(_, extent)| extent)
                    .collect()
            };
            let fits = spec.shape().rank() == rank && others(spec.shape()) == others(first.shape());
            if !fits {
                let but = format!("{} but for dimension {}", first.shape(), self.dim);
                return Err(OpError::shape(
                    op,
                    but,
                    format!("{} as input {i}", spec.shape()),
                ));
            }
            extent = extent.saturating_add(spec.shape()[self.dim]);
        }
        let mut dims: SmallVec<[usize; 5]> = SmallVec::from_slice(first.shape().dims());
        dims[self.dim] = extent;
        let shape = Shape::checked(&dims);
        let shape = shape.ok_or_else(|| {
            let expected = "inputs whose elements can be counted together";
            OpError::shape(op, expected, format!("{extent} in dimension {}", self.dim))
        })?;
        Ok(smallvec![Spec::contiguous(first.dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost::elementwise(inputs, outputs, 0.0)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0) else {
            return Ok(());
        };
        let mut start = 0;
        for i in 0..backward.inputs() {
            let extent = backward.input(i).shape()[self.dim];
            let part = grad.spec.layout.narrow(self.dim, start, extent);
            if let Some(part) = part.filter(|_| backward.needs(i)) {
                backward.set(i, grad.with_layout(part));
            }
            start += extent;
        }
        Ok(())
    }
}

fn samples() -> Vec<Sample> {
    let sample = |dim, shapes: &[&[usize]]| Sample::new(Cat { dim }, shapes).tolerance(0.0);
    let whole = |dtype| {
        let spec = |rows: usize| Spec::contiguous(dtype, [rows, 3]);
        let bound = if dtype == DType::Bool { 2 } else { 100 };
        sample(0, &[&[], &[]])
            .input(0, spec(5), Fill::Indices(bound))
            .input(1, spec(2), Fill::Indices(bound))
    };
    let mut samples = vec![
        sample(0, &[&[7, 5], &[1, 5], &[4, 5]]),
        sample(1, &[&[37, 65], &[37, 3], &[37, 64]]),
        sample(1, &[&[3, 2, 5], &[3, 7, 5]]),
        sample(2, &[&[2, 65, 300], &[2, 65, 17]]),
        sample(0, &[&[200, 300], &[130, 300]]),
        sample(0, &[&[40_000], &[3], &[70_000]]),
        sample(0, &[&[3, 4]]),
        sample(1, &[&[4, 0], &[4, 3], &[4, 0]]),
        sample(0, &[&[0, 5], &[0, 5]]),
        // Transposed, broadcast, a window of rows, and all from somewhere inside their storages.
        sample(0, &[&[37, 65], &[5, 65], &[9, 65]])
            .input(0, f32_strided([37, 65], &[1, 37], 0), Fill::Normal(1.0))
            .input(1, f32_strided([5, 65], &[0, 1], 7), Fill::Normal(1.0))
            .input(2, f32_strided([9, 65], &[80, 1], 3), Fill::Normal(1.0)),
        sample(2, &[&[5, 130, 8], &[5, 130, 24]]).input(
            1,
            f32_strided([5, 130, 24], &[24, 120, 1], 0),
            Fill::Normal(1.0),
        ),
        sample(1, &[&[], &[130, 9, 3]]).input(
            0,
            f32_strided([130, 6, 3], &[0, 3, 1], 2),
            Fill::Normal(1.0),
        ),
    ];
    let dtypes = [
        DType::F64,
        DType::BF16,
        DType::F16,
        DType::I64,
        DType::I16,
        DType::U32,
        DType::U8,
        DType::Bool,
    ];
    samples.extend(dtypes.map(whole));
    samples
}

fn rejects() -> Vec<Reject> {
    let of = |dtype, shape: &[usize]| Spec::contiguous(dtype, shape);
    let reject = |dim, inputs, error| Reject::new(Cat { dim }, inputs, error);
    let f32 = |shape: &[usize]| of(DType::F32, shape);
    vec![
        reject(0, Vec::new(), is_arity),
        reject(1, vec![f32(&[3, 5]), f32(&[4, 5])], is_shape),
        reject(0, vec![f32(&[3, 5]), f32(&[15])], is_shape),
        reject(0, vec![f32(&[3, 5]), f32(&[3, 5, 1])], is_shape),
        reject(
            0,
            vec![f32(&[usize::MAX, 0]), f32(&[usize::MAX, 0])],
            is_shape,
        ),
        reject(2, vec![f32(&[3, 5])], is_attribute),
        reject(0, vec![f32(&[])], is_attribute),
        reject(0, vec![f32(&[3]), of(DType::I64, &[3])], is_dtype),
        reject(0, vec![of(DType::I8Block { block: 64 }, &[64])], is_dtype),
    ]
}
