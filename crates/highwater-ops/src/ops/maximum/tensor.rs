//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{Maximum, Minimum};

impl Tensor {
    /// The larger of two elements, broadcast, as `torch.maximum`: NaN wins, and where both are equal each takes
    /// half of the gradient.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not broadcast.
    #[track_caller]
    pub fn maximum(&self, other: &Self) -> Result<Self> {
        Self::apply_one(Maximum, &[self, other])
    }

    /// The smaller of two elements, broadcast, as `torch.minimum`: NaN wins, and where both are equal each takes
    /// half of the gradient.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not broadcast.
    #[track_caller]
    pub fn minimum(&self, other: &Self) -> Result<Self> {
        Self::apply_one(Minimum, &[self, other])
    }
}
