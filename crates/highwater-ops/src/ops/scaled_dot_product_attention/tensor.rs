//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::ScaledDotProductAttention;

impl Tensor {
    /// Attention (Vaswani et al. 2017), tiled, without a score matrix (Dao et al. 2022), as
    /// `torch.nn.functional.scaled_dot_product_attention`: `self` `[B, H, T, D]`, key and value
    /// `[B, G, T, D]`, where H is a multiple of G and so many heads share one of theirs (`enable_gqa`).
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
        let op = self.attention(causal, None, false);
        Self::apply_one(op, &[self, key, value])
    }

    /// Causal attention in which each query sees the last `window` keys up to its own, as Mistral's
    /// sliding window in Hugging Face; otherwise as [`Tensor::scaled_dot_product_attention`]. Work and
    /// memory are in proportion to the window.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit, or for a window of 0.
    #[track_caller]
    pub fn sliding_window_attention(
        &self,
        key: &Self,
        value: &Self,
        window: usize,
    ) -> Result<Self> {
        let op = self.attention(true, Some(window), false);
        Self::apply_one(op, &[self, key, value])
    }

    /// Attention within each of several documents that lie one after the other in a sequence, as where
    /// FlashAttention is given `cu_seqlens`: `lengths` `[B, N]`, `U32` or `I64`, are theirs for each sequence;
    /// what is left behind them is one document more. With `window` as
    /// [`Tensor::sliding_window_attention`], which needs `causal`; otherwise as
    /// [`Tensor::scaled_dot_product_attention`]. Lengths are read when the step runs: one plan holds for any.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit; lengths below 0, or of more than a sequence, stop the
    /// step before anything is written.
    #[track_caller]
    pub fn document_attention(
        &self,
        key: &Self,
        value: &Self,
        lengths: &Self,
        causal: bool,
        window: Option<usize>,
    ) -> Result<Self> {
        let op = self.attention(causal, window, true);
        Self::apply_one(op, &[self, key, value, lengths])
    }

    fn attention(
        &self,
        causal: bool,
        window: Option<usize>,
        documents: bool,
    ) -> ScaledDotProductAttention {
        let width = self.dims().last().copied().unwrap_or(1).max(1);
        ScaledDotProductAttention {
            causal,
            window,
            documents,
            scale: 1.0 / (width as f64).sqrt(),
        }
    }
}
