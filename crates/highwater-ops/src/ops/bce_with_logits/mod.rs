//! Cross-entropy of yes and no: `binary_cross_entropy_with_logits`.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::math;
use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::kernels::wide_math;
use crate::ops::gradients::set_reduced;
use crate::{Entry, Fill, Mul, Neg, Sigmoid, Sub};
use highwater_graph::{Backward, OpError};

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// `-y log(sigmoid(x)) - (1 - y) log(1 - sigmoid(x))` of logits `x` and targets `y`, which broadcast: as
/// `torch.nn.functional.binary_cross_entropy_with_logits` without a reduction. Nothing overflows, and small
/// losses keep their digits.
///
/// Two float tensors of any layouts; one pass; in place. Differentiable in both, again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BceWithLogits;

pointwise_op!(BceWithLogits: 2);

impl Pointwise<2> for BceWithLogits {
    const NAME: &'static str = "binary_cross_entropy_with_logits";
    const FLOPS: f64 = 35.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x, y]: [f32; 2]) -> f32 {
        let above = if x < 0.0 { 0.0 } else { x };
        above - x * y + wide_math::log1p(math::exp::<I>(-x.abs()))
    }

    fn exact(&self, [x, y]: [f64; 2]) -> f64 {
        x.max(0.0) - x * y + (-x.abs()).exp().ln_1p()
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let (x, y) = (backward.input(0), backward.input(1));
        set_reduced(backward, 0, |backward, grad| {
            let p = backward.emit_one(Sigmoid, std::slice::from_ref(&x))?;
            let slope = backward.emit_one(Sub, &[p, y])?;
            backward.emit_one(Mul, &[grad, slope])
        })?;
        set_reduced(backward, 1, |backward, grad| {
            let grad = backward.emit_one(Mul, &[grad, x])?;
            backward.emit_one(Neg, &[grad])
        })
    }
}

const ENTRY: Entry = pointwise::binary_entry::<BceWithLogits>(
    || {
        let fills = [Fill::Normal(3.0), Fill::Uniform(0.0, 1.0)];
        pointwise::of_many_nodes(pointwise::binary_samples(&BceWithLogits, fills))
    },
    || pointwise::rejects::<2>(&BceWithLogits),
);
