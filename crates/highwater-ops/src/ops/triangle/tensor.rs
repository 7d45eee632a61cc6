//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::Triangle;

impl Tensor {
    /// The elements on and below a diagonal of the last two dimensions, zeros above, as `torch.tril`;
    /// `diagonal` is 0 for the main one, positive for one above it.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for fewer than two dimensions.
    #[track_caller]
    pub fn tril(&self, diagonal: i64) -> Result<Self> {
        let upper = false;
        Self::apply_one(Triangle { upper, diagonal }, &[self])
    }

    /// The elements on and above a diagonal of the last two dimensions, zeros below, as `torch.triu`;
    /// `diagonal` is 0 for the main one, positive for one above it.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for fewer than two dimensions.
    #[track_caller]
    pub fn triu(&self, diagonal: i64) -> Result<Self> {
        let upper = true;
        Self::apply_one(Triangle { upper, diagonal }, &[self])
    }
}
