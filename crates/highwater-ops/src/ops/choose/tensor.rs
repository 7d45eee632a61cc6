//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::Where;

impl Tensor {
    /// `a` where `condition`, of `Bool`, is true, else `b`, broadcast, as `torch.where(condition, a, b)`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not broadcast, or for a condition of another dtype: compare it
    /// with something, as in `x.gt_scalar(0.0)`.
    #[track_caller]
    pub fn where_(condition: &Self, a: &Self, b: &Self) -> Result<Self> {
        Self::apply_one(Where, &[condition, a, b])
    }

    /// The elements, but `value` where `mask`, of `Bool`, is true, as `torch.masked_fill`: of the tensor's dtype, where
    /// a number loses what that does not hold. What is filled gets no gradient.
    ///
    /// # Errors
    /// As [`Tensor::where_`].
    #[track_caller]
    pub fn masked_fill(&self, mask: &Self, value: f64) -> Result<Self> {
        let value = self.own_number(value)?;
        Self::apply_one(Where, &[mask, &value, self])
    }
}
