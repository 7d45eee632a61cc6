//! Attention and transformer blocks as PyTorch has them, with its names of parameters.

use super::{Dropout, LayerNorm, Linear, Module};
use crate::engine::Engine;
use crate::error::usage_error;
use crate::tensor::Tensor;
use crate::tensor::parameter::Parameter;
use crate::{self as highwater, DType, Result};
use highwater_graph::Location;

/// What an attention may see.
#[derive(Debug, Clone, Copy, Default)]
pub enum Sees<'a> {
    /// Every query every key.
    #[default]
    All,
    /// Each query the keys up to its own position.
    Causal,
    /// As `attn_mask` of PyTorch's layers, of a shape that broadcasts to `[B, H, T, S]`: floats are added to the
    /// scores, and `Bool` **hides where it is true** (in [`Tensor::masked_attention`] it shows). The scores are held
    /// as a matrix then.
    Mask(&'a Tensor),
    /// As `key_padding_mask` of PyTorch's layers, `Bool` `[B, S]`: keys where it is true are hidden.
    Unpadded {
        /// True at keys that are padding.
        padding: &'a Tensor,
        /// Whether each query sees the keys up to its own position alone.
        causal: bool,
    },
}

/// Multi-head attention, as `torch.nn.MultiheadAttention(batch_first=True)`: `in_proj_weight` `[3E, E]`,
/// `in_proj_bias` `[3E]`, `out_proj`.
#[derive(Debug, Clone, Module)]
pub struct MultiheadAttention {
    /// Of queries, keys and values, one below the other: `[3E, E]`.
    pub in_proj_weight: Parameter,
    /// `[3E]`.
    pub in_proj_bias: Option<Parameter>,
    /// `[E, E]`.
    pub out_proj: Linear,
    #[module(skip)]
    heads: usize,
}

impl MultiheadAttention {
    /// Projections of queries, keys and values uniform as Xavier has them, biases zero, as in PyTorch.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] unless `width` is a multiple of `heads`; [`crate::Error::State`] if there is no
    /// room.
    #[track_caller]
    pub fn new(engine: &Engine, width: usize, heads: usize, bias: bool) -> Result<Self> {
        if heads == 0 || width == 0 || !width.is_multiple_of(heads) {
            let message = format!(
                "attention: the width must be a multiple of the heads, not {width} of {heads}"
            );
            return Err(usage_error(message, Location::caller()));
        }
        // sqrt(6 / (fan in + fan out)) of the whole [3E, E].
        let bound = (6.0 / (4 * width) as f32).sqrt();
        let in_proj_weight = Parameter::uniform(engine, [3 * width, width], bound)?;
        let in_proj_bias = bias
            .then(|| Parameter::new(engine, [3 * width], |_| {}))
            .transpose()?;
        let out_proj = Linear::new(engine, width, width, bias)?;
        if let Some(bias) = &out_proj.bias {
            bias.with_values_mut(|values| values.fill(0.0))?;
        }
        Ok(Self {
            in_proj_weight,
            in_proj_bias,
            out_proj,
            heads,
        })
    }

    /// Queries `[B, T, E]` that attend to keys and values `[B, S, E]`: `[B, T, E]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] or [`crate::Error::Usage`] if shapes do not fit.
    #[track_caller]
    pub fn forward(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        sees: Sees<'_>,
    ) -> Result<Tensor> {
        let q = self.project(0, query)?;
        let k = self.project(1, key)?;
        let v = self.project(2, value)?;
        self.attend([&q, &k, &v], sees)
    }

    /// As [`MultiheadAttention::forward`] of one tensor that is all three: one product instead of three.
    ///
    /// # Errors
    /// As [`MultiheadAttention::forward`].
    #[track_caller]
    pub fn self_attention(&self, x: &Tensor, sees: Sees<'_>) -> Result<Tensor> {
        let packed = x.linear(&self.in_proj_weight, self.in_proj_bias.as_deref())?;
        let parts = packed.chunk(3, 2)?;
        self.attend([&parts[0], &parts[1], &parts[2]], sees)
    }

