//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::MatMul;

impl Tensor {
    /// Matrix product of the last two dimensions, batch dimensions broadcast, as `torch.matmul`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit; rank 1 is not taken.
    #[track_caller]
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        Self::apply_one(
            MatMul {
                transpose_output: false,
            },
            &[self, other],
        )
    }
}
