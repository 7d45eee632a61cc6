//! Functions that are constant but for jumps: `sign`, `floor`, `ceil`, `round`.
//!
//! One float tensor of any shape and layout; one pass; in place. Their gradient is zero everywhere, as
//! PyTorch has it, and costs nothing: one zero that is seen in the input's shape.

use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::ops::gradients::no_slope;
use crate::{Entry, Fill};
use highwater_graph::{Backward, OpError};

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[SIGN, FLOOR, CEIL, ROUND];

macro_rules! rounding {
    ($($(#[$doc:meta])* $op:ident, $name:literal, $entry:ident, |$x:ident| $value:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $op;

        pointwise_op!($op: 1);

        impl Pointwise<1> for $op {
            const NAME: &'static str = $name;
            const FLOPS: f64 = 1.0;

            #[inline(always)]
            fn value<I: Isa>(&self, [$x]: [f32; 1]) -> f32 {
                $value
            }

            fn exact(&self, [$x]: [f64; 1]) -> f64 {
                $value
            }

            fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
                no_slope(backward, 0)
            }
        }

        const $entry: Entry = pointwise::unary_entry::<$op>(
            || pointwise::unary_samples(&$op, Fill::Normal(3.0)),
            || pointwise::rejects::<1>(&$op),
        );
    )*};
}

rounding! {
    /// 1 above zero, -1 below, else 0, of NaN as well. As `torch.sign`.
    Sign, "sign", SIGN, |x| {
        let (above, below) = (i8::from(x > 0.0), i8::from(x < 0.0));
        (above - below).into()
    };
    /// The largest whole number that is not above. As `torch.floor`.
    Floor, "floor", FLOOR, |x| x.floor();
    /// The smallest whole number that is not below. As `torch.ceil`.
    Ceil, "ceil", CEIL, |x| x.ceil();
    /// The nearest whole number, of two the even one. As `torch.round`.
    Round, "round", ROUND, |x| x.round_ties_even();
}
