//! What kind of number an element is: `isnan`, `isinf`, `isfinite`.
//!
//! One float tensor of any shape and layout; the result is of `Bool`. One pass. There is no gradient.

use crate::Entry;
use crate::kernels::predicate::{self, Number, Predicate, Takes, predicate_op};

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[
    predicate::entry::<IsNan, 1>(),
    predicate::entry::<IsInf, 1>(),
    predicate::entry::<IsFinite, 1>(),
];

macro_rules! kinds {
    ($($(#[$doc:meta])* $op:ident, $name:literal, |$x:ident| $holds:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default)]
        pub struct $op;

        predicate_op!($op: 1);

        impl Predicate<1> for $op {
            const NAME: &'static str = $name;
            const TAKES: Takes = Takes::Floats;

            #[inline(always)]
            fn holds<T: Number>([$x]: [T; 1]) -> bool {
                $holds
            }

            fn fill<T: Number>([x]: [&[T]; 1], y: &mut [u8]) {
                predicate::one::<Self, T>(x, y);
            }
        }
    )*};
}

kinds! {
    /// Whether it is NaN. As `torch.isnan`.
    IsNan, "isnan", |x| x.is_nan();
    /// Whether it is an infinity. As `torch.isinf`.
    IsInf, "isinf", |x| x.is_infinite();
    /// Whether it is neither NaN nor an infinity. As `torch.isfinite`.
    IsFinite, "isfinite", |x| !(x.is_nan() | x.is_infinite());
}
