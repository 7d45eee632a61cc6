//! Comparisons of two tensors: `eq`, `ne`, `lt`, `le`, `gt`, `ge`.
//!
//! Inputs are of one dtype of numbers, or `Bool`, of any layouts, whose shapes broadcast; the result is of
//! `Bool`. NaN is unequal to everything and neither below nor above anything. One pass. There is no gradient.

use crate::Entry;
use crate::kernels::predicate::{self, Number, Predicate, Takes, predicate_op};
use highwater_graph::Promotion;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[
    predicate::entry::<Equal, 2>(),
    predicate::entry::<NotEqual, 2>(),
    predicate::entry::<Less, 2>(),
    predicate::entry::<LessEqual, 2>(),
    predicate::entry::<Greater, 2>(),
    predicate::entry::<GreaterEqual, 2>(),
];

macro_rules! comparisons {
    ($($(#[$doc:meta])* $op:ident, $name:literal, $operator:tt;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default)]
        pub struct $op;

        predicate_op!($op: 2);

        impl Predicate<2> for $op {
            const NAME: &'static str = $name;
            const TAKES: Takes = Takes::Numbers;
            const PROMOTION: Option<Promotion> = Some(Promotion::ALL);

            #[inline(always)]
            fn holds<T: Number>([a, b]: [T; 2]) -> bool {
                a $operator b
            }

            fn fill<T: Number>([a, b]: [&[T]; 2], y: &mut [u8]) {
                predicate::two::<Self, T>(a, b, y);
            }
        }
    )*};
}

comparisons! {
    /// `a == b`. As `torch.eq`.
    Equal, "eq", ==;
    /// `a != b`. As `torch.ne`.
    NotEqual, "ne", !=;
    /// `a < b`. As `torch.lt`.
    Less, "lt", <;
    /// `a <= b`. As `torch.le`.
    LessEqual, "le", <=;
    /// `a > b`. As `torch.gt`.
    Greater, "gt", >;
    /// `a >= b`. As `torch.ge`.
    GreaterEqual, "ge", >=;
}
