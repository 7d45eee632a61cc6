//! Elements put, or joined, at indices along a dimension: `scatter`, `scatter_reduce`, and what their gradients
//! are weighted by.

mod cpu;
mod reference;
mod samples;

use super::gather::with_extent;
use crate::kernels::checks::{check_indices, of_elements, one_float_dtype};
use crate::kernels::lines::{Lines, check_dim};
use crate::kernels::places;
use crate::kernels::pointwise::held_bytes;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::gradients::times;
use crate::{DTypes, Entry, Gather, KernelError, Row, View};
use highwater_graph::DType::{I64, U32};
use highwater_graph::{Autocast, Backward, Cost, Op, OpError, Operand, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[SCATTER, SCATTER_REDUCE, WEIGHTS];

/// `y[.., index[.., k, ..], ..] = source[.., k, ..]` along a dimension, and elsewhere another tensor, as
/// `torch.scatter`. Of several elements for one place the last counts.
///
/// Inputs: `source` of any dtype but block formats, `index` (I64 or U32) of its shape, and what is written to,
/// which differs from them in that dimension at most and which the output may lie over. Output: its shape,
/// row-major. An index outside stops the step with the index and its position. The gradient goes to the elements
/// that the output holds, and to no others: PyTorch's is the same where no place is written twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scatter {
    /// The dimension.
    pub dim: usize,
}

/// How [`ScatterReduce`] joins elements that go to one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScatterReduction {
    /// Their sum.
    Sum,
    /// Their product.
    Prod,
    /// Their mean.
    Mean,
    /// The largest; NaN is larger than all.
    Amax,
    /// The smallest; NaN is smaller than all.
    Amin,
}

/// Elements joined at indices along a dimension, in ascending order of `k`, as `torch.scatter_reduce`.
///
/// Inputs as those of [`Scatter`], of one float dtype. Places without elements keep what they have. The state of
/// each place is in `f64`, in scratch memory, and rounded once. Extrema share their gradient evenly among equals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScatterReduce {
    /// The dimension.
    pub dim: usize,
    /// How elements are joined.
    pub reduction: ScatterReduction,
    /// Whether what is at a place before is one of them.
    pub include_self: bool,
}

/// What the gradient is multiplied by on its way to each element of `source`, and of what is written to: the
/// derivatives of [`Scatter`] (without a reduction) and of [`ScatterReduce`], of the same inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ScatterWeights {
    dim: usize,
    reduction: Option<ScatterReduction>,
    include_self: bool,
}

/// A row for each dtype of elements and of indices.
macro_rules! scatter_rows {
    ($($dtype:ident: $type:ty),* $(,)?) => {
        &[$(
            scatter_rows!(@ $dtype I64 $type),
            scatter_rows!(@ $dtype U32 $type),
        )*]
    };
    (@ $dtype:ident $index:ident $type:ty) => {
        Row::cpu(
            DTypes::new(
                &[highwater_graph::DType::$dtype, $index, highwater_graph::DType::$dtype],
                &[highwater_graph::DType::$dtype],
            ),
            || Arc::new(cpu::ScatterKernel::<$type>(PhantomData)),
        )
    };
}

