//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Dim, Result, Tensor};
use highwater_ops::CumExtremum;

impl Tensor {
    /// The largest of the elements up to each along a dimension, and their indices (I64) there, as `torch.cummax`: of
    /// equal elements the last, and NaN over all. The gradient goes to the elements that were taken.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype other than floats, `I64`, `U8` and `Bool`; [`crate::Error::Usage`] for a
    /// dimension that is not there.
    #[track_caller]
    pub fn cummax(&self, dim: impl Dim) -> Result<(Self, Self)> {
        let (largest, dim) = (true, self.dim("cummax", dim)?);
        self.with_places(CumExtremum { largest, dim })
    }

    /// The smallest of the elements up to each along a dimension, and their indices (I64) there, as `torch.cummin`: of
    /// equal elements the last, and NaN over all. The gradient goes to the elements that were taken.
    ///
    /// # Errors
    /// As [`Tensor::cummax`].
    #[track_caller]
    pub fn cummin(&self, dim: impl Dim) -> Result<(Self, Self)> {
        let (largest, dim) = (false, self.dim("cummin", dim)?);
        self.with_places(CumExtremum { largest, dim })
    }
}
