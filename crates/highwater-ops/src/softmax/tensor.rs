//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::Softmax;

impl Tensor {
    /// Softmax over the last dimension, as `torch.softmax(x, -1)`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype other than F32, or a scalar.
    #[track_caller]
    pub fn softmax(&self) -> Result<Self> {
        Self::apply_one(Softmax, &[self])
    }
}
