//! One step of AdamW, and of Adam.

mod cpu;
mod reference;

use crate::kernels::cells::{self, check_gradient};
use crate::kernels::formats::{self, Update, update_op};
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::table::{count, f32_view, f32s, joined};
use crate::{Entry, Fill, Formats, Reject, Row, Sample};
use highwater_graph::Layout;
use std::hash::Hasher;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// One step of Adam with decoupled weight decay, as `torch.optim.AdamW` (Loshchilov and Hutter,
/// "Decoupled Weight Decay Regularization", 2019), in one pass over memory:
///
/// ```text
/// p <- p (1 - lr weight_decay)
/// m <- m + (1 - beta1) (g - m)
/// v <- beta2 v + (1 - beta2) g^2
/// p <- p - lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
/// ```
///
/// Without [`AdamW::decoupled`] the first line is `g <- g + weight_decay p`, as in `torch.optim.Adam`. With
/// [`AdamW::amsgrad`] a third moment holds the largest `v` so far, which the last line divides by.
///
/// Inputs: the parameter `p` and the moments `m` and `v`, cells that the step overwrites, or dense
/// ranges of cells, and the gradient `g`; all of one float dtype and one shape, the gradient in any
/// layout. No outputs. Moves 28 bytes for each parameter in `F32`. Other [formats](Formats) take other
/// cells: the parameter, [`Formats::cells`] of [`AdamW::moments`], then the gradient, which is of
/// the parameter's dtype or `F32`; they compute in `F32`.
///
/// The kernel answers [`KernelError::NonFinite`](crate::KernelError::NonFinite) if an element of
/// the gradient is not finite. It finds that out on the way, so parts of the cells may already be
/// updated then: the engine they belong to is poisoned.
///
/// Every attribute but the formats and `amsgrad` may change from step to step: none is part of a plan's
/// structure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Whether that takes a share of the parameter (AdamW), or is added to the gradient (Adam).
    pub decoupled: bool,
    /// Whether to divide by the largest second moment so far (Reddi et al., "On the Convergence of Adam and
    /// Beyond", 2018).
    pub amsgrad: bool,
    /// Whether the objective is to grow: the gradient is turned around.
    pub maximize: bool,
    /// Number of this step, from 1.
    pub step: u64,
    /// How parameter and moments are held.
    pub formats: Formats,
}

impl AdamW {
    /// Name in the registry.
    pub const NAME: &'static str = "adamw";

    /// The names of the moments.
    pub fn moments(&self) -> &'static [&'static str] {
        if self.amsgrad { &LARGEST } else { &MOMENTS }
    }

    /// What decay leaves of the parameter.
    fn keep(&self) -> f64 {
        if self.decoupled {
            1.0 - self.lr * self.weight_decay
        } else {
            1.0
        }
    }

    /// How much of the parameter is added to the gradient.
    fn coupled(&self) -> f64 {
        if self.decoupled {
            0.0
        } else {
            self.weight_decay
        }
    }

    fn sign(&self) -> f64 {
        if self.maximize { -1.0 } else { 1.0 }
    }
}

impl Update for AdamW {
    const NAME: &'static str = Self::NAME;
    const FLOPS: f64 = 30.0;

    fn moments(&self) -> &'static [&'static str] {
        AdamW::moments(self)
    }

    fn formats(&self) -> Formats {
        self.formats
    }

    fn in_formats(self, formats: Formats) -> Self {
        Self { formats, ..self }
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u8(u8::from(self.amsgrad));
    }
}

update_op!(AdamW);

const MOMENTS: [&str; 2] = ["exp_avg", "exp_avg_sq"];
const LARGEST: [&str; 3] = ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"];

const ROWS: &[&[Row]] = &[
    rows_of_floats! {
        T: [T] -> []; cpu::kernel::<T>; Precise::checked(reference::reference, check_gradient)
    },
    formats::rows! {
        cpu::kernel; [F32, F32], [U8, F32, U8, F32], [F32, F32, F32], [U8, F32, U8, F32, U8, F32]
    },
];

const ENTRY: Entry = Entry {
    name: AdamW::NAME,
    rows: &joined::<_, { count(ROWS) }>(ROWS),
    reference: reference::reference,
    samples,
    rejects,
};

const TYPICAL: AdamW = AdamW {
    lr: 1e-2,
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-8,
    weight_decay: 0.1,
    decoupled: true,
    amsgrad: false,
    maximize: false,
    step: 7,
    formats: Formats::PLAIN,
};

/// As `torch.optim.Adam`, with all that it may ask for.
const COUPLED: AdamW = AdamW {
    decoupled: false,
    amsgrad: true,
    maximize: true,
    ..TYPICAL
};

fn sample(op: AdamW, gradient: Layout) -> Sample {
    let cell = f32s(gradient.shape().clone());
    let gradient = f32_view(gradient);
    let mut inputs = vec![
        (cell.clone(), Fill::Normal(1.0)),
        (cell.clone(), Fill::Normal(0.1)),
    ];
    let squares = op.moments().len() - 1;
    inputs.extend(vec![(cell, Fill::Uniform(1e-4, 0.05)); squares]);
    inputs.push((gradient, Fill::Normal(0.2)));
    Sample {
        op: Arc::new(op),
        inputs,
        tolerance: 2e-6,
    }
}

/// The same with a parameter that is rows of a larger cell.
fn sample_of_rows(op: AdamW, gradient: Layout) -> Sample {
    let rows = cells::rows_of_cell(gradient.shape());
    sample(op, gradient).input(0, rows, Fill::Normal(1.0))
}

fn samples() -> Vec<Sample> {
    let first = AdamW { step: 1, ..TYPICAL };
    let plain = AdamW {
        weight_decay: 0.0,
        eps: 1e-3,
        step: 100_000,
        ..TYPICAL
    };
    let adam = AdamW {
        decoupled: false,
        ..TYPICAL
    };
    let mut samples = vec![
        sample(TYPICAL, Layout::contiguous([5, 37])),
        sample(first, Layout::contiguous([65])),
        sample(plain, Layout::contiguous([])),
        sample(TYPICAL, Layout::contiguous([0, 5])),
        sample(TYPICAL, Layout::contiguous([3, 130, 131])),
        sample(TYPICAL, Layout::strided([37, 41], &[1, 40], 3)),
        sample(TYPICAL, Layout::strided([130, 150], &[0, 2], 1)),
        sample_of_rows(TYPICAL, Layout::contiguous([130, 131])),
        sample_of_rows(first, Layout::strided([37, 41], &[1, 40], 3)),
        sample(adam, Layout::contiguous([130, 131])),
        sample(COUPLED, Layout::contiguous([3, 130, 131])),
        sample_of_rows(COUPLED, Layout::strided([37, 41], &[1, 40], 3)),
    ];
    samples.extend(formats::samples(TYPICAL));
    samples.extend(formats::samples(COUPLED));
    samples
}

fn rejects() -> Vec<Reject> {
    let mut rejects = cells::update_rejects(|| Arc::new(TYPICAL), 4);
    rejects.extend(formats::rejects(TYPICAL));
    rejects.extend(cells::update_rejects(|| Arc::new(COUPLED), 5));
    rejects.extend(formats::rejects(COUPLED));
    rejects
}
