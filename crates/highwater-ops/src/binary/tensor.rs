//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{Add, Div, Mul, Sub};

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident, $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`crate::Error::Op`] if the shapes do not broadcast.
            #[track_caller]
            pub fn $name(&self, other: &Self) -> Result<Self> {
                Self::apply_one($op, &[self, other])
            }
        )*}
    };
}

methods! {
    /// Elementwise sum, broadcast.
    add, Add;
    /// Elementwise difference, broadcast.
    sub, Sub;
    /// Elementwise product, broadcast.
    mul, Mul;
    /// Elementwise quotient, broadcast.
    div, Div;
}
