//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{DType, Result, Tensor};
use highwater_ops::Cast;

impl Tensor {
    /// The elements in another float dtype, rounded to nearest even, as `tensor.to(dtype)`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for dtypes that do not convert.
    #[track_caller]
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        Self::apply_one(Cast { dtype }, &[self])
    }
}
