//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{DType, Result, Tensor};
use highwater_ops::OneHot;

impl Tensor {
    /// For each class (I64 or U32) a vector of `classes` whole numbers (I64), 1 at its place and 0
    /// elsewhere, as `torch.nn.functional.one_hot`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for another dtype; a class out of range stops the step that computes it.
    #[track_caller]
    pub fn one_hot(&self, classes: usize) -> Result<Self> {
        self.one_hot_as(classes, DType::I64)
    }

    /// As [`Tensor::one_hot`], of `dtype`: I64 or a float type, as
    /// `torch.nn.functional.one_hot(x, classes).to(dtype)`.
    ///
    /// # Errors
    /// As [`Tensor::one_hot`].
    #[track_caller]
    pub fn one_hot_as(&self, classes: usize, dtype: DType) -> Result<Self> {
        Self::apply_one(OneHot { classes, dtype }, &[self])
    }
}
