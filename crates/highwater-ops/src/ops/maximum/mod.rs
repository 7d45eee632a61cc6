//! The larger and the smaller of two elements: `maximum`, `minimum` and `maximum_backward`.
//!
//! Inputs are of one float dtype or of `I64`, of any layouts, whose shapes broadcast. NaN wins. Any input that
//! is like the output may be overwritten. One pass. Of equal elements each takes half of the gradient.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]
#![expect(clippy::float_cmp, reason = "equal numbers share a gradient")]

use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::ops::gradients::{no_slope, set_reduced};
use crate::{Entry, Fill};
use highwater_graph::{Backward, OpError, Promotion};

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[MAXIMUM, MINIMUM, MAXIMUM_BACKWARD];

/// The larger of two elements. As `torch.maximum`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Maximum;

/// The smaller of two elements. As `torch.minimum`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Minimum;

/// Of inputs `g`, `a` and `b`, `g` where `a` is larger, half of it where both are equal, and 0 where `b` is
/// larger: the gradient of [`Maximum`] in `a`, and of [`Minimum`] in `b`. Differentiable in `g`; in the others
/// its gradient is zero.
#[derive(Debug, Clone, Copy)]
struct MaximumBackward;

pointwise_op!(Maximum: 2, Minimum: 2, MaximumBackward: 3);

macro_rules! extreme {
    ($($op:ident, $name:literal, $operator:tt, $entry:ident, [$first:literal, $second:literal];)*) => {$(
        impl Pointwise<2> for $op {
            const NAME: &'static str = $name;
            const FLOPS: f64 = 1.0;
            const WHOLE: bool = true;
            const PROMOTION: Option<Promotion> = Some(Promotion::ALL);

            #[inline(always)]
            fn value<I: Isa>(&self, [a, b]: [f32; 2]) -> f32 {
                if (a $operator b) | a.is_nan() { a } else { b }
            }

            fn exact(&self, [a, b]: [f64; 2]) -> f64 {
                if a $operator b || a.is_nan() { a } else { b }
            }

            fn whole(&self, [a, b]: [i64; 2]) -> i64 {
                if a $operator b { a } else { b }
            }

            /// The inputs in the order in which the backward of a maximum takes them.
            fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
                let inputs = [backward.input(0), backward.input(1)];
                for (i, first) in [$first, $second].into_iter().enumerate() {
                    let [a, b] = [&inputs[first], &inputs[1 - first]].map(Clone::clone);
                    set_reduced(backward, i, |backward, grad| {
                        backward.emit_one(MaximumBackward, &[grad, a, b])
                    })?;
                }
                Ok(())
            }
        }

        const $entry: Entry = pointwise::binary_entry::<$op>(
            || {
                // Differences know nothing of slopes where two numbers are nearly the same.
                let fills = [Fill::Indices(2), Fill::Uniform(0.1, 0.9)];
                let floats = pointwise::binary_samples(&$op, fills);
                let whole = pointwise::whole_samples::<2>(&$op);
                floats.into_iter().chain(whole).collect()
            },
            || pointwise::rejects::<2>(&$op),
        );
    )*};
}

extreme! {
    Maximum, "maximum", >, MAXIMUM, [0, 1];
    Minimum, "minimum", <, MINIMUM, [1, 0];
}

impl Pointwise<3> for MaximumBackward {
    const NAME: &'static str = "maximum_backward";
    const FLOPS: f64 = 2.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [g, a, b]: [f32; 3]) -> f32 {
        let share = if a == b { g * 0.5 } else { g };
        if a < b { 0.0 } else { share }
    }

    fn exact(&self, [g, a, b]: [f64; 3]) -> f64 {
        let share = if a == b { g * 0.5 } else { g };
        if a < b { 0.0 } else { share }
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let (a, b) = (backward.input(1), backward.input(2));
        set_reduced(backward, 0, |backward, grad| {
            backward.emit_one(Self, &[grad, a, b])
        })?;
        no_slope(backward, 1)?;
        no_slope(backward, 2)
    }
}

const MAXIMUM_BACKWARD: Entry = pointwise::ternary_entry::<MaximumBackward>(
    || pointwise::ternary_samples(&MaximumBackward, [Fill::Normal(1.0); 3]),
    || pointwise::rejects::<3>(&MaximumBackward),
);
