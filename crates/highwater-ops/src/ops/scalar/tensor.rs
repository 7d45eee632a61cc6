//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{AddScalar, DivScalar, MulScalar, SubScalar};

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident, $op:ident, $of_two:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`crate::Error::Op`] for a dtype that no kernel takes.
            #[track_caller]
            pub fn $name(&self, value: f64) -> Result<Self> {
                if self.dtype().is_float() {
                    return Self::apply_one($op { value }, &[self]);
                }
                self.$of_two(&self.number_beside(value)?)
            }
        )*}
    };
}

methods! {
    /// The sum of each element and a number: of whole numbers a float, unless the number is whole.
    add_scalar, AddScalar, add;
    /// The difference of each element and a number.
    sub_scalar, SubScalar, sub;
    /// The product of each element and a number.
    mul_scalar, MulScalar, mul;
    /// The quotient of each element and a number.
    div_scalar, DivScalar, div;
}