    /// The `i`-th of the three projections.
    fn project(&self, i: usize, x: &Tensor) -> Result<Tensor> {
        let width = self.in_proj_weight.dims()[1];
        let part = |of: &Parameter| of.narrow(0, i * width, width);
        let bias = self.in_proj_bias.as_ref().map(part).transpose()?;
        x.linear(&part(&self.in_proj_weight)?, bias.as_ref())
    }

    fn attend(&self, [q, k, v]: [&Tensor; 3], sees: Sees<'_>) -> Result<Tensor> {
        let heads = |x: &Tensor| {
            let &[batch, length, width] = x.dims() else {
                let message = format!("attention takes [B, T, E], got {}", x.shape());
                return Err(usage_error(message, Location::caller()));
            };
            x.reshape([batch, length, self.heads, width / self.heads])?
                .transpose(1, 2)
        };
        let (q, k, v) = (heads(q)?, heads(k)?, heads(v)?);
        let y = match sees {
            Sees::All => q.scaled_dot_product_attention(&k, &v, false)?,
            Sees::Causal => q.scaled_dot_product_attention(&k, &v, true)?,
            Sees::Mask(mask) if mask.dtype() == DType::Bool => {
                q.masked_attention(&k, &v, &mask.logical_not()?)?
            }
            Sees::Mask(mask) => q.masked_attention(&k, &v, mask)?,
            Sees::Unpadded { padding, causal } => {
                let shown = shown(padding, causal.then(|| q.dims()[2]))?;
                q.masked_attention(&k, &v, &shown)?
            }
        };
        let (batch, length) = (q.dims()[0], q.dims()[2]);
        let y = y
            .transpose(1, 2)?
            .reshape([batch, length, self.out_proj.weight.dims()[0]])?;
        self.out_proj.forward(&y)
    }
}

/// Which keys `[B, 1, T or 1, S]` are shown where some are padding; if causal, to so many queries.
fn shown(padding: &Tensor, causal: Option<usize>) -> Result<Tensor> {
    let &[batch, keys] = padding.dims() else {
        let message = format!("a mask of padding is [B, S], got {}", padding.shape());
        return Err(usage_error(message, Location::caller()));
    };
    if padding.dtype() != DType::Bool {
        let message = format!("a mask of padding is of Bool, got {}", padding.dtype());
        return Err(usage_error(message, Location::caller()));
    }
    let shown = padding.logical_not()?.reshape([batch, 1, 1, keys])?;
    let Some(queries) = causal else {
        return Ok(shown);
    };
    let below = Tensor::ones(padding.engine(), [queries, keys], DType::F32)?.tril(0)?;
    shown.logical_and(&below)
}

impl Tensor {
    /// Attention with a mask, as `torch.nn.functional.scaled_dot_product_attention(attn_mask)`: `self`
    /// `[B, H, T, D]`, key and value `[B, H, S, D]`, `mask` of a shape that broadcasts to `[B, H, T, S]`. A mask of
    /// `Bool` **shows where it is true**; one of floats is added to the scores, where minus infinity hides. A query
    /// that sees nothing answers zeros. Made of products and a softmax: the scores are tensors, which a budget may
    /// have made twice.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit; [`crate::Error::Usage`] for a mask of another dtype.
    #[track_caller]
    pub fn masked_attention(&self, key: &Self, value: &Self, mask: &Self) -> Result<Self> {
        let width = self.dims().last().copied().unwrap_or(1).max(1);
        let scores = self.matmul(&key.transpose(2, 3)?)?;
        let scores = scores.mul_scalar(1.0 / (width as f64).sqrt())?;
        let (scores, blind) = match mask.dtype() {
            DType::Bool => (
                scores.masked_fill(&mask.logical_not()?, f64::NEG_INFINITY)?,
                mask.any_dims(&[-1], true)?.logical_not()?,
            ),
            dtype if dtype.is_float() => (
                scores.add(&mask.to_dtype(scores.dtype())?)?,
                mask.eq_scalar(f64::NEG_INFINITY)?.all_dims(&[-1], true)?,
            ),
            dtype => {
                let message =
                    format!("a mask is of Bool, or of floats, which are added; got {dtype}");
                return Err(usage_error(message, Location::caller()));
            }
        };
        // Behind the softmax of nothing else than minus infinity there would be NaN, in gradients too.
        let scores = scores.masked_fill(&blind, 0.0)?;
        scores.softmax()?.matmul(value)?.masked_fill(&blind, 0.0)
    }
}

