//! Root-mean-square normalisation over the last dimension: `rms_norm` and `rms_norm_backward`.
//!
//! The kernels are those of `layer_norm` with a mean of zero.

mod cpu;
mod reference;
mod samples;

use crate::Entry;
use crate::kernels::checks::{check_shape, one_float_dtype};
use crate::kernels::float::sums_in;
use crate::kernels::pointwise::one_pass;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::layer_norm::{check_eps, emit_first, infer_first, second, split};
use highwater_graph::{Autocast, Backward, Cost, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[RMS_NORM, RMS_NORM_BACKWARD];

/// `y = x rstd weight` along the last dimension, where `rstd = 1 / sqrt(mean(x^2) + eps)`.
///
/// As `torch.nn.functional.rms_norm` (Zhang and Sennrich, "Root Mean Square Layer Normalization",
/// 2019). Inputs: `x [.., C]` and, unless it is left out, `weight [C]`; of one float dtype and any
/// layout. Outputs: `y`, and `rstd`, which has `x`'s shape without its last dimension and is at least
/// `F32`. Computed in `f32` and rounded once. One pass over memory; in place. Backward reads `x`,
/// `rstd` and `weight`, and makes both gradients in one pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RmsNorm {
    /// What is added to the mean of the squares; above 0.
    pub eps: f64,
}

/// The gradients of inputs `g`, `x`, `rstd` and, if `affine`, `weight`. Outputs: of those asked for, the
/// gradients of `x`, which may lie over `g`, and of the weight.
#[derive(Debug, Clone, Copy)]
struct RmsNormBackward {
    affine: bool,
    /// Which are asked for: of `x`, of the weight.
    wanted: [bool; 2],
}

const NAME: &str = "rms_norm";
const BACKWARD: &str = "rms_norm_backward";

impl Op for RmsNorm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.eps.to_bits());
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        check_eps(NAME, self.eps)?;
        OpError::check_arity(NAME, inputs, if inputs.len() == 1 { 1 } else { 2 })?;
        let all: SmallVec<[&Spec; 2]> = inputs.iter().collect();
        let dtype = one_float_dtype(NAME, &all)?;
        let (lead, width) = split(NAME, &inputs[0])?;
        for weight in &inputs[1..] {
            check_shape(NAME, weight, &[width])?;
        }
        Ok(smallvec![
            Spec::contiguous(dtype, inputs[0].shape().clone()),
            Spec::contiguous(sums_in(dtype), lead)
        ])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        one_pass(inputs, outputs, 4.0 * outputs[0].layout.numel() as f64)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let (rstd, op) = (backward.output(1), |affine, wanted| RmsNormBackward {
            affine,
            wanted,
        });
        emit_first(backward, [0, 1], [rstd], op)?;
        let grid = second::Grid::of_rows(backward.input(0).shape());
        second::of_statistics(backward, &grid, None, 1)
    }
}

impl Op for RmsNormBackward {
    fn name(&self) -> &'static str {
        BACKWARD
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_u8(u8::from(self.affine));
        hasher.write(&self.wanted.map(u8::from));
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let of = (1, self.affine, self.wanted);
        infer_first(BACKWARD, inputs, of, |x| split(BACKWARD, x))
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        one_pass(inputs, outputs, 10.0 * inputs[1].layout.numel() as f64)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let [of_x, of_weight] = self.wanted;
        let second = second::Second {
            grid: second::Grid::of_rows(backward.input(1).shape()),
            own: true,
            mean: false,
            affine: self.affine,
            wanted: [of_x, of_weight, false],
            linear: Arc::new(Self {
                affine: false,
                wanted: [true, false],
            }),
        };
        second.emit(backward)
    }
}

const RMS_NORM: Entry = Entry {
    name: NAME,
    rows: rows_of_floats! {
        T: [T] -> [T, Sums];
        cpu::RmsNormKernel::<T>(PhantomData); Precise::new(reference::reference)
    },
    reference: reference::reference,
    samples: samples::samples,
    rejects: samples::rejects,
};

const RMS_NORM_BACKWARD: Entry = Entry {
    name: BACKWARD,
    rows: rows_of_floats! {
        T: [T, T, Sums, T] -> [T];
        cpu::BackwardKernel::<T>(PhantomData); Precise::new(reference::backward)
    },
    reference: reference::backward,
    samples: samples::backward_samples,
    rejects: samples::backward_rejects,
};
