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
    /// Elementwise sum, broadcast, as `torch.add`. Dtypes promote, as in the other operations of two tensors.
    add, Add;
    /// Elementwise difference, broadcast, as `torch.sub`.
    sub, Sub;
    /// Elementwise product, broadcast, as `torch.mul`.
    mul, Mul;
    /// Elementwise quotient, broadcast, as `torch.div`: a float for whole numbers, too.
    div, Div;
}
