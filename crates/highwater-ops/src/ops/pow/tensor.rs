//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{Pow, PowScalar, Reciprocal, Rsqrt, Sqrt, Square};

impl Tensor {
    /// Elementwise power, broadcast, as `torch.pow(a, b)`: 1 for exponent 0, NaN where the base is below 0 and
    /// the exponent no whole number.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not broadcast, or where both are of whole numbers.
    #[track_caller]
    pub fn pow(&self, exponent: &Self) -> Result<Self> {
        Self::apply_one(Pow, &[self, exponent])
    }

    /// Elementwise power to a number, as `torch.pow(x, number)`: 1 for exponent 0, NaN where the base is
    /// below 0 and the exponent no whole number. Exponents of 2, -1, 1/2 and -1/2 are squares, reciprocals
    /// and roots, as there.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype that is no float type.
    #[track_caller]
    #[expect(clippy::float_cmp, reason = "exponents are told apart exactly")]
    pub fn pow_scalar(&self, exponent: f64) -> Result<Self> {
        if exponent == 2.0 {
            Self::apply_one(Square, &[self])
        } else if exponent == -1.0 {
            Self::apply_one(Reciprocal, &[self])
        } else if exponent == 0.5 {
            Self::apply_one(Sqrt, &[self])
        } else if exponent == -0.5 {
            Self::apply_one(Rsqrt, &[self])
        } else {
            Self::apply_one(PowScalar { exponent }, &[self])
        }
    }
}
