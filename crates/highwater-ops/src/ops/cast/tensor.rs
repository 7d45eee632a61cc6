//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{DType, Result, Tensor};
use highwater_ops::Cast;

impl Tensor {
    /// The elements in another dtype, as `tensor.to(dtype)`: floats are rounded to nearest even, whole numbers
    /// are what stands before the point, and `Bool` is true where a number is not 0.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for dtypes that do not convert.
    #[track_caller]
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        Self::apply_one(Cast { dtype }, &[self])
    }
}