/// The function between the two products of a transformer's feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activation {
    /// `max(x, 0)`
    #[default]
    Relu,
    /// By the error function.
    Gelu,
}

impl Activation {
    fn apply(self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Relu => x.relu(),
            Self::Gelu => x.gelu(),
        }
    }
}

/// How a transformer block is built; PyTorch's defaults but for the names of its sizes.
#[derive(Debug, Clone, Copy)]
pub struct TransformerOptions {
    /// Width of tokens.
    pub width: usize,
    /// Heads of attention; a divisor of the width.
    pub heads: usize,
    /// Width between the two products of the feed-forward part.
    pub feedforward: usize,
    /// The probability of dropout, in training mode, behind attention and feed-forward parts and between the
    /// two products.
    pub dropout: f64,
    /// Between the two products.
    pub activation: Activation,
    /// Added to variances.
    pub eps: f64,
    /// Whether parts are normalised before instead of behind.
    pub norm_first: bool,
}

impl Default for TransformerOptions {
    /// As [`TransformerOptions::new`] of 512 and 8, the sizes of `torch.nn.Transformer`.
    fn default() -> Self {
        Self::new(512, 8)
    }
}

impl TransformerOptions {
    /// `dim_feedforward=2048, dropout=0.1, activation=relu, layer_norm_eps=1e-5, norm_first=False`.
    #[must_use]
    pub fn new(width: usize, heads: usize) -> Self {
        Self {
            width,
            heads,
            feedforward: 2048,
            dropout: 0.1,
            activation: Activation::Relu,
            eps: 1e-5,
            norm_first: false,
        }
    }
}

/// The feed-forward part, whose parameters PyTorch names beside the attention's.
#[derive(Debug, Clone)]
struct FeedForward {
    linear1: Linear,
    linear2: Linear,
    dropout: Dropout,
    activation: Activation,
}

