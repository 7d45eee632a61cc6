//! Squares near zero, lines away from it: `huber`.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::ops::gradients::set_reduced;
use crate::{Clamp, Entry, Fill, Mul};
use highwater_graph::{Backward, OpError};
use std::hash::Hasher;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[HUBER];

/// `x^2 / 2` where `|x|` is below `delta`, else `delta (|x| - delta / 2)` (Huber, 1964): what
/// `torch.nn.functional.huber_loss` does to differences.
///
/// One float tensor of any shape and layout; one pass; in place. Backward reads the input, and has gradients
/// of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Huber {
    /// Where the lines begin, above zero.
    pub delta: f64,
}

pointwise_op!(Huber: 1);

impl Pointwise<1> for Huber {
    const NAME: &'static str = "huber";
    const FLOPS: f64 = 4.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        let (size, delta) = (x.abs(), self.delta as f32);
        let line = delta * (size - 0.5 * delta);
        if size < delta { 0.5 * x * x } else { line }
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        let (size, delta) = (x.abs(), self.delta);
        let line = delta * (size - 0.5 * delta);
        if size < delta { 0.5 * x * x } else { line }
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.delta.to_bits());
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let clamp = Clamp {
            min: Some(-self.delta),
            max: Some(self.delta),
        };
        set_reduced(backward, 0, |backward, grad| {
            let x = backward.input(0);
            let slope = backward.emit_one(clamp, &[x])?;
            backward.emit_one(Mul, &[grad, slope])
        })
    }
}

const SAMPLE: Huber = Huber { delta: 0.75 };

const HUBER: Entry = pointwise::unary_entry::<Huber>(
    || pointwise::unary_samples(&SAMPLE, Fill::Normal(1.0)),
    || pointwise::rejects::<1>(&SAMPLE),
);
