//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::Abs;

impl Tensor {
    /// Elementwise absolute value, as `torch.abs`; its gradient at 0 is 0.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype that no kernel takes.
    #[track_caller]
    pub fn abs(&self) -> Result<Self> {
        Self::apply_one(Abs, &[self])
    }
}
