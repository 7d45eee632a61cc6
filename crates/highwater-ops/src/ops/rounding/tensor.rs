//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{Ceil, Floor, Round, Sign};

macro_rules! rounding {
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

rounding! {
    /// Elementwise sign: 1, -1 or 0, as `torch.sign`; its gradient is 0.
    sign, Sign;
    /// Elementwise largest whole number that is not above, as `torch.floor`; its gradient is 0.
    floor, Floor;
    /// Elementwise smallest whole number that is not below, as `torch.ceil`; its gradient is 0.
    ceil, Ceil;
    /// Elementwise nearest whole number, of two the even one, as `torch.round`; its gradient is 0.
    round, Round;
}
