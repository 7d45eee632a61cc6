//! The norms themselves.

use super::{BATCH, GROUP, Geometry, INFERENCE, Kind, emit_backward, emit_own};
use crate::kernels::checks::{check_shape, one_float_dtype};
use crate::kernels::float::sums_in;
use crate::kernels::pointwise::one_pass;
use crate::ops::layer_norm::check_eps;
use highwater_graph::{Autocast, Backward, Cost, DType, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;

/// `y = (x - mean) rstd weight + bias` for each channel, where mean and the biased variance are those of
/// the channel in all samples and `rstd = 1 / sqrt(var + eps)`: as `torch.nn.functional.batch_norm` in
/// training (Ioffe and Szegedy, 2015).
///
/// Inputs: `x [N, C, ..]` with more than one element of each channel; if `affine`, then `weight [C]` and
/// `bias [C]`; all of one float dtype and any layout. Outputs: `y`, which may lie over `x`, and `mean`,
/// `rstd` and the biased variance, `[C]` and at least `F32`: running statistics are made of them by nodes
/// of their own. One pass over memory. Backward reads `x`, `mean`, `rstd` and `weight`; no gradient flows
/// through the variance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchNorm {
    /// What is added to the variance; above 0.
    pub eps: f64,
    /// Whether there are a weight and a bias.
    pub affine: bool,
}

/// [`BatchNorm`] by statistics that are given: as `torch.nn.functional.batch_norm` in evaluation.
///
/// Inputs: `x [N, C, ..]`; `mean [C]` and `var [C]`, at least `F32`; if `affine`, then `weight [C]` and
/// `bias [C]`. Outputs: `y`, which may lie over `x`, and `rstd [C]`, at least `F32`. No gradient flows to
/// mean and variance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchNormInference {
    /// What is added to the variance; above 0.
    pub eps: f64,
    /// Whether there are a weight and a bias.
    pub affine: bool,
}

/// `y = (x - mean) rstd weight + bias`, where mean and the biased variance are those of a group of
/// neighbouring channels of one sample: as `torch.nn.functional.group_norm` (Wu and He, 2018), and with a
/// group for each channel as `torch.nn.functional.instance_norm`.
///
/// Inputs: `x [N, C, ..]`; if `affine`, then `weight [C]` and `bias [C]`; all of one float dtype and any
/// layout. Outputs: `y`, which may lie over `x`, and `mean` and `rstd`, `[N, groups]` and at least `F32`.
/// One pass over memory. Backward reads `x`, `mean`, `rstd` and `weight`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupNorm {
    /// How many groups; divides the channels.
    pub groups: usize,
    /// What is added to the variance; above 0.
    pub eps: f64,
    /// Whether there are a weight and a bias.
    pub affine: bool,
}

/// The channels of `[N, C, ..]`.
pub(super) fn channels(op: &'static str, x: &Spec) -> Result<usize, OpError> {
    let &[_, channels, ..] = x.shape().dims() else {
        let got = x.shape().to_string();
        return Err(OpError::shape(op, "an input [N, C, ..]", got));
    };
    Ok(channels)
}

/// Checks `x` and, behind it and `given` statistics, weight and bias; answers the dtype and the channels.
fn check(
    op: &'static str,
    inputs: &[Spec],
    given: usize,
    (eps, affine): (f64, bool),
) -> Result<(DType, usize), OpError> {
    check_eps(op, eps)?;
    OpError::check_arity(op, inputs, 1 + given + 2 * usize::from(affine))?;
    let (statistics, parameters) = inputs[1..].split_at(given);
    let all: SmallVec<[&Spec; 3]> = inputs[..1].iter().chain(parameters).collect();
    let dtype = one_float_dtype(op, &all)?;
    let channels = channels(op, &inputs[0])?;
    for input in statistics {
        OpError::check_dtype(op, input, sums_in(dtype))?;
    }
    for input in &inputs[1..] {
        check_shape(op, input, &[channels])?;
    }
    Ok((dtype, channels))
}

/// `y`, and so many statistics.
fn outputs(dtype: DType, x: &Spec, shape: Shape, statistics: usize) -> SmallVec<[Spec; 2]> {
    let mut outputs = smallvec![Spec::contiguous(dtype, x.shape().clone())];
    let statistic = Spec::contiguous(sums_in(dtype), shape);
    outputs.extend(std::iter::repeat_n(statistic, statistics));
    outputs
}

fn hash(hasher: &mut dyn Hasher, eps: f64, affine: bool) {
    hasher.write_u64(eps.to_bits());
    hasher.write_u8(u8::from(affine));
}

/// [`Op::infer`] of a norm by the statistics of the batch.
pub(super) fn infer_batch(
    op: &'static str,
    inputs: &[Spec],
    eps: f64,
    affine: bool,
) -> Result<SmallVec<[Spec; 2]>, OpError> {
    let (dtype, channels) = check(op, inputs, 0, (eps, affine))?;
    let count = Geometry::new(Kind::Batch, inputs[0].shape()).count();
    if count < 2 && channels > 0 {
        let got = inputs[0].shape().to_string();
        let expected = "more than one element of each channel";
        return Err(OpError::shape(op, expected, got));
    }
    Ok(outputs(dtype, &inputs[0], [channels].into(), 3))
}

impl Op for BatchNorm {
    fn name(&self) -> &'static str {
        BATCH.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hash(hasher, self.eps, self.affine);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        infer_batch(self.name(), inputs, self.eps, self.affine)
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        one_pass(inputs, outputs, 8.0 * inputs[0].layout.numel() as f64)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        if backward.grad(3).is_some() {
            return Err(OpError::NotDifferentiable { op: self.name() });
        }
        emit_own(backward, Kind::Batch)
    }
}

impl Op for BatchNormInference {
    fn name(&self) -> &'static str {
        INFERENCE.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hash(hasher, self.eps, self.affine);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let (dtype, channels) = check(self.name(), inputs, 2, (self.eps, self.affine))?;
        Ok(outputs(dtype, &inputs[0], [channels].into(), 1))
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        one_pass(inputs, outputs, 3.0 * inputs[0].layout.numel() as f64)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        if backward.needs(1) || backward.needs(2) {
            return Err(OpError::NotDifferentiable { op: self.name() });
        }
        let statistics = (backward.input(1), backward.output(1));
        emit_backward(backward, Kind::Inference, statistics, 3)
    }
}

impl Op for GroupNorm {
    fn name(&self) -> &'static str {
        GROUP.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hash(hasher, self.eps, self.affine);
        hasher.write_usize(self.groups);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let op = self.name();
        let (dtype, channels) = check(op, inputs, 0, (self.eps, self.affine))?;
        if self.groups == 0 || !channels.is_multiple_of(self.groups) {
            return Err(OpError::Attribute {
                op,
                attribute: "groups",
                expected: format!("a divisor of {channels} channels"),
                got: self.groups.to_string(),
            });
        }
        let x = &inputs[0];
        let samples = x.shape()[0];
        if samples > 0 && Geometry::new(Kind::Groups(self.groups), x.shape()).count() == 0 {
            let got = x.shape().to_string();
            return Err(OpError::shape(op, "an element of each group", got));
        }
        Ok(outputs(dtype, x, [samples, self.groups].into(), 2))
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        one_pass(inputs, outputs, 8.0 * inputs[0].layout.numel() as f64)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        emit_own(backward, Kind::Groups(self.groups))
    }
}
