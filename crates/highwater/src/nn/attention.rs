//! The attention block of decoder-only transformers.

use super::{Dropout, Linear, Module};
use crate::engine::Engine;
use crate::tensor::Tensor;
use crate::{self as highwater, Result};

/// Causal multi-head self-attention with one packed projection: `[B, T, C]` to the same.
#[derive(Debug, Clone, Module)]
pub struct CausalSelfAttention {
    /// Query, key and value in one: `[3C, C]`.
    pub qkv: Linear,
    /// `[C, C]`.
    pub proj: Linear,
    /// On the result.
    pub dropout: Dropout,
    #[module(skip)]
    heads: usize,
}

impl CausalSelfAttention {
    /// `width` must be a multiple of `heads`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for another width, or a dropout that is not from 0 to below 1;
    /// [`crate::Error::State`] if there is no room.
    #[track_caller]
    pub fn new(engine: &Engine, width: usize, heads: usize, dropout: f64) -> Result<Self> {
        if heads == 0 || width == 0 || !width.is_multiple_of(heads) {
            let message = format!(
                "attention: the width must be a multiple of the heads, not {width} of {heads}"
            );
            let location = highwater_graph::Location::caller();
            return Err(crate::error::usage_error(message, location));
        }
        let dropout = Dropout::new(dropout)?;
        let qkv = Linear::new(engine, width, 3 * width, true)?;
        let proj = Linear::new(engine, width, width, true)?;
        Ok(Self {
            qkv,
            proj,
            dropout,
            heads,
        })
    }

    /// `[B, T, C]` to the same; position t sees positions up to t.
    ///
    /// # Errors
    /// [`crate::Error::Op`] or [`crate::Error::Usage`] if the shape does not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self_attention(&self.qkv.forward(x)?, self.heads)?;
        self.dropout.forward(&self.proj.forward(&y)?)
    }
}

/// Causal self-attention of a packed projection `[B, T, 3C]`: `[B, T, C]`. No element is copied to
/// split or join heads.
///
/// # Errors
/// [`crate::Error::Usage`] unless it has rank 3 and a width of three times a multiple of `heads`.
#[track_caller]
pub fn self_attention(qkv: &Tensor, heads: usize) -> Result<Tensor> {
    let location = highwater_graph::Location::caller();
    let &[batch, length, width] = qkv.dims() else {
        let message = format!("attention takes [B, T, 3C], got {}", qkv.shape());
        return Err(crate::error::usage_error(message, location));
    };
    if heads == 0 || width % (3 * heads) != 0 {
        let message = format!("a width of {width} is not 3 x {heads} heads of equal size");
        return Err(crate::error::usage_error(message, location));
    }
    location.at(|| split_and_attend(qkv, [batch, length, width / 3], heads))
}

fn split_and_attend(
    qkv: &Tensor,
    [batch, length, width]: [usize; 3],
    heads: usize,
) -> Result<Tensor> {
    let split = |x: &Tensor| {
        x.reshape([batch, length, heads, width / heads])?
            .transpose(1, 2)
    };
    let parts = qkv.chunk(3, 2)?;
    let (q, k, v) = (split(&parts[0])?, split(&parts[1])?, split(&parts[2])?);
    let y = q.scaled_dot_product_attention(&k, &v, true)?;
    y.transpose(1, 2)?.reshape([batch, length, width])
}
