//! The operations as methods of [`Tensor`], with PyTorch's names.

use crate::Result;
use crate::error::usage_error;
use crate::tensor::Tensor;
use highwater_graph::{DType, RANK_MAX, Shape};
use highwater_ops as op;
use smallvec::SmallVec;
use std::borrow::Borrow;
use std::panic::Location;

impl Tensor {
    /// Matrix product of the last two dimensions, batch dimensions broadcast, as `torch.matmul`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit; rank 1 is not taken.
    #[track_caller]
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        Self::apply_one(
            op::MatMul {
                transpose_output: false,
            },
            &[self, other],
        )
    }

    /// `self · weightᵀ + bias`, as `torch.nn.functional.linear`: `[.., in]`, weight `[out, in]`, bias
    /// `[out]` to `[.., out]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit.
    #[track_caller]
    pub fn linear(&self, weight: &Self, bias: Option<&Self>) -> Result<Self> {
        match bias {
            Some(bias) => Self::apply_one(op::Linear { bias: true }, &[self, weight, bias]),
            None => Self::apply_one(op::Linear { bias: false }, &[self, weight]),
        }
    }

    /// Rows of `self` `[rows, C]` by index: `indices` `[..]` of U32 or I64 to `[.., C]`, as
    /// `torch.nn.functional.embedding`.
    ///
    /// # Errors
    /// [`crate::Error::Op`]; an index out of range stops the step that computes it.
    #[track_caller]
    pub fn embedding(&self, indices: &Self) -> Result<Self> {
        Self::apply_one(op::Embedding, &[self, indices])
    }

    /// Gaussian error linear unit, the exact form, as `torch.nn.functional.gelu`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype other than F32.
    #[track_caller]
    pub fn gelu(&self) -> Result<Self> {
        Self::apply_one(
            op::Gelu {
                approximate: op::GeluApproximate::None,
            },
            &[self],
        )
    }

    /// Gaussian error linear unit, the tanh form (`approximate="tanh"`), as GPT-2 has it.
    ///
    /// # Errors
    /// As [`Tensor::gelu`].
    #[track_caller]
    pub fn gelu_tanh(&self) -> Result<Self> {
        Self::apply_one(
            op::Gelu {
                approximate: op::GeluApproximate::Tanh,
            },
            &[self],
        )
    }

    /// Softmax over the last dimension, as `torch.softmax(x, -1)`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype other than F32, or a scalar.
    #[track_caller]
    pub fn softmax(&self) -> Result<Self> {
        Self::apply_one(op::Softmax, &[self])
    }

    /// Layer normalisation over the last dimension (Ba et al. 2016), as
    /// `torch.nn.functional.layer_norm`: weight and bias `[C]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit.
    #[track_caller]
    pub fn layer_norm(&self, affine: Option<(&Self, &Self)>, eps: f64) -> Result<Self> {
        match affine {
            Some((weight, bias)) => {
                let op = op::LayerNorm { eps, affine: true };
                Self::apply_one(op, &[self, weight, bias])
            }
            None => Self::apply_one(op::LayerNorm { eps, affine: false }, &[self]),
        }
    }

    /// Zeroes elements with probability `p` and scales the rest by `1 / (1 - p)`, as
    /// `torch.nn.functional.dropout(training=True)`. The mask is a function of the engine's seed and
    /// a counter, so that recomputation draws the same one.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for `p` outside 0 to 1.
    #[track_caller]
    pub fn dropout(&self, p: f64) -> Result<Self> {
        let (seed, offset) = self.engine.lock().pending.next_random();
        Self::apply_one(op::Dropout { p, seed, offset }, &[self])
    }

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
        let op = op::ScaledDotProductAttention { causal, scale };
        Self::apply_one(op, &[self, key, value])
    }

    /// Mean negative log-likelihood of `labels` `[..]` under logits `[.., C]`; labels of
    /// `-100` do not count. As `torch.nn.functional.cross_entropy`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit; a label out of range stops the step.
    #[track_caller]
    pub fn cross_entropy(&self, labels: &Self) -> Result<Self> {
        let reduction = op::Reduction::Mean;
        Self::apply_one(
            op::CrossEntropy {
                reduction,
                ignore_index: -100,
            },
            &[self, labels],
        )
    }

    /// `linear(self, weight)` and `cross_entropy` in one, in chunks of rows, so that the logits are
    /// never held: `self` `[.., C]`, weight `[V, C]`, labels `[..]`. Their gradients are made in the
    /// same pass.
    ///
    /// # Errors
    /// As [`Tensor::cross_entropy`].
    #[track_caller]
    pub fn linear_cross_entropy(&self, weight: &Self, labels: &Self) -> Result<Self> {
        let rows = labels.shape().numel();
        let vocabulary = weight.dims().first().copied().unwrap_or(1);
        let enabled = crate::is_grad_enabled();
        let grad_x = enabled && self.requires_grad()?;
        let grad_w = enabled && weight.requires_grad()?;
        let chunk_rows = op::default_chunk_rows(rows, vocabulary);
        let op = op::LinearCrossEntropy {
            chunk_rows,
            grad_x,
            grad_w,
            ignore_index: -100,
        };
        Self::apply_one(op, &[self, weight, labels])
    }

    /// Sum of all elements.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype other than F32.
    #[track_caller]
    pub fn sum(&self) -> Result<Self> {
        self.sum_dims(&[], false)
    }

    /// Sum over some dimensions (all if none is given), as `torch.sum(dim, keepdim)`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dimension that is not there.
    #[track_caller]
    pub fn sum_dims(&self, dims: &[usize], keepdim: bool) -> Result<Self> {
        Self::apply_one(
            op::Sum {
                dims: dims.into(),
                keepdim,
            },
            &[self],
        )
    }

    /// Mean of all elements.
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    #[track_caller]
    pub fn mean(&self) -> Result<Self> {
        self.mean_dims(&[], false)
    }

    /// Mean over some dimensions (all if none is given), as `torch.mean(dim, keepdim)`.
    ///
    /// # Errors
    /// As [`Tensor::sum_dims`].
    #[track_caller]
    pub fn mean_dims(&self, dims: &[usize], keepdim: bool) -> Result<Self> {
        Self::apply_one(
            op::Mean {
                dims: dims.into(),
                keepdim,
            },
            &[self],
        )
    }

    /// The tensors one after the other along a dimension, as `torch.cat`; their shapes may differ
    /// in that dimension alone.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes or dtypes do not fit; [`crate::Error::Usage`] for none.
    #[track_caller]
    pub fn cat<T: Borrow<Self>>(tensors: &[T], dim: usize) -> Result<Self> {
        let inputs: SmallVec<[&Self; 4]> = tensors.iter().map(Borrow::borrow).collect();
        Self::apply_one(op::Cat { dim }, &inputs)
    }

    /// The elements in another float dtype, rounded to nearest even, as `tensor.to(dtype)`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for dtypes that do not convert.
    #[track_caller]
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        Self::apply_one(op::Cast { dtype }, &[self])
    }

    /// Swaps two dimensions: a view.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if one is not there.
    #[track_caller]
    pub fn transpose(&self, a: usize, b: usize) -> Result<Self> {
        let refused = || no_dimension("transpose", a.max(b), self.shape());
        self.view(Location::caller(), |layout| layout.transpose(a, b), refused)
    }

    /// Reorders the dimensions: a view.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] unless `order` is a permutation.
    #[track_caller]
    pub fn permute(&self, order: &[usize]) -> Result<Self> {
        let refused = || {
            let shape = self.shape();
            format!("permute: {order:?} does not name each dimension of shape {shape} once")
        };
        self.view(Location::caller(), |layout| layout.permute(order), refused)
    }

    /// `length` elements of one dimension from `start`: a view.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if they are not all there.
    #[track_caller]
    pub fn narrow(&self, dim: usize, start: usize, length: usize) -> Result<Self> {
        let refused = || match self.dims().get(dim) {
            Some(extent) => format!(
                "narrow({dim}, {start}, {length}) ends behind dimension {dim} of shape {}, whose \
                 extent is {extent}",
                self.shape()
            ),
            None => no_dimension("narrow", dim, self.shape()),
        };
        self.view(
            Location::caller(),
            |layout| layout.narrow(dim, start, length),
            refused,
        )
    }

    /// Equal parts of one dimension, as `torch.chunk` where it divides: views.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if the dimension is not there or does not divide.
    #[track_caller]
    pub fn chunk(&self, chunks: usize, dim: usize) -> Result<Vec<Self>> {
        let extent = self.dims().get(dim).copied().unwrap_or(0);
        if chunks == 0 || extent % chunks != 0 || dim >= self.shape().rank() {
            let message = if dim >= self.shape().rank() {
                no_dimension("chunk", dim, self.shape())
            } else {
                format!(
                    "chunk: {chunks} equal parts do not make dimension {dim} of shape {}",
                    self.shape()
                )
            };
            return Err(usage_error(message, Location::caller()));
        }
        let length = extent / chunks;
        (0..chunks)
            .map(|i| self.narrow(dim, i * length, length))
            .collect()
    }

    /// Repeats dimensions of extent 1, as `tensor.expand`: a view.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if the shape does not broadcast to `shape`.
    #[track_caller]
    pub fn expand(&self, shape: impl Into<Shape>) -> Result<Self> {
        let shape = checked(&shape.into(), "expand")?;
        let refused = || {
            let own = self.shape();
            format!("expand: only extents of 1 can grow; {own} does not become {shape}")
        };
        self.view(Location::caller(), |layout| layout.expand(&shape), refused)
    }

    /// The same elements in another shape: a view where strides allow it, else a copy.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if the counts differ.
    #[track_caller]
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self> {
        let shape = checked(&shape.into(), "reshape")?;
        let location = Location::caller();
        if shape.numel() != self.shape().numel() {
            let message = format!("reshape of {} to {shape}: the counts differ", self.shape());
            return Err(usage_error(message, location));
        }
        let as_view = self
            .operand(&mut self.engine.lock())?
            .spec
            .layout
            .reshape(&shape)
            .is_some();
        let source = if as_view {
            self.clone()
        } else {
            self.contiguous()?
        };
        let refused = || format!("reshape of {} to {shape}", self.shape());
        source.view(location, |layout| layout.reshape(&shape), refused)
    }

    /// A dense row-major copy, or the tensor itself if it is that.
    ///
    /// # Errors
    /// [`crate::Error::Expired`].
    #[track_caller]
    pub fn contiguous(&self) -> Result<Self> {
        if self
            .operand(&mut self.engine.lock())?
            .spec
            .layout
            .is_contiguous()
        {
            return Ok(self.clone());
        }
        Self::apply_one(op::Copy, &[self])
    }
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident, $scalar:ident, $op:expr, $scalar_op:expr;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`crate::Error::Op`] if the shapes do not broadcast.
            #[track_caller]
            pub fn $name(&self, other: &Self) -> Result<Self> {
                Self::apply_one($op, &[self, other])
            }

            /// The same with a number for the other operand.
            ///
            /// # Errors
            /// [`crate::Error::Op`] for a dtype other than F32.
            #[track_caller]
            pub fn $scalar(&self, value: f64) -> Result<Self> {
                Self::apply_one($scalar_op(value), &[self])
            }
        )*}
    };
}

