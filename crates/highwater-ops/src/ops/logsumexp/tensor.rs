//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Dim, Result, Tensor};
use highwater_ops::LogSumExp;

impl Tensor {
    /// The logarithm of the sum of exponentials over dimensions (all if none is given), as
    /// `torch.logsumexp`; nothing overflows on the way.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype that is no float; [`crate::Error::Usage`] for a dimension that is
    /// not there, or is named twice.
    #[track_caller]
    pub fn logsumexp<D: Dim>(&self, dims: &[D], keepdim: bool) -> Result<Self> {
        let dims = self.dims_of("logsumexp", dims)?.to_vec();
        Self::apply_one(LogSumExp { dims, keepdim }, &[self])
    }
}
