//! One step of Adagrad.

mod cpu;
mod reference;

use crate::kernels::cells::{self, check_gradient};
use crate::kernels::formats::{self, Update, update_op};
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::table::{count, joined};
use crate::{Entry, Fill, Formats, Reject, Row, Sample};
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// One step of Adagrad (Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and
/// Stochastic Optimization", 2011), as `torch.optim.Adagrad`, in one pass:
///
/// ```text
/// g <- g + weight_decay p
/// s <- s + g^2
/// p <- p - lr / (1 + (step - 1) lr_decay) g / (sqrt(s) + eps)
/// ```
///
/// Inputs: the parameter `p`, the sum `s`, and the gradient `g`, as for [`AdamW`](crate::AdamW), formats and
/// errors too. At the first step the sum starts from `initial`, whatever it held. Only the formats are
/// structure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adagrad {
    /// Learning rate.
    pub lr: f64,
    /// What the rate falls by with each step.
    pub lr_decay: f64,
    /// Weight decay, coupled: added to the gradient.
    pub weight_decay: f64,
    /// What the sum holds before the first step.
    pub initial: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Whether the objective is to grow: the gradient is turned around.
    pub maximize: bool,
    /// Number of this step, from 1.
    pub step: u64,
    /// How parameter and sum are held.
    pub formats: Formats,
}

impl Adagrad {
    /// Name in the registry.
    pub const NAME: &'static str = "adagrad";

    fn rate(&self) -> f64 {
        self.lr / (1.0 + (self.step as f64 - 1.0) * self.lr_decay)
    }

    fn sign(&self) -> f64 {
        if self.maximize { -1.0 } else { 1.0 }
    }
}

impl Update for Adagrad {
    const NAME: &'static str = Self::NAME;
    const FLOPS: f64 = 20.0;

    fn moments(&self) -> &'static [&'static str] {
        &MOMENTS
    }

    fn formats(&self) -> Formats {
        self.formats
    }

    fn in_formats(self, formats: Formats) -> Self {
        Self { formats, ..self }
    }
}

update_op!(Adagrad);

const MOMENTS: [&str; 1] = ["sum"];

const ROWS: &[&[Row]] = &[
    rows_of_floats! {
        T: [T] -> []; cpu::kernel::<T>; Precise::checked(reference::reference, check_gradient)
    },
    formats::rows! { cpu::kernel; [F32], [U8, F32] },
];

const ENTRY: Entry = Entry {
    name: Adagrad::NAME,
    rows: &joined::<_, { count(ROWS) }>(ROWS),
    reference: reference::reference,
    samples,
    rejects,
};

const TYPICAL: Adagrad = Adagrad {
    lr: 0.1,
    lr_decay: 0.01,
    weight_decay: 0.1,
    initial: 0.1,
    eps: 1e-10,
    maximize: true,
    step: 7,
    formats: Formats::PLAIN,
};

fn samples() -> Vec<Sample> {
    let first = Adagrad {
        step: 1,
        maximize: false,
        ..TYPICAL
    };
    let mut samples = Vec::new();
    for op in [TYPICAL, first] {
        samples.extend(formats::plain_samples(op, &[Fill::Uniform(0.1, 1.0)], 2e-6));
    }
    samples.extend(formats::samples(TYPICAL));
    samples
}

fn rejects() -> Vec<Reject> {
    let mut rejects = cells::update_rejects(|| Arc::new(TYPICAL), 3);
    rejects.extend(formats::rejects(TYPICAL));
    rejects
}
