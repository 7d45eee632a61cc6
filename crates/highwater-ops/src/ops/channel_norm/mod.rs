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
use crate::kernels::pointwise::one_pass;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::layer_norm::second::{Grid, Second, of_statistics};
use crate::ops::layer_norm::{emit_first, infer_first};
use forward::channels;
use highwater_graph::{Backward, Cost, Op, OpError, Operand, Shape, Spec};
use smallvec::SmallVec;
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

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
    let positions = [0, parameters, parameters + 1];
    emit_first(backward, positions, [mean, rstd], |affine, wanted| {
        ChannelNormBackward {
            kind,
            affine,
            wanted,
        }
    })
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
        let (op, of) = (self.name(), (2, self.affine, self.wanted));
        infer_first(op, inputs, of, |x| {
            let channels = channels(op, x)?;
            Ok((self.kind.statistics(x.shape()), channels))
        })
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        one_pass(inputs, outputs, 14.0 * inputs[1].layout.numel() as f64)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let second = Second {
            grid: self.kind.grid(backward.input(1).shape()),
            own: self.kind != Kind::Inference,
            mean: true,
            affine: self.affine,
            wanted: self.wanted,
            linear: Arc::new(Self {
                affine: false,
                wanted: [true, false, false],
                ..*self
            }),
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
