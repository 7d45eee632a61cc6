//! Elements by index along a dimension: `gather`, and `scatter_add`, which is its gradient.

mod cpu;
mod reference;
mod samples;

use crate::kernels::checks::{check_indices, of_elements, one_float_dtype};
use crate::kernels::lines::check_dim;
use crate::kernels::places;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::gradients;
use crate::{DTypes, Entry, Row, op_as};
use highwater_graph::DType::{I64, U32};
use highwater_graph::{Autocast, Backward, Cost, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[GATHER, SCATTER_ADD];

/// `y[.., k, ..] = x[.., index[.., k, ..], ..]` along a dimension, as `torch.gather`.
///
/// Inputs `x` of any dtype but block formats and `index` (I64 or U32), in any layouts, whose shapes differ
/// in that dimension at most; an index that is repeated over the others (stride 0), as
/// `torch.index_select` has it, is read once. Output: the index's shape, row-major. An index outside stops
/// the step with the index and its position. The gradient is [`ScatterAdd`] onto zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gather {
    /// The dimension.
    pub dim: usize,
}

/// `y[.., index[.., k, ..], ..] += source[.., k, ..]` along a dimension, from zeros or another tensor, as
/// `torch.scatter_add`; each sum in ascending order of `k`.
///
/// Inputs `source` of a float dtype, `index` (I64 or U32) of its shape and, with `accumulate`, what is added
/// to, which the output may lie over. Output: the source's shape but for that dimension, row-major. In
/// types narrower than `f32` sums are in `f32`, rounded once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScatterAdd {
    /// The dimension.
    pub dim: usize,
    /// Its extent in the output.
    pub extent: usize,
    /// Whether there is a third input to start from, instead of zero.
    pub accumulate: bool,
}

/// A row for each dtype of elements and of indices.
macro_rules! gather_rows {
    ($($dtype:ident: $type:ty),* $(,)?) => {
        &[$(
            Row::cpu(DTypes::new(&[highwater_graph::DType::$dtype, I64], &[highwater_graph::DType::$dtype]), || Arc::new(cpu::gather::<$type>)),
            Row::cpu(DTypes::new(&[highwater_graph::DType::$dtype, U32], &[highwater_graph::DType::$dtype]), || Arc::new(cpu::gather::<$type>)),
        )*]
    };
}

const GATHER: Entry = Entry {
    name: "gather",
    rows: gather_rows! {
        F32: f32,
        F64: f64,
        BF16: half::bf16,
        F16: half::f16,
        I64: i64,
        I16: i16,
        U32: u32,
        U8: u8,
        Bool: u8,
    },
    reference: reference::gather,
    samples: samples::gather,
    rejects: samples::gather_rejects,
};

const SCATTER_ADD: Entry = Entry {
    name: "scatter_add",
    rows: rows_of_floats! {
        T: [T, I64, T] -> [T], [T, U32, T] -> [T];
        cpu::ScatterKernel::<T>(PhantomData);
        Precise::checked(reference::scatter_add, |op, inputs| {
            places::check(&inputs[1], op_as::<ScatterAdd>(op)?.extent)
        })
    },
    reference: reference::scatter_add,
    samples: samples::scatter_add,
    rejects: samples::scatter_add_rejects,
};

/// The shape with another extent in one dimension; a scalar stays one.
pub(super) fn with_extent(shape: &Shape, dim: usize, extent: usize) -> Shape {
    let extents = shape.iter().enumerate();
    extents
        .map(|(i, &own)| if i == dim { extent } else { own })
        .collect()
}

impl Op for Gather {
    fn name(&self) -> &'static str {
        GATHER.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_usize(self.dim);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 2)?;
        let dtype = of_elements(self.name(), &inputs[0])?;
        check_indices(self.name(), &inputs[1])?;
        let (x, index) = (inputs[0].shape(), inputs[1].shape());
        check_dim(self.name(), x, self.dim)?;
        if with_extent(x, self.dim, 1) != with_extent(index, self.dim, 1) {
            let expected = format!("an index {x} but for dimension {}", self.dim);
            return Err(OpError::shape(self.name(), expected, index.to_string()));
        }
        Ok(smallvec![Spec::contiguous(dtype, index.clone())])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        let written_bytes = outputs[0].bytes();
        Cost {
            read_bytes: crate::kernels::pointwise::held_bytes(&inputs[1]) + written_bytes,
            written_bytes,
            ..Cost::default()
        }
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let (dim, index) = (self.dim, backward.input(1));
        let extent = backward.input(0).shape().get(dim).copied().unwrap_or(1);
        let op = |accumulate| ScatterAdd {
            dim,
            extent,
            accumulate,
        };
        gradients::added_from(backward, op, &[index])
    }
}

impl Op for ScatterAdd {
    fn name(&self) -> &'static str {
        SCATTER_ADD.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_usize(self.dim);
        hasher.write_usize(self.extent);
        hasher.write_u8(self.accumulate.into());
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, if self.accumulate { 3 } else { 2 })?;
        let dtype = one_float_dtype(self.name(), &[&inputs[0]])?;
        check_indices(self.name(), &inputs[1])?;
        let (source, index) = (inputs[0].shape(), inputs[1].shape());
        check_dim(self.name(), source, self.dim)?;
        if source != index {
            let expected = format!("an index of the source's shape {source}");
            return Err(OpError::shape(self.name(), expected, index.to_string()));
        }
        let shape = with_extent(source, self.dim, self.extent);
        if let Some(base) = inputs.get(2) {
            OpError::check_dtype(self.name(), base, dtype)?;
            if *base.shape() != shape {
                let expected = format!("a tensor {shape} to add to");
                let got = base.shape().to_string();
                return Err(OpError::shape(self.name(), expected, got));
            }
        }
        Ok(smallvec![Spec::contiguous(dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        let source = inputs[0].bytes();
        Cost {
            vector_flops: inputs[0].layout.numel() as f64,
            // What is added to is read and written once more.
            read_bytes: inputs
                .iter()
                .map(crate::kernels::pointwise::held_bytes)
                .sum::<u64>()
                + 2 * source,
            written_bytes: outputs[0].bytes(),
            ..Cost::default()
        }
    }

    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0) else {
            return Ok(());
        };
        if backward.needs(0) {
            let (dim, index) = (self.dim, backward.input(1));
            let of_source = backward.emit_one(Gather { dim }, &[grad.clone(), index])?;
            backward.set(0, of_source);
        }
        if self.accumulate && backward.needs(2) {
            backward.set(2, grad);
        }
        Ok(())
    }
}
