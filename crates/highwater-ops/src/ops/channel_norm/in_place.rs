//! Batch normalisation and an activation whose result is all that backward reads: `inplace_abn`.
//!
//! The kernel is that of the norm, and one more loop over its result where that lies, 8,192 elements to a
//! task; no element depends on another there.

#![expect(unsafe_code, reason = "tasks write their own elements")]

use super::cpu::ForwardKernel;
use super::forward::infer_batch;
use super::reference;
use super::{BatchNorm, ChannelNormBackward, Kind};
use crate::kernels::float::{Float, sums_in, update};
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::kernels::simd::multiversion;
use crate::kernels::wide_math;
use crate::ops::activations::{EluBackward, EluInverse, LeakyReluBackward};
use crate::table::{is_attribute, is_shape};
use crate::{
    Args, Array, Cast, Disjoint, Entry, Fill, Full, Kernel, KernelError, LeakyRelu, Mul, Pairs,
    PowScalar, Reject, Sample, op_as,
};
use highwater_graph::{Backward, Cost, Op, OpError, Operand, Spec};
use smallvec::SmallVec;
use std::hash::Hasher;
use std::marker::PhantomData;

/// Elements that a task takes.
const TASK: usize = 8192;

/// An activation that its result can be turned back from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Invertible {
    /// None.
    Identity,
    /// [`LeakyRelu`] of a slope above 0.
    LeakyRelu {
        /// 0.01 in PyTorch.
        slope: f64,
    },
    /// [`Elu`](crate::Elu) of an `alpha` above 0. What has come close to `-alpha` comes back rounded.
    Elu {
        /// 1 in PyTorch.
        alpha: f64,
    },
}

/// [`BatchNorm`] by the statistics of the batch, then an activation, of which backward keeps the result alone
/// (Rota Bulò, Porzi and Kontschieder, "In-Place Activated BatchNorm", 2018).
///
/// Inputs and outputs are those of [`BatchNorm`]; no element of the weight may be 0, since backward divides by
/// it: the original takes `|weight| + eps`. Backward turns the activation back and has from it what was
/// normalised, rounded twice, in one pass more than [`BatchNorm`] takes. Gradients flow through `y` alone and
/// that of `x` has no gradient, as in the original.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InPlaceAbn {
    /// What is added to the variance; above 0.
    pub eps: f64,
    /// Whether there are a weight and a bias.
    pub affine: bool,
    /// What follows.
    pub activation: Invertible,
}

impl Invertible {
    /// Its number, and what it is set to.
    fn setting(self) -> (u8, f64) {
        match self {
            Self::Identity => (0, 1.0),
            Self::LeakyRelu { slope } => (1, slope),
            Self::Elu { alpha } => (2, alpha),
        }
    }

    fn exact(self, x: f64) -> f64 {
        match self {
            Self::LeakyRelu { slope } if x <= 0.0 => x * slope,
            Self::Elu { alpha } if x <= 0.0 => x.exp_m1() * alpha,
            _ => x,
        }
    }

    /// From `g` and `y`, its result, emits what it was given, and the gradient there.
    fn turn_back(
        self,
        backward: &mut Backward<'_>,
        g: Operand,
        y: Operand,
    ) -> Result<[Operand; 2], OpError> {
        match self {
            Self::Identity => Ok([y, g]),
            Self::LeakyRelu { slope } => {
                let inverse = LeakyRelu { slope: 1.0 / slope };
                let z = backward.emit_one(inverse, std::slice::from_ref(&y))?;
                let g = backward.emit_one(LeakyReluBackward { slope }, &[g, y])?;
                Ok([z, g])
            }
            Self::Elu { alpha } => {
                let z = backward.emit_one(EluInverse { alpha }, &[y])?;
                let g = backward.emit_one(EluBackward { alpha, order: 1 }, &[g, z.clone()])?;
                Ok([z, g])
            }
        }
    }
}

impl InPlaceAbn {
    fn norm(self) -> BatchNorm {
        BatchNorm {
            eps: self.eps,
            affine: self.affine,
        }
    }
}

impl Op for InPlaceAbn {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.norm().hash_attributes(hasher);
        let (number, setting) = self.activation.setting();
        hasher.write_u8(number);
        hasher.write_u64(setting.to_bits());
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let (_, setting) = self.activation.setting();
        if !(setting > 0.0 && setting.is_finite()) {
            return Err(OpError::Attribute {
                op: self.name(),
                attribute: "activation",
                expected: "a slope or alpha above 0 and finite".to_owned(),
                got: setting.to_string(),
            });
        }
        infer_batch(self.name(), inputs, self.eps, self.affine)
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], threads: usize) -> Cost {
        let norm = self.norm().cost(inputs, outputs, threads);
        Cost {
            vector_flops: norm.vector_flops + 6.0 * inputs[0].layout.numel() as f64,
            ..norm
        }
    }

    /// With `z = w n + b` before the activation, `n = (z - b) / w`: the gradients of a norm of `z`, whose mean is
    /// `b` and whose deviation is `w`. That of `x` has the factor `w rstd`, and not `1 / w`.
    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        if (1..4).any(|i| backward.grad(i).is_some()) {
            return Err(OpError::NotDifferentiable { op: self.name() });
        }
        let wanted = [0, 1, 2].map(|i| backward.inputs() > i && backward.needs(i));
        let Some(g) = backward.grad(0).filter(|_| wanted != [false; 3]) else {
            return Ok(());
        };
        let (y, rstd) = (backward.output(0), backward.output(2));
        let dtype = y.spec.dtype;
        let [z, g] = self.activation.turn_back(backward, g, y)?;
        let cast = |backward: &mut Backward<'_>, x: Operand, dtype| {
            if x.spec.dtype == dtype {
                return Ok(x);
            }
            backward.emit_one(Cast { dtype }, &[x])
        };
        let [mean, inverse, factor] = if self.affine {
            let weight = backward.input(1);
            let weight = cast(backward, weight, sums_in(dtype))?;
            let bias = backward.input(2);
            let bias = cast(backward, bias, sums_in(dtype))?;
            let mut power =
                |exponent| backward.emit_one(PowScalar { exponent }, std::slice::from_ref(&weight));
            let (inverse, square) = (power(-1.0)?, power(2.0)?);
            [bias, inverse, backward.emit_one(Mul, &[square, rstd])?]
        } else {
            let constant = |value| Full {
                value,
                dtype: sums_in(dtype),
                shape: rstd.shape().clone(),
            };
            let (zero, one) = (constant(0.0), constant(1.0));
            [
                backward.emit_one(zero, &[])?,
                backward.emit_one(one, &[])?,
                rstd,
            ]
        };
        let factor = cast(backward, factor, dtype)?;
        let op = ChannelNormBackward {
            kind: Kind::Batch,
            affine: true,
            wanted,
        };
        let grads = backward.emit(op, &[g, z, mean, inverse, factor])?;
        let positions = (0..3).filter(|&i| wanted[i]);
        for (i, grad) in positions.zip(grads) {
            backward.set(i, grad);
        }
        Ok(())
    }
}

