//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident, $scalar:ident, $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`crate::Error::Op`] if the shapes do not broadcast.
            #[track_caller]
            pub fn $name(&self, other: &Self) -> Result<Self> {
                Self::apply_one($op, &[self, other])
            }

            $(#[$doc])*
            ///
            /// Here with a number.
            ///
            /// # Errors
            /// [`crate::Error::Op`] for a dtype that no kernel takes.
            #[track_caller]
            pub fn $scalar(&self, number: f64) -> Result<Self> {
                self.$name(&self.number_beside(number)?)
            }
        )*}
    };
}

comparisons! {
    /// Elementwise `self == other`, broadcast, of `Bool`, as `torch.eq`. NaN equals nothing.
    eq, eq_scalar, Equal;
    /// Elementwise `self != other`, broadcast, of `Bool`, as `torch.ne`.
    ne, ne_scalar, NotEqual;
    /// Elementwise `self < other`, broadcast, of `Bool`, as `torch.lt`.
    lt, lt_scalar, Less;
    /// Elementwise `self <= other`, broadcast, of `Bool`, as `torch.le`.
    le, le_scalar, LessEqual;
    /// Elementwise `self > other`, broadcast, of `Bool`, as `torch.gt`.
    gt, gt_scalar, Greater;
    /// Elementwise `self >= other`, broadcast, of `Bool`, as `torch.ge`.
    ge, ge_scalar, GreaterEqual;
}