binary! {
    /// Elementwise sum, broadcast.
    add, add_scalar, op::Add, |value: f64| op::AddScalar { value };
    /// Elementwise difference, broadcast.
    sub, sub_scalar, op::Sub, |value: f64| op::SubScalar { value };
    /// Elementwise product, broadcast.
    mul, mul_scalar, op::Mul, |value: f64| op::MulScalar { value };
    /// Elementwise quotient, broadcast.
    div, div_scalar, op::Div, |value: f64| op::DivScalar { value };
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident, $op:expr;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`crate::Error::Op`] for a dtype other than F32.
            #[track_caller]
            pub fn $name(&self) -> Result<Self> {
                Self::apply_one($op, &[self])
            }
        )*}
    };
}

unary! {
    /// Elementwise `max(x, 0)`.
    relu, op::Relu;
    /// Elementwise hyperbolic tangent.
    tanh, op::Tanh;
    /// Elementwise `1 / (1 + exp(-x))`.
    sigmoid, op::Sigmoid;
    /// Elementwise exponential.
    exp, op::Exp;
    /// Elementwise natural logarithm.
    log, op::Log;
    /// Elementwise square root.
    sqrt, op::Sqrt;
    /// Elementwise negation.
    neg, op::Neg;
}

fn no_dimension(what: &str, dim: usize, shape: &Shape) -> String {
    let rank = shape.rank();
    format!("{what}: there is no dimension {dim} in shape {shape}, of rank {rank}")
}

/// Refuses a shape whose elements cannot be counted.
#[track_caller]
fn checked(shape: &Shape, what: &str) -> Result<Shape> {
    Shape::checked(shape).ok_or_else(|| {
        let message = format!(
            "{what}: the shape {shape} has more than {RANK_MAX} dimensions, or more elements than \
             any memory"
        );
        usage_error(message, Location::caller())
    })
}
