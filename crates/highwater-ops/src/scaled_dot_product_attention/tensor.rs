//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::ScaledDotProductAttention;

impl Tensor {
    /// Attention (Vaswani et al. 2017), tiled, without a score matrix (Dao et al. 2022), as
    /// `torch.nn.functional.scaled_dot_product_attention`: `self`, key and value `[B, H, T, D]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit.
    #[track_caller]
    pub fn scaled_dot_product_attention(
        &self,
        key: &Self,
        value: &Self,
        causal: bool,
    ) -> Result<Self> {
        let width = self.dims().last().copied().unwrap_or(1).max(1);
        let scale = 1.0 / (width as f64).sqrt();
        let op = ScaledDotProductAttention { causal, scale };
        Self::apply_one(op, &[self, key, value])
    }
}