/// May overwrite `x`.
struct AbnKernel<T>(PhantomData<fn() -> T>);

impl<T: Float> Kernel for AbnKernel<T> {
    fn in_place(&self, op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        ForwardKernel::<T>(PhantomData).in_place(op, inputs, outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let op: &InPlaceAbn = op_as(op)?;
        ForwardKernel::<T>(PhantomData).launch(&op.norm(), args)?;
        let f = match op.activation {
            Invertible::Identity => return Ok(()),
            Invertible::LeakyRelu { .. } => leak,
            Invertible::Elu { .. } => elu,
        };
        let (_, setting) = op.activation.setting();
        let y = args.outputs[0].slice_mut::<T>()?;
        let (len, y) = (y.len(), Disjoint::new(y));
        args.pool.for_each(len.div_ceil(TASK), |task| {
            let start = task * TASK;
            // SAFETY: a task's own elements.
            let y = unsafe { y.part(start, TASK.min(len - start)) };
            update([y], &mut |_, [y]| f(y, setting as f32));
        });
        Ok(())
    }
}

multiversion! {
    /// [`LeakyRelu`].
    fn leak[I](y: &mut [f32], slope: f32) {
        for y in y {
            *y = if *y > 0.0 { *y } else { *y * slope };
        }
    }
}

multiversion! {
    /// [`Elu`](crate::Elu).
    fn elu[I](y: &mut [f32], alpha: f32) {
        for y in y {
            let below = wide_math::expm1(*y) * alpha;
            *y = if *y > 0.0 { *y } else { below };
        }
    }
}

fn plain(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &InPlaceAbn = op.downcast().expect("inplace_abn");
    let mut outputs = reference::batch(&op.norm(), inputs);
    for y in &mut outputs[0].data {
        *y = op.activation.exact(*y);
    }
    outputs
}

fn samples() -> Vec<Sample> {
    let activations = [
        Invertible::LeakyRelu { slope: 0.01 },
        Invertible::Elu { alpha: 1.0 },
        Invertible::LeakyRelu { slope: 0.5 },
        Invertible::Identity,
    ];
    let shapes: [&[usize]; 6] = [
        &[3, 4, 5, 7],
        &[37, 6],
        &[2, 6, 650],
        &[1, 2, 33],
        &[2, 70, 2, 2],
        &[3, 0, 4],
    ];
    let mut samples = Vec::new();
    for (i, &shape) in shapes.iter().enumerate() {
        for activation in activations {
            let affine = i % 3 != 1;
            let op = InPlaceAbn {
                eps: 1e-5,
                affine,
                activation,
            };
            let of_channels = [shape[1]];
            let shapes: [&[usize]; 3] = [shape, &of_channels, &of_channels];
            let mut sample = Sample::new(op, &shapes[..=2 * usize::from(affine)]);
            let is_elu = matches!(activation, Invertible::Elu { .. });
            // What is close to the lower bound of `Elu` comes back rounded: in half precision by much.
            let (weight, bias) = if is_elu {
                (Fill::Uniform(0.4, 0.6), Fill::Uniform(0.0, 1.0))
            } else {
                (Fill::Uniform(0.5, 1.5), Fill::Normal(1.0))
            };
            if affine {
                let spec = sample.inputs[1].0.clone();
                sample = sample.input(1, spec.clone(), weight).input(2, spec, bias);
            }
            samples.push(sample.tolerance(if is_elu { 5e-3 } else { 1e-5 }));
        }
    }
    samples
}

fn rejects() -> Vec<Reject> {
    let reject = |slope, shape: &[usize], error| Reject {
        op: std::sync::Arc::new(InPlaceAbn {
            eps: 1e-5,
            affine: false,
            activation: Invertible::LeakyRelu { slope },
        }),
        inputs: vec![Spec::contiguous(highwater_graph::DType::F32, shape)],
        error,
    };
    vec![
        reject(0.0, &[2, 3, 4], is_attribute),
        reject(0.1, &[3], is_shape),
    ]
}

pub(super) const ENTRY: Entry = Entry {
    name: "inplace_abn",
    rows: rows_of_floats! {
        T: [T] -> [T, Sums]; AbnKernel::<T>(PhantomData); Precise::new(plain)
    },
    reference: plain,
    samples,
    rejects,
};
