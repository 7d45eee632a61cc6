//! One step of stochastic gradient descent.

mod cpu;
mod reference;

use crate::kernels::cells::{self, check_gradient};
use crate::kernels::formats::{self, Update, update_op};
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::table::{count, f32_view, f32s, joined};
use crate::{Entry, Fill, Formats, Reject, Row, Sample};
use highwater_graph::{Layout, Op, OpError};
use std::hash::Hasher;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// One step of gradient descent, with momentum or without, as `torch.optim.SGD`, in one pass:
///
/// ```text
/// g <- g + weight_decay p
/// b <- g                               at the first step,
///      momentum b + (1 - dampening) g  later
/// p <- p - lr (g + momentum b)         with Nesterov's momentum,
///      p - lr b                        with momentum,
///      p - lr g                        without
/// ```
///
/// Inputs: the parameter `p` and, if `momentum` is not 0, the buffer `b`, cells that the step
/// overwrites, or dense ranges of cells, then the gradient `g`; all of one float dtype and one shape,
/// the gradient in any layout. No outputs. Moves 12 bytes for each parameter, 20 with momentum, in
/// `F32`. Other [formats](Formats) take other cells, as for [`AdamW`](crate::AdamW); the buffer is called
/// `momentum_buffer`.
///
/// Answers [`KernelError::NonFinite`](crate::KernelError::NonFinite) as
/// [`AdamW`](crate::AdamW) does. Whether there is momentum, whether it is Nesterov's, and the formats are
/// structure; all else may change from step to step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f64,
    /// Share of the buffer that is kept; without a buffer if 0.
    pub momentum: f64,
    /// Share of the gradient that the buffer does not take.
    pub dampening: f64,
    /// Weight decay, coupled: added to the gradient.
    pub weight_decay: f64,
    /// Whether the momentum is Nesterov's.
    pub nesterov: bool,
    /// Whether the objective is to grow: the gradient is turned around.
    pub maximize: bool,
    /// Whether this is the first step, which fills the buffer whatever it held.
    pub first: bool,
    /// How parameter and buffer are held.
    pub formats: Formats,
}

impl Sgd {
    /// Name in the registry.
    pub const NAME: &'static str = "sgd";

    fn has_buffer(&self) -> bool {
        self.momentum != 0.0
    }

    fn sign(&self) -> f64 {
        if self.maximize { -1.0 } else { 1.0 }
    }
}

impl Update for Sgd {
    const NAME: &'static str = Self::NAME;
    const FLOPS: f64 = 8.0;

    fn moments(&self) -> &'static [&'static str] {
        if self.has_buffer() { &MOMENTS } else { &[] }
    }

    fn formats(&self) -> Formats {
        self.formats
    }

    fn in_formats(self, formats: Formats) -> Self {
        Self { formats, ..self }
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u8(u8::from(self.has_buffer()));
        hasher.write_u8(u8::from(self.nesterov));
    }

    fn check(&self) -> Result<(), OpError> {
        if self.nesterov && !self.has_buffer() {
            return Err(OpError::Attribute {
                op: Self::NAME,
                attribute: "momentum",
                expected: "other than 0 for Nesterov's momentum".to_owned(),
                got: self.momentum.to_string(),
            });
        }
        Ok(())
    }
}

update_op!(Sgd);

const MOMENTS: [&str; 1] = ["momentum_buffer"];

const ROWS: &[&[Row]] = &[
    rows_of_floats! {
        T: [T] -> []; cpu::kernel::<T>; Precise::checked(reference::reference, check_gradient)
    },
    formats::rows! { cpu::kernel; [], [F32], [U8, F32] },
];

const ENTRY: Entry = Entry {
    name: Sgd::NAME,
    rows: &joined::<_, { count(ROWS) }>(ROWS),
    reference: reference::reference,
    samples,
    rejects,
};

const PLAIN: Sgd = Sgd {
    lr: 0.1,
    momentum: 0.0,
    dampening: 0.0,
    weight_decay: 0.0,
    nesterov: false,
    maximize: false,
    first: false,
    formats: Formats::PLAIN,
};

const MOMENTUM: Sgd = Sgd {
    momentum: 0.9,
    dampening: 0.25,
    weight_decay: 0.01,
    ..PLAIN
};

/// Updates that are tried in all forms.
const IN_FORMATS: [Sgd; 3] = [
    PLAIN,
    MOMENTUM,
    Sgd {
        first: true,
        nesterov: true,
        maximize: true,
        ..MOMENTUM
    },
];

fn sample(op: Sgd, gradient: Layout) -> Sample {
    let cell = f32s(gradient.shape().clone());
    let gradient = f32_view(gradient);
    let mut inputs = vec![(cell, Fill::Normal(1.0)); op.writes().len()];
    inputs.push((gradient, Fill::Normal(1.0)));
    Sample {
        op: Arc::new(op),
        inputs,
        tolerance: 1e-6,
    }
}

/// The same with a parameter that is rows of a larger cell.
fn sample_of_rows(op: Sgd, gradient: Layout) -> Sample {
    let rows = cells::rows_of_cell(gradient.shape());
    sample(op, gradient).input(0, rows, Fill::Normal(1.0))
}

fn samples() -> Vec<Sample> {
    let first = Sgd {
        first: true,
        ..MOMENTUM
    };
    let nesterov = Sgd {
        nesterov: true,
        dampening: 0.0,
        ..MOMENTUM
    };
    let decayed = Sgd {
        weight_decay: 0.1,
        maximize: true,
        ..PLAIN
    };
    let mut samples = vec![
        sample(PLAIN, Layout::contiguous([5, 37])),
        sample(decayed, Layout::strided([37, 65], &[1, 37], 0)),
        sample(MOMENTUM, Layout::contiguous([65])),
        sample(first, Layout::contiguous([130])),
        sample(nesterov, Layout::contiguous([3, 130, 131])),
        sample(nesterov, Layout::strided([130, 150], &[0, 2], 1)),
        sample_of_rows(decayed, Layout::strided([37, 65], &[1, 37], 0)),
        sample_of_rows(MOMENTUM, Layout::contiguous([130, 131])),
        sample(PLAIN, Layout::contiguous([])),
        sample(MOMENTUM, Layout::contiguous([0, 5])),
    ];
    samples.extend(IN_FORMATS.into_iter().flat_map(formats::samples));
    samples
}

fn rejects() -> Vec<Reject> {
    let mut rejects = cells::update_rejects(|| Arc::new(MOMENTUM), 3);
    rejects.extend(IN_FORMATS.into_iter().flat_map(formats::rejects));
    rejects.push(Reject {
        op: Arc::new(Sgd {
            nesterov: true,
            ..PLAIN
        }),
        inputs: vec![f32s([3]); 2],
        error: |error| {
            matches!(
                error,
                OpError::Attribute {
                    attribute: "momentum",
                    ..
                }
            )
        },
    });
    rejects
}
