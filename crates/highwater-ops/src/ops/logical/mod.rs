//! Logic: `logical_and`, `logical_or`, `logical_xor`, `logical_not`.
//!
//! Inputs are of `Bool`, of any layouts, whose shapes broadcast, and so is the result. One pass. There is no
//! gradient.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::Entry;
use crate::kernels::predicate::{self, Number, Predicate, Takes, predicate_op};

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[
    predicate::entry::<LogicalAnd, 2>(),
    predicate::entry::<LogicalOr, 2>(),
    predicate::entry::<LogicalXor, 2>(),
    predicate::entry::<LogicalNot, 1>(),
];

macro_rules! of_two {
    ($($(#[$doc:meta])* $op:ident, $name:literal, $operator:tt;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default)]
        pub struct $op;

        predicate_op!($op: 2);

        impl Predicate<2> for $op {
            const NAME: &'static str = $name;
            const TAKES: Takes = Takes::Truths;

            #[inline(always)]
            fn holds<T: Number>([a, b]: [T; 2]) -> bool {
                a.is_true() $operator b.is_true()
            }

            fn fill<T: Number>([a, b]: [&[T]; 2], y: &mut [u8]) {
                predicate::two::<Self, T>(a, b, y);
            }
        }
    )*};
}

of_two! {
    /// Whether both are true. As `torch.logical_and`.
    LogicalAnd, "logical_and", &;
    /// Whether one is true at least. As `torch.logical_or`.
    LogicalOr, "logical_or", |;
    /// Whether one alone is true. As `torch.logical_xor`.
    LogicalXor, "logical_xor", ^;
}

/// Whether it is false. As `torch.logical_not`.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogicalNot;

predicate_op!(LogicalNot: 1);

impl Predicate<1> for LogicalNot {
    const NAME: &'static str = "logical_not";
    const TAKES: Takes = Takes::Truths;

    #[inline(always)]
    fn holds<T: Number>([x]: [T; 1]) -> bool {
        !x.is_true()
    }

    fn fill<T: Number>([x]: [&[T]; 1], y: &mut [u8]) {
        predicate::one::<Self, T>(x, y);
    }
}
