//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::Embedding;

impl Tensor {
    /// Rows of `self` `[rows, C]` by index: `indices` `[..]` of U32 or I64 to `[.., C]`, as
    /// `torch.nn.functional.embedding`.
    ///
    /// # Errors
    /// [`crate::Error::Op`]; an index out of range stops the step that computes it.
    #[track_caller]
    pub fn embedding(&self, indices: &Self) -> Result<Self> {
        Self::apply_one(Embedding, &[self, indices])
    }
}
