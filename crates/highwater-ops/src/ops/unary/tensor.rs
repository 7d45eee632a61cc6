//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{Exp, Log, Neg, Relu, Sigmoid, Sqrt, Tanh};

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident, $op:expr;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`crate::Error::Op`] for a dtype that is no float type.
            #[track_caller]
            pub fn $name(&self) -> Result<Self> {
                Self::apply_one($op, &[self])
            }
        )*}
    };
}

unary! {
    /// Elementwise `max(x, 0)`.
    relu, Relu;
    /// Elementwise hyperbolic tangent.
    tanh, Tanh;
    /// Elementwise `1 / (1 + exp(-x))`.
    sigmoid, Sigmoid;
    /// Elementwise exponential.
    exp, Exp;
    /// Elementwise natural logarithm.
    log, Log;
    /// Elementwise square root.
    sqrt, Sqrt;
    /// Elementwise negation.
    neg, Neg;
}
