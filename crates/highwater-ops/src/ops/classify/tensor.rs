//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{IsFinite, IsInf, IsNan};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident, $op:ident;)*) => {
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

kinds! {
    /// Whether elements are NaN, of `Bool`, as `torch.isnan`.
    isnan, IsNan;
    /// Whether elements are infinite, of `Bool`, as `torch.isinf`.
    isinf, IsInf;
    /// Whether elements are neither NaN nor infinite, of `Bool`, as `torch.isfinite`.
    isfinite, IsFinite;
}
