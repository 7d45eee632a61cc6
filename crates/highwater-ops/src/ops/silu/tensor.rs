//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::Silu;

impl Tensor {
    /// The sigmoid linear unit, `x sigmoid(x)`, elementwise (Elfwing et al. 2018), as
    /// `torch.nn.functional.silu`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype that no kernel takes.
    #[track_caller]
    pub fn silu(&self) -> Result<Self> {
        Self::apply_one(Silu, &[self])
    }
}
