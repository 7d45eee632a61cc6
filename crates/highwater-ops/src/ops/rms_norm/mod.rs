//! Root-mean-square normalisation over the last dimension: `rms_norm` and `rms_norm_backward`.
//!
//! The kernels are those of `layer_norm` with a mean of zero.

mod cpu;
mod reference;
mod samples;

use crate::Entry;
use crate::kernels::checks::{check_shape, one_float_dtype};
use crate::kernels::float::sums_in;
use crate::kernels::pointwise::held_bytes;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::layer_norm::{second, split};
use highwater_graph::{Autocast, Backward, Cost, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;

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
        if !(self.eps > 0.0 && self.eps.is_finite()) {
            return Err(OpError::Attribute {
                op: NAME,
                attribute: "eps",
                expected: "above 0 and finite".to_owned(),
                got: self.eps.to_string(),
            });
        }
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
        Cost {
            vector_flops: 4.0 * outputs[0].layout.numel() as f64,
            read_bytes: inputs.iter().map(held_bytes).sum(),
            written_bytes: outputs.iter().map(Spec::bytes).sum(),
            ..Cost::default()
        }
    }

    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        Self::of_output(backward)?;
        let grid = second::Grid::of_rows(backward.input(0).shape());
        second::of_statistics(backward, &grid, None, 1)
    }
}

impl RmsNorm {
    /// Sets the gradients that the first output's brings.
    fn of_output(backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0) else {
            return Ok(());
        };
        let affine = backward.inputs() > 1;
        let wanted = [backward.needs(0), affine && backward.needs(1)];
        if wanted == [false; 2] {
            return Ok(());
        }
        let mut inputs = vec![grad, backward.input(0), backward.output(1)];
        if affine {
            inputs.push(backward.input(1));
        }
        let grads = backward.emit(RmsNormBackward { affine, wanted }, &inputs)?;
        let positions = (0..2).filter(|&i| wanted[i]);
        for (i, grad) in positions.zip(grads) {
            backward.set(i, grad);
        }
        Ok(())
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
        OpError::check_arity(BACKWARD, inputs, 3 + usize::from(self.affine))?;
        let mut all: SmallVec<[&Spec; 4]> = inputs.iter().collect();
        let rstd = all.remove(2);
        let dtype = one_float_dtype(BACKWARD, &all)?;
        OpError::check_dtype(BACKWARD, rstd, sums_in(dtype))?;
        let (lead, width) = split(BACKWARD, &inputs[1])?;
        let shape = inputs[1].shape();
        check_shape(BACKWARD, &inputs[0], shape)?;
        check_shape(BACKWARD, rstd, &lead)?;
        for weight in &inputs[3..] {
            check_shape(BACKWARD, weight, &[width])?;
        }
        let of_width = Shape::from([width]);
        let outputs = [shape, &of_width].into_iter().zip(self.wanted);
        Ok(outputs
            .filter(|&(_, wanted)| wanted)
            .map(|(shape, _)| Spec::contiguous(dtype, shape.clone()))
            .collect())
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost {
            vector_flops: 10.0 * inputs[1].layout.numel() as f64,
            read_bytes: inputs.iter().map(held_bytes).sum(),
            written_bytes: outputs.iter().map(Spec::bytes).sum(),
            ..Cost::default()
        }
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let [of_x, of_weight] = self.wanted;
        let second = second::Second {
            grid: second::Grid::of_rows(backward.input(1).shape()),
            own: true,
            mean: false,
            affine: self.affine,
            wanted: [of_x, of_weight, false],
            linear: Self {
                affine: false,
                wanted: [true, false],
            },
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
