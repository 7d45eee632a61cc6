//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::Square;

impl Tensor {
    /// Elementwise square, as `torch.square`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype that no kernel takes.
    #[track_caller]
    pub fn square(&self) -> Result<Self> {
        Self::apply_one(Square, &[self])
    }
}
