//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::Swiglu;

impl Tensor {
    /// `silu(self) up`, elementwise: the gated linear unit of Llama (Shazeer 2020), as
    /// `torch.nn.functional.silu(gate) * up`. Shapes broadcast. In one pass, rounded once.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not broadcast or the dtypes differ.
    #[track_caller]
    pub fn swiglu(&self, up: &Self) -> Result<Self> {
        Self::apply_one(Swiglu, &[self, up])
    }
}
