//! Normalisation by channels: `batch_norm`, `batch_norm_inference`, `group_norm`, the gradients of
//! all three, `channel_norm_backward`, `inplace_abn`, and `running_average`.
//!
//! Inputs are `[N, C, ..]`: images, sequences, or rows of features. Statistics are over a channel of all
//! samples, or over a group of channels of one. Mean and variance are sums in `f64`, two passes over what
//! is in a cache by then; elements are computed in `f32` and rounded once.

mod backward_cpu;
mod cpu;
mod forward;
mod in_place;
mod reference;
mod running;
mod samples;

pub use forward::{BatchNorm, BatchNormInference, GroupNorm};
pub use in_place::{InPlaceAbn, Invertible};
pub use running::RunningAverage;

use crate::Entry;
use crate::kernels::checks::{check_shape, one_float_dtype};
use crate::kernels::float::sums_in;
use crate::kernels::pointwise::held_bytes;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::layer_norm::second::{Grid, Second, of_statistics};
use forward::channels;
use highwater_graph::{Backward, Cost, Op, OpError, Operand, Shape, Spec};
use smallvec::SmallVec;
use std::hash::Hasher;
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[
    BATCH,
    INFERENCE,
    GROUP,
    BACKWARD,
    in_place::ENTRY,
    running::ENTRY,
];

/// What statistics are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A channel of all samples.
    Batch,
    /// The same, and given.
    Inference,
    /// So many groups of channels of each sample.
    Groups(usize),
}

/// The gradients of inputs `g`, `x`, `mean`, `rstd` and, if `affine`, `weight`. Outputs: of those asked
/// for, the gradients of `x`, which may lie over `g`, of the weight, and of the bias.
#[derive(Debug, Clone, Copy)]
struct ChannelNormBackward {
    kind: Kind,
    affine: bool,
    /// Which are asked for: of `x`, of the weight, of the bias.
    wanted: [bool; 3],
}

/// How elements share statistics: of `[outer, rows, parts, pixels]`, a row has one mean and variance, and
/// a part of a row one element of the weight.
#[derive(Debug, Clone, Copy)]
struct Geometry {
    outer: usize,
    rows: usize,
    parts: usize,
    pixels: usize,
    channels: usize,
}

impl Geometry {
    fn new(kind: Kind, shape: &Shape) -> Self {
        let (samples, channels) = (shape[0], shape[1]);
        let pixels = shape[2..].iter().product();
        let (outer, rows, parts) = match kind {
            Kind::Batch | Kind::Inference => (samples, channels, 1),
            Kind::Groups(groups) => (1, samples * groups, channels / groups.max(1)),
        };
        Self {
            outer,
            rows,
            parts,
            pixels,
            channels,
        }
    }

    /// Elements of a row in one of `outer`.
    fn width(&self) -> usize {
        self.parts * self.pixels
    }

    /// Elements that share statistics.
    fn count(&self) -> usize {
        self.outer * self.width()
    }

    /// The element of the weight for a part of a row.
    fn parameter(&self, row: usize, part: usize) -> usize {
        (row * self.parts + part) % self.channels
    }
}

impl Kind {
    /// The shape of statistics.
    fn statistics(self, x: &Shape) -> Shape {
        match self {
            Self::Batch | Self::Inference => [x[1]].into(),
            Self::Groups(groups) => [x[0], groups].into(),
        }
    }

    /// How gradients see `x`: `[samples, channels, 1, pixels]`, or groups and the channels of each.
    fn grid(self, x: &Shape) -> Grid {
        let Geometry { parts, pixels, .. } = Geometry::new(self, x);
        let (samples, groups, dims) = match self {
            Self::Batch | Self::Inference => (1, x[1], vec![0, 3]),
            Self::Groups(groups) => (x[0], groups, vec![2, 3]),
        };
        Grid {
            full: [x[0], groups, parts, pixels].into(),
            statistics: [samples, groups, 1, 1].into(),
            weight: [1, groups, parts, 1].into(),
            dims,
        }
    }

    fn hash(self, hasher: &mut dyn Hasher) {
        hasher.write_usize(match self {
            Self::Batch => 0,
            Self::Inference => 1,
            Self::Groups(groups) => 2 + groups,
        });
    }
}

/// Emits the gradients of a norm of its own statistics, the second and third output.
fn emit_own(backward: &mut Backward<'_>, kind: Kind) -> Result<(), OpError> {
    let statistics = (backward.output(1), backward.output(2));
    emit_backward(backward, kind, statistics, 1)?;
    let grid = kind.grid(backward.input(0).shape());
    of_statistics(backward, &grid, Some(1), 2)
}

