//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{AddScalar, DivScalar, MulScalar, SubScalar};

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident, $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`crate::Error::Op`] for a dtype that no kernel takes.
            #[track_caller]
            pub fn $name(&self, value: f64) -> Result<Self> {
                Self::apply_one($op { value }, &[self])
            }
        )*}
    };
}

methods! {
    /// The sum of each element and a number.
    add_scalar, AddScalar;
    /// The difference of each element and a number.
    sub_scalar, SubScalar;
    /// The product of each element and a number.
    mul_scalar, MulScalar;
    /// The quotient of each element and a number.
    div_scalar, DivScalar;
}
