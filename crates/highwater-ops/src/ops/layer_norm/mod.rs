//! Layer normalisation over the last dimension: `layer_norm` and `layer_norm_backward`.

pub(crate) mod backward_cpu;
pub(crate) mod cpu;
mod gradient;
mod reference;
pub(crate) mod samples;
pub(crate) mod second;

use crate::Entry;
use crate::kernels::checks::{check_shape, one_float_dtype};
use crate::kernels::float::sums_in;
use crate::kernels::pointwise::one_pass;
use crate::kernels::rows::{Precise, rows_of_floats};
pub(crate) use gradient::{check_eps, emit_first, infer_first};
use highwater_graph::{Autocast, Backward, Cost, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[LAYER_NORM, LAYER_NORM_BACKWARD];

/// `y = (x - mean) rstd weight + bias` along the last dimension, where `rstd = 1 / sqrt(var + eps)`
/// and `var` is the biased variance.
///
/// As `torch.native_layer_norm` (Ba, Kiros and Hinton, 2016). Inputs: `x [.., C]`; if `affine`, then
/// `weight [C]`, and then, unless it is left out, `bias [C]`; all of one float dtype and any layout.
/// Outputs: `y`, and `mean` and `rstd`, which have `x`'s shape without its last dimension and are at
/// least `F32`. Mean and variance of a
/// row are sums in `f64`, one after the other. One pass over memory; in place. Backward reads `x`,
/// `mean`, `rstd` and `weight`, and makes all three gradients in one pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerNorm {
    /// What is added to the variance; above 0.
    pub eps: f64,
    /// Whether there is a weight.
    pub affine: bool,
}

/// The gradients of inputs `g`, `x`, `mean`, `rstd` and, if `affine`, `weight`. Outputs: of those
/// asked for, the gradients of `x`, which may lie over `g`, of the weight, and of the bias.
#[derive(Debug, Clone, Copy)]
struct LayerNormBackward {
    affine: bool,
    /// Which are asked for: of `x`, of the weight, of the bias.
    wanted: [bool; 3],
}

const NAME: &str = "layer_norm";
const BACKWARD: &str = "layer_norm_backward";

/// `x`'s shape without its last dimension, and that.
pub(crate) fn split(op: &'static str, x: &Spec) -> Result<(Shape, usize), OpError> {
    let shape = x.shape();
    match shape.split_last() {
        Some((&width, lead)) if width > 0 => Ok((lead.into(), width)),
        _ => Err(OpError::shape(
            op,
            "a last dimension that is not empty",
            shape.to_string(),
        )),
    }
}

impl Op for LayerNorm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.eps.to_bits());
        hasher.write_u8(u8::from(self.affine));
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        check_eps(NAME, self.eps)?;
        let bias = self.affine && inputs.len() == 3;
        let arity = 1 + usize::from(self.affine) + usize::from(bias);
        OpError::check_arity(NAME, inputs, arity)?;
        let all: SmallVec<[&Spec; 3]> = inputs.iter().collect();
        let dtype = one_float_dtype(NAME, &all)?;
        let (lead, width) = split(NAME, &inputs[0])?;
        for affine in &inputs[1..] {
            check_shape(NAME, affine, &[width])?;
        }
        let shape = inputs[0].shape().clone();
        let statistics = Spec::contiguous(sums_in(dtype), lead);
        Ok(smallvec![
            Spec::contiguous(dtype, shape),
            statistics.clone(),
            statistics
        ])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        one_pass(inputs, outputs, 8.0 * outputs[0].layout.numel() as f64)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let statistics = [1, 2].map(|i| backward.output(i));
        let op = |affine, wanted| LayerNormBackward { affine, wanted };
        emit_first(backward, [0, 1, 2], statistics, op)?;
        let grid = second::Grid::of_rows(backward.input(0).shape());
        second::of_statistics(backward, &grid, Some(1), 2)
    }
}

impl Op for LayerNormBackward {
    fn name(&self) -> &'static str {
        BACKWARD
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_u8(u8::from(self.affine));
        hasher.write(&self.wanted.map(u8::from));
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let of = (2, self.affine, self.wanted);
        infer_first(BACKWARD, inputs, of, |x| split(BACKWARD, x))
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        one_pass(inputs, outputs, 14.0 * inputs[1].layout.numel() as f64)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let second = second::Second {
            grid: second::Grid::of_rows(backward.input(1).shape()),
            own: true,
            mean: true,
            affine: self.affine,
            wanted: self.wanted,
            linear: Arc::new(Self {
                affine: false,
                wanted: [true, false, false],
            }),
        };
        second.emit(backward)
    }
}

/// Number of rows, and elements of each.
pub(crate) fn rows_and_width(shape: &Shape) -> (usize, usize) {
    let (&width, lead) = shape.split_last().unwrap_or((&1, &[]));
    (lead.iter().product(), width)
}

const LAYER_NORM: Entry = Entry {
    name: NAME,
    rows: rows_of_floats! {
        T: [T] -> [T, Sums];
        cpu::LayerNormKernel::<T>(PhantomData); Precise::new(reference::reference)
    },
    reference: reference::reference,
    samples: samples::samples,
    rejects: samples::rejects,
};

const LAYER_NORM_BACKWARD: Entry = Entry {
    name: BACKWARD,
    rows: rows_of_floats! {
        T: [T, T, Sums, Sums, T] -> [T];
        backward_cpu::BackwardKernel::<T>(PhantomData); Precise::new(reference::backward)
    },
    reference: reference::backward,
    samples: samples::backward_samples,
    rejects: samples::backward_rejects,
};
