//! One step of Lion.

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

/// One step of Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023), in one pass:
///
/// ```text
/// p <- p (1 - lr weight_decay)
/// p <- p - lr sign(beta1 m + (1 - beta1) g)
/// m <- beta2 m + (1 - beta2) g
/// ```
///
/// Inputs: the parameter `p`, the moment `m`, and the gradient `g`, as for [`AdamW`](crate::AdamW), formats
/// and errors too. The sign of 0 is 0. Only the formats are structure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lion {
    /// Learning rate.
    pub lr: f64,
    /// Share of the moment in the direction.
    pub beta1: f64,
    /// Decay of the moment.
    pub beta2: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// How parameter and moment are held.
    pub formats: Formats,
}

impl Lion {
    /// Name in the registry.
    pub const NAME: &'static str = "lion";
}

impl Update for Lion {
    const NAME: &'static str = Self::NAME;
    const FLOPS: f64 = 10.0;

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

update_op!(Lion);

const MOMENTS: [&str; 1] = ["exp_avg"];

const ROWS: &[&[Row]] = &[
    rows_of_floats! {
        T: [T] -> []; cpu::kernel::<T>; Precise::checked(reference::reference, check_gradient)
    },
    formats::rows! { cpu::kernel; [F32], [U8, F32] },
];

const ENTRY: Entry = Entry {
    name: Lion::NAME,
    rows: &joined::<_, { count(ROWS) }>(ROWS),
    reference: reference::reference,
    samples,
    rejects,
};

const TYPICAL: Lion = Lion {
    lr: 1e-2,
    beta1: 0.9,
    beta2: 0.99,
    weight_decay: 0.1,
    formats: Formats::PLAIN,
};

fn samples() -> Vec<Sample> {
    // A moment of one sign, larger than what the gradient adds to it: no direction is near 0.
    let mut samples = formats::plain_samples(TYPICAL, &[Fill::Uniform(0.2, 1.0)], 2e-6);
    samples.extend(formats::plain_samples(
        TYPICAL,
        &[Fill::Constant(0.0)],
        2e-6,
    ));
    samples.extend(formats::samples(TYPICAL));
    samples
}

fn rejects() -> Vec<Reject> {
    let mut rejects = cells::update_rejects(|| Arc::new(TYPICAL), 3);
    rejects.extend(formats::rejects(TYPICAL));
    rejects
}
