//! A number times a logarithm, where nothing times anything is nothing: `xlogy`.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::math;
use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::ops::gradients::{self, set_reduced};
use crate::{Div, Entry, Equal, Fill, LessEqual, LogicalAnd, Mul, Where};
use highwater_graph::{Backward, OpError};

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[XLOGY];

/// `x log(y)`, and 0 where `x` is 0 unless `y` is NaN. As `torch.xlogy`.
///
/// Two float tensors of any layouts, which broadcast; one pass; in place. Differentiable in both, again and
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Xlogy;

pointwise_op!(Xlogy: 2);

impl Pointwise<2> for Xlogy {
    const NAME: &'static str = "xlogy";
    const FLOPS: f64 = 12.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x, y]: [f32; 2]) -> f32 {
        let product = x * math::log::<I>(y);
        if (x == 0.0) & !y.is_nan() {
            0.0
        } else {
            product
        }
    }

    fn exact(&self, [x, y]: [f64; 2]) -> f64 {
        if x == 0.0 && !y.is_nan() {
            0.0
        } else {
            x * y.ln()
        }
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let (x, y) = (backward.input(0), backward.input(1));
        set_reduced(backward, 0, |backward, grad| {
            let grad = backward.emit_one(Self, &[grad, y.clone()])?;
            let zero = gradients::zero(backward, x.spec.dtype)?;
            let of_zero = backward.emit_one(Equal, &[x.clone(), zero.clone()])?;
            let undefined = backward.emit_one(LessEqual, &[y.clone(), zero.clone()])?;
            let nothing = backward.emit_one(LogicalAnd, &[of_zero, undefined])?;
            backward.emit_one(Where, &[nothing, zero, grad])
        })?;
        set_reduced(backward, 1, |backward, grad| {
            let grad = backward.emit_one(Mul, &[grad, x])?;
            backward.emit_one(Div, &[grad, y])
        })
    }
}

const XLOGY: Entry = pointwise::binary_entry::<Xlogy>(
    || pointwise::binary_samples(&Xlogy, [Fill::Normal(1.0), Fill::Uniform(0.3, 5.0)]),
    || pointwise::rejects::<2>(&Xlogy),
);