const SCATTER: Entry = Entry {
    name: "scatter",
    rows: scatter_rows! {
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
    reference: reference::scatter,
    samples: samples::scatter,
    rejects: samples::scatter_rejects,
};

const SCATTER_REDUCE: Entry = Entry {
    name: "scatter_reduce",
    rows: rows_of_floats! {
        T: [T, I64, T] -> [T], [T, U32, T] -> [T];
        cpu::ReduceKernel::<T>(PhantomData);
        Precise::checked(reference::reduce, |op, inputs| check(crate::op_as::<ScatterReduce>(op)?.dim, inputs))
    },
    reference: reference::reduce,
    samples: samples::reduce,
    rejects: samples::reduce_rejects,
};

const WEIGHTS: Entry = Entry {
    name: "scatter_reduce_backward",
    rows: rows_of_floats! {
        T: [T, I64, T] -> [T, T], [T, U32, T] -> [T, T];
        cpu::WeightsKernel::<T>(PhantomData);
        Precise::checked(reference::weights, |op, inputs| check(crate::op_as::<ScatterWeights>(op)?.dim, inputs))
    },
    reference: reference::weights,
    samples: samples::weights,
    rejects: samples::weights_rejects,
};

/// That indices are in range, for the references.
fn check(dim: usize, inputs: &[View<'_>]) -> Result<(), KernelError> {
    let extent = Lines::new(inputs[2].spec().shape(), dim).extent;
    places::check(&inputs[1], extent)
}

/// Checks the shapes of source, index, and what is written to.
fn check_shapes(op: &'static str, dim: usize, inputs: &[Spec]) -> Result<(), OpError> {
    check_indices(op, &inputs[1])?;
    let [source, index, base] = [0, 1, 2].map(|i| inputs[i].shape());
    check_dim(op, base, dim)?;
    if source != index {
        let expected = format!("an index of the source's shape {source}");
        return Err(OpError::shape(op, expected, index.to_string()));
    }
    if with_extent(base, dim, 1) != with_extent(source, dim, 1) {
        let expected = format!("a source {base} but for dimension {dim}");
        return Err(OpError::shape(op, expected, source.to_string()));
    }
    Ok(())
}

/// Source, index and output once, and the output's places for each element.
fn cost(inputs: &[Spec], outputs: &[Spec], flops: f64) -> Cost {
    let read: u64 = inputs.iter().map(held_bytes).sum();
    Cost {
        vector_flops: flops * inputs[0].layout.numel() as f64,
        read_bytes: read + 2 * inputs[0].bytes(),
        written_bytes: outputs.iter().map(Spec::bytes).sum(),
        ..Cost::default()
    }
}

/// Sets the gradients of source and of what is written to: that of the output, weighted.
fn emit(backward: &mut Backward<'_>, weights: ScatterWeights) -> Result<(), OpError> {
    let Some(grad) = backward.grad(0) else {
        return Ok(());
    };
    if !backward.needs(0) && !backward.needs(2) {
        return Ok(());
    }
    let [source, index, base] = [0, 1, 2].map(|i| backward.input(i));
    let is_sum = weights.reduction == Some(ScatterReduction::Sum);
    // Those of a sum are ones, but for what is written over.
    let are_ones = is_sum && (weights.include_self || !backward.needs(2));
    let (mut of_source, mut of_base) = (None, None);
    if !are_ones {
        let inputs = [source, index.clone(), base];
        let mut weights = backward.emit(weights, &inputs)?.into_iter();
        of_source = weights.next().filter(|_| !is_sum);
        of_base = weights.next();
    }
    if backward.needs(0) {
        let dim = weights.dim;
        let gathered = backward.emit_one(Gather { dim }, &[grad.clone(), index])?;
        let of_source = weighted(backward, gathered, of_source)?;
        backward.set(0, of_source);
    }
    if backward.needs(2) {
        let of_base = weighted(backward, grad, of_base)?;
        backward.set(2, of_base);
    }
    Ok(())
}

/// A gradient times its weights, if they are not ones.
fn weighted(
    backward: &mut Backward<'_>,
    grad: Operand,
    weights: Option<Operand>,
) -> Result<Operand, OpError> {
    match weights {
        Some(weights) => times(backward, &grad, &weights),
        None => Ok(grad),
    }
}

impl Op for Scatter {
    fn name(&self) -> &'static str {
        SCATTER.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_usize(self.dim);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 3)?;
        let dtype = of_elements(self.name(), &inputs[0])?;
        OpError::check_dtype(self.name(), &inputs[2], dtype)?;
        check_shapes(self.name(), self.dim, inputs)?;
        Ok(smallvec![Spec::contiguous(
            dtype,
            inputs[2].shape().clone()
        )])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, 0.0)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let weights = ScatterWeights {
            dim: self.dim,
            reduction: None,
            include_self: false,
        };
        emit(backward, weights)
    }
}

impl Op for ScatterReduce {
    fn name(&self) -> &'static str {
        SCATTER_REDUCE.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_usize(self.dim);
        hasher.write_u8(self.reduction as u8);
        hasher.write_u8(self.include_self.into());
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 3)?;
        let dtype = one_float_dtype(self.name(), &[&inputs[0], &inputs[2]])?;
        check_shapes(self.name(), self.dim, inputs)?;
        Ok(smallvec![Spec::contiguous(
            dtype,
            inputs[2].shape().clone()
        )])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, 1.0)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let weights = ScatterWeights {
            dim: self.dim,
            reduction: Some(self.reduction),
            include_self: self.include_self,
        };
        emit(backward, weights)
    }
}

impl Op for ScatterWeights {
    fn name(&self) -> &'static str {
        WEIGHTS.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_usize(self.dim);
        hasher.write_u8(self.reduction.map_or(0, |reduction| 1 + reduction as u8));
        hasher.write_u8(self.include_self.into());
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 3)?;
        let dtype = one_float_dtype(self.name(), &[&inputs[0], &inputs[2]])?;
        check_shapes(self.name(), self.dim, inputs)?;
        let like = |i: usize| Spec::contiguous(dtype, inputs[i].shape().clone());
        Ok(smallvec![like(0), like(2)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, 4.0)
    }

    /// Weights are the same all around, but for those of products.
    fn backward(&self, _backward: &mut Backward<'_>) -> Result<(), OpError> {
        match self.reduction {
            Some(ScatterReduction::Prod) => Err(OpError::NotDifferentiable { op: self.name() }),
            _ => Ok(()),
        }
    }
}
