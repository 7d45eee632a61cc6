//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Dim, Result, Tensor};
use highwater_ops::Flip;

impl Tensor {
    /// The elements in reverse order along these dimensions, as `torch.flip`: a copy.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for a dimension that is not there, or is named twice.
    #[track_caller]
    pub fn flip<D: Dim>(&self, dims: &[D]) -> Result<Self> {
        let dims = self.dims_of("flip", dims)?;
        let rank = self.shape().rank();
        let dims = dims.into_iter().filter(|&dim| dim < rank).collect();
        Self::apply_one(Flip { dims }, &[self])
    }
}
