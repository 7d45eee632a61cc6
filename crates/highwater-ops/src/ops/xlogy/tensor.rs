//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::Xlogy;

impl Tensor {
    /// Elementwise `self log(other)`, broadcast, and 0 where `self` is 0, as `torch.xlogy`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not broadcast.
    #[track_caller]
    pub fn xlogy(&self, other: &Self) -> Result<Self> {
        Self::apply_one(Xlogy, &[self, other])
    }
}
