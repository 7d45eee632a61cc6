//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{DType, Result, Tensor};
use highwater_ops::{LogicalAnd, LogicalNot, LogicalOr, LogicalXor};

macro_rules! of_two {
    ($($(#[$doc:meta])* $name:ident, $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`crate::Error::Op`] if the shapes do not broadcast.
            #[track_caller]
            pub fn $name(&self, other: &Self) -> Result<Self> {
                Self::apply_one($op, &[&self.truths()?, &other.truths()?])
            }
        )*}
    };
}

of_two! {
    /// Elementwise `self && other`, broadcast, of `Bool`, as `torch.logical_and`. What is not of `Bool` is
    /// true where it is not 0.
    logical_and, LogicalAnd;
    /// Elementwise `self || other`, broadcast, of `Bool`, as `torch.logical_or`. What is not of `Bool` is
    /// true where it is not 0.
    logical_or, LogicalOr;
    /// Whether elements differ in being true, broadcast, of `Bool`, as `torch.logical_xor`. What is not of
    /// `Bool` is true where it is not 0.
    logical_xor, LogicalXor;
}

impl Tensor {
    /// Elementwise `!self`, of `Bool`, as `torch.logical_not`. What is not of `Bool` is true where it is not 0.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype that no kernel takes.
    #[track_caller]
    pub fn logical_not(&self) -> Result<Self> {
        Self::apply_one(LogicalNot, &[&self.truths()?])
    }

    /// The tensor as `Bool`.
    #[track_caller]
    fn truths(&self) -> Result<Self> {
        match self.dtype() {
            DType::Bool => Ok(self.clone()),
            _ => self.to_dtype(DType::Bool),
        }
    }
}