impl FeedForward {
    fn new(engine: &Engine, options: &TransformerOptions) -> Result<Self> {
        let TransformerOptions {
            width, feedforward, ..
        } = *options;
        Ok(Self {
            linear1: Linear::new(engine, width, feedforward, true)?,
            linear2: Linear::new(engine, feedforward, width, true)?,
            dropout: Dropout::new(options.dropout)?,
            activation: options.activation,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.activation.apply(&self.linear1.forward(x)?)?;
        self.linear2.forward(&self.dropout.forward(&hidden)?)
    }
}

impl Module for FeedForward {
    fn visit(&self, path: &str, visitor: &mut dyn super::Visitor) {
        self.linear1.visit(&super::join(path, "linear1"), visitor);
        self.linear2.visit(&super::join(path, "linear2"), visitor);
        self.dropout.visit(path, visitor);
    }
}

/// `x + dropout(part(x))`, normalised before the part or behind the sum.
fn residual(
    x: &Tensor,
    norm: &LayerNorm,
    dropout: &Dropout,
    norm_first: bool,
    part: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    if norm_first {
        return x.add(&dropout.forward(&part(&norm.forward(x)?)?)?);
    }
    norm.forward(&x.add(&dropout.forward(&part(x)?)?)?)
}

/// Self-attention and a feed-forward part, as `torch.nn.TransformerEncoderLayer(batch_first=True)`, but
/// without dropout of attention's probabilities.
#[derive(Debug, Clone, Module)]
pub struct TransformerEncoderLayer {
    /// `self_attn.*`
    pub self_attn: MultiheadAttention,
    #[module(rename = "")]
    feedforward: FeedForward,
    /// Of the attention.
    pub norm1: LayerNorm,
    /// Of the feed-forward part.
    pub norm2: LayerNorm,
    dropout: Dropout,
    #[module(skip)]
    norm_first: bool,
}

impl TransformerEncoderLayer {
    /// Initialised as in PyTorch.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for sizes that do not fit; [`crate::Error::State`] if there is no room.
    #[track_caller]
    pub fn new(engine: &Engine, options: TransformerOptions) -> Result<Self> {
        let norm = || LayerNorm::new(engine, options.width, options.eps);
        Ok(Self {
            self_attn: MultiheadAttention::new(engine, options.width, options.heads, true)?,
            feedforward: FeedForward::new(engine, &options)?,
            norm1: norm()?,
            norm2: norm()?,
            dropout: Dropout::new(options.dropout)?,
            norm_first: options.norm_first,
        })
    }

    /// `[B, T, E]` to the same.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if shapes do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, sees: Sees<'_>) -> Result<Tensor> {
        let (dropout, first) = (&self.dropout, self.norm_first);
        let attend = |x: &Tensor| self.self_attn.self_attention(x, sees);
        let x = residual(x, &self.norm1, dropout, first, attend)?;
        residual(&x, &self.norm2, dropout, first, |x| {
            self.feedforward.forward(x)
        })
    }
}

/// Self-attention, attention to a memory, and a feed-forward part, as
/// `torch.nn.TransformerDecoderLayer(batch_first=True)`, but without dropout of attention's probabilities.
#[derive(Debug, Clone, Module)]
pub struct TransformerDecoderLayer {
    /// `self_attn.*`
    pub self_attn: MultiheadAttention,
    /// `multihead_attn.*`, to the memory.
    pub multihead_attn: MultiheadAttention,
    #[module(rename = "")]
    feedforward: FeedForward,
    /// Of the self-attention.
    pub norm1: LayerNorm,
    /// Of the attention to the memory.
    pub norm2: LayerNorm,
    /// Of the feed-forward part.
    pub norm3: LayerNorm,
    dropout: Dropout,
    #[module(skip)]
    norm_first: bool,
}

impl TransformerDecoderLayer {
    /// Initialised as in PyTorch.
    ///
    /// # Errors
    /// As [`TransformerEncoderLayer::new`].
    #[track_caller]
    pub fn new(engine: &Engine, options: TransformerOptions) -> Result<Self> {
        let attention = || MultiheadAttention::new(engine, options.width, options.heads, true);
        let norm = || LayerNorm::new(engine, options.width, options.eps);
        Ok(Self {
            self_attn: attention()?,
            multihead_attn: attention()?,
            feedforward: FeedForward::new(engine, &options)?,
            norm1: norm()?,
            norm2: norm()?,
            norm3: norm()?,
            dropout: Dropout::new(options.dropout)?,
            norm_first: options.norm_first,
        })
    }

    /// `[B, T, E]` to the same, given a memory `[B, S, E]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if shapes do not fit.
    #[track_caller]
    pub fn forward(
        &self,
        x: &Tensor,
        memory: &Tensor,
        sees: Sees<'_>,
        sees_of_memory: Sees<'_>,
    ) -> Result<Tensor> {
        let (dropout, first) = (&self.dropout, self.norm_first);
        let own = |x: &Tensor| self.self_attn.self_attention(x, sees);
        let x = residual(x, &self.norm1, dropout, first, own)?;
        let other = |x: &Tensor| {
            self.multihead_attn
                .forward(x, memory, memory, sees_of_memory)
        };
        let x = residual(&x, &self.norm2, dropout, first, other)?;
        residual(&x, &self.norm3, dropout, first, |x| {
            self.feedforward.forward(x)
        })
    }
}