/// Emits the gradients that the first output's brings, of a norm whose inputs are `x` and, from `parameters`
/// on, weight and bias.
fn emit_backward(
    backward: &mut Backward<'_>,
    kind: Kind,
    (mean, rstd): (Operand, Operand),
    parameters: usize,
) -> Result<(), OpError> {
    let Some(grad) = backward.grad(0) else {
        return Ok(());
    };
    let affine = backward.inputs() > parameters;
    let positions = [0, parameters, parameters + 1];
    let wanted = positions.map(|i| backward.inputs() > i && backward.needs(i));
    if wanted == [false; 3] {
        return Ok(());
    }
    let mut inputs = vec![grad, backward.input(0), mean, rstd];
    if affine {
        inputs.push(backward.input(parameters));
    }
    let op = ChannelNormBackward {
        kind,
        affine,
        wanted,
    };
    let grads = backward.emit(op, &inputs)?;
    let wanted = positions.into_iter().zip(wanted);
    for ((i, _), grad) in wanted.filter(|&(_, wanted)| wanted).zip(grads) {
        backward.set(i, grad);
    }
    Ok(())
}

/// One pass with so many operations for each element of `x`.
fn cost(inputs: &[Spec], outputs: &[Spec], elements: usize, flops: f64) -> Cost {
    Cost {
        vector_flops: flops * elements as f64,
        read_bytes: inputs.iter().map(held_bytes).sum(),
        written_bytes: outputs.iter().map(Spec::bytes).sum(),
        ..Cost::default()
    }
}

impl Op for ChannelNormBackward {
    fn name(&self) -> &'static str {
        BACKWARD.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.kind.hash(hasher);
        hasher.write_u8(u8::from(self.affine));
        hasher.write(&self.wanted.map(u8::from));
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let op = self.name();
        OpError::check_arity(op, inputs, 4 + usize::from(self.affine))?;
        let mut all: SmallVec<[&Spec; 5]> = inputs.iter().collect();
        let statistics: SmallVec<[&Spec; 2]> = all.drain(2..4).collect();
        let dtype = one_float_dtype(op, &all)?;
        let channels = channels(op, &inputs[1])?;
        let x = inputs[1].shape();
        check_shape(op, &inputs[0], x)?;
        for input in statistics {
            OpError::check_dtype(op, input, sums_in(dtype))?;
            check_shape(op, input, &self.kind.statistics(x))?;
        }
        for weight in &inputs[4..] {
            check_shape(op, weight, &[channels])?;
        }
        let of_channels = Shape::from([channels]);
        let outputs = [x, &of_channels, &of_channels].into_iter().zip(self.wanted);
        let outputs = outputs.filter(|&(_, wanted)| wanted);
        Ok(outputs
            .map(|(shape, _)| Spec::contiguous(dtype, shape.clone()))
            .collect())
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, inputs[1].layout.numel(), 14.0)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let second = Second {
            grid: self.kind.grid(backward.input(1).shape()),
            own: self.kind != Kind::Inference,
            mean: true,
            affine: self.affine,
            wanted: self.wanted,
            linear: Self {
                affine: false,
                wanted: [true, false, false],
                ..*self
            },
        };
        second.emit(backward)
    }
}

const BATCH: Entry = Entry {
    name: "batch_norm",
    rows: rows_of_floats! {
        T: [T] -> [T, Sums];
        cpu::ForwardKernel::<T>(PhantomData); Precise::new(reference::batch)
    },
    reference: reference::batch,
    samples: samples::batch,
    rejects: samples::batch_rejects,
};

const INFERENCE: Entry = Entry {
    name: "batch_norm_inference",
    rows: rows_of_floats! {
        T: [T, Sums, Sums, T] -> [T, Sums];
        cpu::ForwardKernel::<T>(PhantomData); Precise::new(reference::inference)
    },
    reference: reference::inference,
    samples: samples::inference,
    rejects: samples::inference_rejects,
};

const GROUP: Entry = Entry {
    name: "group_norm",
    rows: rows_of_floats! {
        T: [T] -> [T, Sums];
        cpu::ForwardKernel::<T>(PhantomData); Precise::new(reference::group)
    },
    reference: reference::group,
    samples: samples::group,
    rejects: samples::group_rejects,
};

const BACKWARD: Entry = Entry {
    name: "channel_norm_backward",
    rows: rows_of_floats! {
        T: [T, T, Sums, Sums, T] -> [T];
        backward_cpu::BackwardKernel::<T>(PhantomData); Precise::new(reference::backward)
    },
    reference: reference::backward,
    samples: samples::backward,
    rejects: samples::backward_rejects,
};
