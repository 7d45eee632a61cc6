//! The method of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{QuantizedLinear, WeightFormat};

impl Tensor {
    /// `x wᵀ` by a weight in few bits that is not trained: `self` `[.., in]`, codes `U8` `[out, row_bytes]` and
    /// scales `F32` `[out, scales]`, as [`WeightFormat::quantize`] makes them of each row. The weight is decoded
    /// where the product packs it, and is never there as a whole. Half precision stays what it is, under
    /// `autocast` too: the codes do not care.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit.
    #[track_caller]
    pub fn quantized_linear(
        &self,
        codes: &Self,
        scales: &Self,
        format: WeightFormat,
    ) -> Result<Self> {
        let width = self.dims().last().copied().unwrap_or(0);
        Self::apply_one(QuantizedLinear { format, width }, &[self, codes, scales])
    }
}
