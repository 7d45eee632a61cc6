//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::Copy;

impl Tensor {
    /// A dense row-major copy, or the tensor itself if it is that.
    ///
    /// # Errors
    /// [`crate::Error::Expired`].
    #[track_caller]
    pub fn contiguous(&self) -> Result<Self> {
        if self
            .operand(&mut self.engine.lock())?
            .spec
            .layout
            .is_contiguous()
        {
            return Ok(self.clone());
        }
        Self::apply_one(Copy, &[self])
    }
}
