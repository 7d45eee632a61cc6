//! One step of RMSprop.

mod cpu;
mod reference;

use crate::kernels::cells::{self, check_gradient};
use crate::kernels::formats::{self, Update, update_op};
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::table::{count, joined};
use crate::{Entry, Fill, Formats, Reject, Row, Sample};
use std::hash::Hasher;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// One step of RMSprop, as `torch.optim.RMSprop`, in one pass:
///
/// ```text
/// g <- g + weight_decay p
/// v <- alpha v + (1 - alpha) g^2
/// a <- a + (1 - alpha) (g - a)                 centered
/// d <- sqrt(v) + eps, or sqrt(v - a^2) + eps   centered
/// b <- momentum b + g / d                      with momentum
/// p <- p - lr b, or p - lr g / d               without
/// ```
///
/// Inputs: the parameter `p`, its [`RmsProp::moments`] (`v`, then `b` if `momentum` is not 0, then `a` if
/// centered), and the gradient `g`, as for [`AdamW`](crate::AdamW), formats and errors too. `v - a^2` is 0
/// where rounding makes it negative; PyTorch has NaN there. Which moments there are and the formats are
/// structure; all else may change from step to step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RmsProp {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the squares' average.
    pub alpha: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay, coupled: added to the gradient.
    pub weight_decay: f64,
    /// Share of the buffer that is kept; without a buffer if 0.
    pub momentum: f64,
    /// Whether gradients are divided by their standard deviation.
    pub centered: bool,
    /// Whether the objective is to grow: the gradient is turned around.
    pub maximize: bool,
    /// How parameter and moments are held.
    pub formats: Formats,
}

impl RmsProp {
    /// Name in the registry.
    pub const NAME: &'static str = "rmsprop";

    /// The names of the moments.
    pub fn moments(&self) -> &'static [&'static str] {
        match (self.momentum != 0.0, self.centered) {
            (false, false) => &["square_avg"],
            (true, false) => &["square_avg", "momentum_buffer"],
            (false, true) => &["square_avg", "grad_avg"],
            (true, true) => &["square_avg", "momentum_buffer", "grad_avg"],
        }
    }

    fn sign(&self) -> f64 {
        if self.maximize { -1.0 } else { 1.0 }
    }
}

impl Update for RmsProp {
    const NAME: &'static str = Self::NAME;
    const FLOPS: f64 = 30.0;

    fn moments(&self) -> &'static [&'static str] {
        RmsProp::moments(self)
    }

    fn formats(&self) -> Formats {
        self.formats
    }

    fn in_formats(self, formats: Formats) -> Self {
        Self { formats, ..self }
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u8(u8::from(self.momentum != 0.0));
        hasher.write_u8(u8::from(self.centered));
    }
}

update_op!(RmsProp);

const ROWS: &[&[Row]] = &[
    rows_of_floats! {
        T: [T] -> []; cpu::kernel::<T>; Precise::checked(reference::reference, check_gradient)
    },
    formats::rows! {
        cpu::kernel;
        [F32], [U8, F32],
        [F32, F32], [U8, F32, U8, F32],
        [F32, F32, F32], [U8, F32, U8, F32, U8, F32]
    },
];

const ENTRY: Entry = Entry {
    name: RmsProp::NAME,
    rows: &joined::<_, { count(ROWS) }>(ROWS),
    reference: reference::reference,
    samples,
    rejects,
};

const TYPICAL: RmsProp = RmsProp {
    lr: 1e-2,
    alpha: 0.99,
    eps: 1e-3,
    weight_decay: 0.1,
    momentum: 0.0,
    centered: false,
    maximize: false,
    formats: Formats::PLAIN,
};

/// One for each set of moments.
const ALL: [RmsProp; 4] = [
    TYPICAL,
    RmsProp {
        momentum: 0.9,
        maximize: true,
        ..TYPICAL
    },
    RmsProp {
        centered: true,
        ..TYPICAL
    },
    RmsProp {
        momentum: 0.5,
        centered: true,
        weight_decay: 0.0,
        ..TYPICAL
    },
];

fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    for op in ALL {
        let fill = |name: &&str| match *name {
            "square_avg" => Fill::Uniform(0.5, 1.0),
            _ => Fill::Normal(0.1),
        };
        let fills: Vec<Fill> = op.moments().iter().map(fill).collect();
        samples.extend(formats::plain_samples(op, &fills, 2e-6));
        samples.extend(formats::samples(op));
    }
    samples
}

fn rejects() -> Vec<Reject> {
    let mut rejects = cells::update_rejects(|| Arc::new(TYPICAL), 3);
    rejects.extend(ALL.into_iter().flat_map(formats::rejects));
    rejects
}
