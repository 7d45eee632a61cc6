//! Losses and similarities as functions, with the names and the arithmetic of `torch.nn.functional`.
//!
//! Inputs broadcast. Under [`autocast`](crate::autocast) losses are computed in `F32`, as in PyTorch.
//! [`Tensor::cross_entropy`] and [`Tensor::linear_cross_entropy`] are methods, and so are activations.
//!
//! ```
//! use highwater::nn::functional::{Reduction, mse_loss};
//! use highwater::prelude::*;
//!
//! fn main() -> Result<()> {
//!     let engine = Engine::builder().arena(1 << 20).build()?;
//!     let x = engine.tensor(&[1.0, 2.0], [2])?;
//!     let y = engine.tensor(&[1.0, 4.0], [2])?;
//!     assert_eq!(mse_loss(&x, &y, Reduction::Mean)?.item()?, 2.0);
//!     Ok(())
//! }
//! ```

use crate::error::usage_error;
use crate::pending::context::autocast_dtype;
use crate::tensor::Tensor;
use crate::{DType, Dim, Result};
use highwater_graph::Location;
use highwater_ops::{BceWithLogits, CrossEntropy, CtcLoss, Huber, NllLoss, Softplus};

/// What becomes of the losses of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reduction {
    /// Their mean; NaN of none.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// Their sum by the first extent, as `kl_div` has it.
    BatchMean,
    /// They stay as they are.
    None,
}

impl Reduction {
    #[track_caller]
    fn of(self, losses: &Tensor) -> Result<Tensor> {
        match self {
            Self::Mean => losses.mean(),
            Self::Sum => losses.sum(),
            Self::BatchMean => {
                let batch = losses.dims().first().copied().unwrap_or(1);
                // The sum alone may be more than half precision holds.
                let mean = in_f32(losses)?.sum()?.div_scalar(batch as f64)?;
                as_type(mean, losses.dtype())
            }
            Self::None => Ok(losses.clone()),
        }
    }
}

/// The tensor as losses read it: in `F32` under autocast.
#[track_caller]
fn wide(x: &Tensor) -> Result<Tensor> {
    match x.dtype() {
        DType::BF16 | DType::F16 if autocast_dtype().is_some() => x.to_dtype(DType::F32),
        _ => Ok(x.clone()),
    }
}

/// The tensor in `F32`, if it is of half precision.
#[track_caller]
fn in_f32(x: &Tensor) -> Result<Tensor> {
    match x.dtype() {
        DType::BF16 | DType::F16 => x.to_dtype(DType::F32),
        _ => Ok(x.clone()),
    }
}

/// The tensor in a dtype, if it is of another.
#[track_caller]
fn as_type(x: Tensor, dtype: DType) -> Result<Tensor> {
    if x.dtype() == dtype {
        return Ok(x);
    }
    x.to_dtype(dtype)
}

#[track_caller]
fn difference(input: &Tensor, target: &Tensor) -> Result<Tensor> {
    wide(input)?.sub(&wide(target)?)
}

/// The square of the difference, as `torch.nn.functional.mse_loss`.
///
/// # Errors
/// [`crate::Error::Op`] if the shapes do not broadcast.
#[track_caller]
pub fn mse_loss(input: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    reduction.of(&difference(input, target)?.square()?)
}

/// The size of the difference, as `torch.nn.functional.l1_loss`; its gradient at 0 is 0.
///
/// # Errors
/// [`crate::Error::Op`] if the shapes do not broadcast.
#[track_caller]
pub fn l1_loss(input: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    reduction.of(&difference(input, target)?.abs()?)
}

/// Half the square of a difference where it is below `delta`, else a line, as
/// `torch.nn.functional.huber_loss(delta=..)`, where `delta` is 1 unless it is given.
///
/// # Errors
/// [`crate::Error::Op`] if the shapes do not broadcast; [`crate::Error::Usage`] for a `delta` that is not above
/// 0.
#[track_caller]
pub fn huber_loss(
    input: &Tensor,
    target: &Tensor,
    delta: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    if delta.is_nan() || delta <= 0.0 {
        let message = format!("huber_loss: delta must be above 0, got {delta}");
        return Err(usage_error(message, Location::caller()));
    }
    let difference = difference(input, target)?;
    reduction.of(&Tensor::apply_one(Huber { delta }, &[&difference])?)
}

/// [`huber_loss`] by `beta`, as `torch.nn.functional.smooth_l1_loss(beta=..)`, where `beta` is 1 unless it is
/// given; [`l1_loss`] if it is 0.
///
/// # Errors
/// [`crate::Error::Op`] if the shapes do not broadcast; [`crate::Error::Usage`] for a `beta` below 0.
#[track_caller]
pub fn smooth_l1_loss(
    input: &Tensor,
    target: &Tensor,
    beta: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    if beta.is_nan() || beta < 0.0 {
        let message = format!("smooth_l1_loss: beta must not be below 0, got {beta}");
        return Err(usage_error(message, Location::caller()));
    }
    if beta == 0.0 {
        return l1_loss(input, target, reduction);
    }
    huber_loss(input, target, beta, reduction)?.div_scalar(beta)
}

/// Cross-entropy of targets between 0 and 1 and the sigmoid of logits, as
/// `torch.nn.functional.binary_cross_entropy_with_logits(weight, pos_weight)`: nothing overflows, and small
/// losses keep their digits. `weight` is a factor of each loss, `pos_weight` one of what targets above 0 cost.
///
/// # Errors
/// [`crate::Error::Op`] if the shapes do not broadcast.
#[track_caller]
pub fn binary_cross_entropy_with_logits(
    input: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    pos_weight: Option<&Tensor>,
    reduction: Reduction,
) -> Result<Tensor> {
    let (x, y) = (wide(input)?, wide(target)?);
    let mut losses = Tensor::apply_one(BceWithLogits, &[&x, &y])?;
    if let Some(pos_weight) = pos_weight {
        let softplus = Softplus {
            beta: 1.0,
            threshold: f64::INFINITY,
        };
        let of_yes = Tensor::apply_one(softplus, &[&x.neg()?])?;
        let more = pos_weight.sub_scalar(1.0)?.mul(&y)?;
        losses = losses.add(&of_yes.mul(&more)?)?;
    }
    if let Some(weight) = weight {
        losses = losses.mul(weight)?;
    }
    reduction.of(&losses)
}

/// The divergence of Kullback and Leibler of `input`, logarithms of probabilities, from `target`: `target
/// (log(target) - input)`, as `torch.nn.functional.kl_div(log_target=..)`. With `log_target` the target is of
/// logarithms as well; without, what is 0 there costs nothing. The mean over a batch is
/// [`Reduction::BatchMean`].
///
/// # Errors
/// [`crate::Error::Op`] if the shapes do not broadcast.
#[track_caller]
pub fn kl_div(
    input: &Tensor,
    target: &Tensor,
    log_target: bool,
    reduction: Reduction,
) -> Result<Tensor> {
    let (input, target) = (wide(input)?, wide(target)?);
    let losses = if log_target {
        target.exp()?.mul(&target.sub(&input)?)?
    } else {
        target.xlogy(&target)?.sub(&target.mul(&input)?)?
    };
    reduction.of(&losses)
}

/// The negative of what each row of `[.., C]`, logarithms of probabilities, says of its label `[..]`, as
/// `torch.nn.functional.nll_loss(weight=.., ignore_index=..)`, where `ignore_index` is -100 unless it is given.
/// `weight` `[C]` is what rows of each class count, through which no gradient flows. The mean is over rows that
/// are not ignored, by what they count.
///
/// # Errors
/// [`crate::Error::Op`] if the shapes do not fit; a label out of range stops the step.
#[track_caller]
pub fn nll_loss(
    input: &Tensor,
    labels: &Tensor,
    weight: Option<&Tensor>,
    ignore_index: i64,
    reduction: Reduction,
) -> Result<Tensor> {
    let (losses, counts) = label_losses(&wide(input)?, labels, weight, ignore_index)?;
    of_counted(&losses, &counts, reduction)
}

/// The loss of each row, and what it counts.
#[track_caller]
fn label_losses(
    input: &Tensor,
    labels: &Tensor,
    weight: Option<&Tensor>,
    ignore_index: i64,
) -> Result<(Tensor, Tensor)> {
    let op = NllLoss { ignore_index };
    let losses = Tensor::apply_one(op, &[input, labels])?;
    let Some(weight) = weight else {
        return Ok((losses, labels.ne_scalar(ignore_index as f64)?));
    };
    // The weight of each row's label, and 0 of one that is ignored.
    let weight = weight.detach()?.to_dtype(input.dtype())?.neg()?;
    let rows = weight.expand(input.shape().clone())?;
    let counts = Tensor::apply_one(op, &[&rows, labels])?;
    Ok((losses.mul(&counts)?, counts))
}

/// Losses of rows that count differently, reduced.
#[track_caller]
fn of_counted(losses: &Tensor, counts: &Tensor, reduction: Reduction) -> Result<Tensor> {
    if reduction != Reduction::Mean {
        return reduction.of(losses);
    }
    // Half precision could not count, and the sum alone may be more than it holds.
    let count = counts.to_dtype(DType::F32)?.sum()?;
    let mean = in_f32(losses)?.sum()?.div(&count)?;
    as_type(mean, losses.dtype())
}

/// What [`cross_entropy`] may be told beside logits and labels, with PyTorch's names and defaults.
#[derive(Debug, Clone, Copy)]
pub struct CrossEntropyOptions<'a> {
    /// `[C]`: what rows of each class count, through which no gradient flows.
    pub weight: Option<&'a Tensor>,
    /// The label of rows that are left out.
    pub ignore_index: i64,
    /// What becomes of the losses of rows.
    pub reduction: Reduction,
    /// The share of each label's probability that all classes have alike, from 0 to 1 (Szegedy et al., 2016).
    pub label_smoothing: f64,
}

impl Default for CrossEntropyOptions<'_> {
    fn default() -> Self {
        Self {
            weight: None,
            ignore_index: -100,
            reduction: Reduction::Mean,
            label_smoothing: 0.0,
        }
    }
}

/// `torch.nn.functional.cross_entropy` of logits `[.., C]` and labels `[..]`: classes are the last dimension. As
/// [`nll_loss`] of logarithms of probabilities; in one pass, as [`Tensor::cross_entropy`], where there are no
/// weights, no smoothing and one loss.
///
/// # Errors
/// As [`nll_loss`]; [`crate::Error::Usage`] for a smoothing that is not from 0 to 1.
#[track_caller]
pub fn cross_entropy(
    input: &Tensor,
    labels: &Tensor,
    options: CrossEntropyOptions<'_>,
) -> Result<Tensor> {
    let CrossEntropyOptions {
        weight,
        ignore_index,
        reduction,
        label_smoothing: smoothing,
    } = options;
    if !(0.0..=1.0).contains(&smoothing) {
        let message = format!("label_smoothing is {smoothing}; expected a number from 0 to 1");
        return Err(usage_error(message, Location::caller()));
    }
    let input = wide(input)?;
    let as_one = match reduction {
        Reduction::Mean => Some(highwater_ops::Reduction::Mean),
        Reduction::Sum => Some(highwater_ops::Reduction::Sum),
        Reduction::BatchMean | Reduction::None => None,
    };
    let plain = weight.is_none() && smoothing <= 0.0;
    if let Some(reduction) = as_one.filter(|_| plain) {
        let op = CrossEntropy {
            reduction,
            ignore_index,
        };
        return Tensor::apply_one(op, &[&input, labels]);
    }
    let logarithms = input.log_softmax(-1)?;
    let (losses, counts) = label_losses(&logarithms, labels, weight, ignore_index)?;
    if smoothing <= 0.0 {
        return of_counted(&losses, &counts, reduction);
    }
    let weighted = match weight {
        Some(weight) => logarithms.mul(&weight.detach()?.to_dtype(input.dtype())?)?,
        None => logarithms,
    };
    let classes = input.dims().last().copied().unwrap_or(1);
    let even = weighted.sum_dims(&[-1], false)?;
    let even = even.mul_scalar(-smoothing / classes as f64)?;
    // What is ignored costs nothing, also where a class is impossible.
    let ignored = labels.eq_scalar(ignore_index as f64)?;
    let even = even.masked_fill(&ignored, 0.0)?;
    let losses = losses.mul_scalar(1.0 - smoothing)?.add(&even)?;
    of_counted(&losses, &counts, reduction)
}

/// What [`ctc_loss`] may be told, with PyTorch's names and defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CtcOptions {
    /// The class that stands for no label.
    pub blank: usize,
    /// What becomes of the losses of targets. Their mean is of each loss by its number of labels, 1 at least.
    pub reduction: Reduction,
    /// Whether a target that does not fit into its frames costs nothing, rather than infinity.
    pub zero_infinity: bool,
}

/// The negative logarithm of how probable targets are, over all ways to spread their labels over frames, as
/// `torch.nn.functional.ctc_loss`.
///
/// `log_probs` `[T, N, C]` are logarithms of probabilities, as of [`Tensor::log_softmax`]; `targets` are `[N, S]`, or one
/// behind the other `[sum]`; `input_lengths` and `target_lengths` `[N]` say how many frames and labels count. The last
/// three are I64 or U32. Without a batch these are `[T, C]`, `[S]` and two scalars. The gradient is the function's;
/// PyTorch's differs from it by what only `log_softmax` takes away. It has no gradient in turn.
///
/// # Errors
/// [`crate::Error::Op`] if shapes or dtypes do not fit; labels and lengths out of range stop the step.
#[track_caller]
pub fn ctc_loss(
    log_probs: &Tensor,
    targets: &Tensor,
    input_lengths: &Tensor,
    target_lengths: &Tensor,
    options: CtcOptions,
) -> Result<Tensor> {
    let log_probs = wide(log_probs)?;
    let op = CtcLoss {
        blank: options.blank,
        zero_infinity: options.zero_infinity,
    };
    let is_batch = log_probs.dims().len() != 2;
    let losses = if is_batch {
        Tensor::apply_one(op, &[&log_probs, targets, input_lengths, target_lengths])?
    } else {
        let lengths = [input_lengths, target_lengths].map(|length| length.reshape([1]));
        let [input_length, target_length] = lengths;
        let (log_probs, targets) = (log_probs.unsqueeze(1)?, targets.unsqueeze(0)?);
        Tensor::apply_one(op, &[&log_probs, &targets, &input_length?, &target_length?])?
    };
    match options.reduction {
        Reduction::Mean => {
            let labels = target_lengths.to_dtype(losses.dtype())?.clamp_min(1.0)?;
            losses.div(&labels)?.mean()
        }
        Reduction::None if !is_batch => losses.reshape([]),
        reduction => reduction.of(&losses),
    }
}

/// The cosine of the angle between vectors along a dimension of the shape that both broadcast to, as
/// `torch.nn.functional.cosine_similarity(dim, eps)`: each length is `eps` at least, which is `1e-8` unless it
/// is given.
///
/// # Errors
/// [`crate::Error::Op`] if the shapes do not broadcast; [`crate::Error::Usage`] for a dimension that is not
/// there.
#[track_caller]
pub fn cosine_similarity(a: &Tensor, b: &Tensor, dim: impl Dim, eps: f64) -> Result<Tensor> {
    let (a, b) = (wide(a)?, wide(b)?);
    // Half precision holds neither squares nor a bound of `1e-16`.
    let (x, y) = (in_f32(&a)?, in_f32(&b)?);
    let products = x.mul(&y)?;
    let dim = [products.dim("cosine_similarity", dim)?];
    let lengths = length(&x, &products, dim, eps)?.mul(&length(&y, &products, dim, eps)?)?;
    let cosines = products.sum_dims(&dim, false)?.div(&lengths)?;
    let is_of_one = a.dtype() == b.dtype();
    let dtype = if is_of_one {
        a.dtype()
    } else {
        cosines.dtype()
    };
    as_type(cosines, dtype)
}

/// Vectors along a dimension, each divided by its `p`-norm, which is `eps` at least, as
/// `torch.nn.functional.normalize(p, dim, eps)`; there `p` is 2 and `eps` is `1e-12` unless they are given.
///
/// # Errors
/// [`crate::Error::Op`] for a dtype that is not of floats; [`crate::Error::Usage`] for a dimension that is not
/// there.
#[track_caller]
pub fn normalize(x: &Tensor, p: f64, dim: impl Dim, eps: f64) -> Result<Tensor> {
    let x = wide(x)?;
    let dim = [x.dim("normalize", dim)?];
    x.div(&x.norm_dims(p, &dim, true)?.clamp_min(eps)?)
}

/// The distance of vectors along the last dimension, as `torch.nn.functional.pairwise_distance(p, eps)`: the
/// `p`-norm of `a - b + eps`; there `p` is 2 and `eps` is `1e-6` unless they are given.
///
/// # Errors
/// [`crate::Error::Op`] if the shapes do not broadcast.
#[track_caller]
pub fn pairwise_distance(a: &Tensor, b: &Tensor, p: f64, eps: f64) -> Result<Tensor> {
    let apart = wide(a)?.sub(&wide(b)?)?.add_scalar(eps)?;
    apart.norm_dims(p, &[-1], false)
}

/// What [`triplet_margin_loss`] may be told, with PyTorch's names and defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TripletMarginOptions {
    /// By how much the negative is to be farther away.
    pub margin: f64,
    /// Of the norm that is the distance.
    pub p: f64,
    /// What is added to each difference.
    pub eps: f64,
    /// Whether the negative's distance from the positive counts where it is less (Balntas et al., 2016).
    pub swap: bool,
    /// What becomes of the losses of triplets.
    pub reduction: Reduction,
}

impl Default for TripletMarginOptions {
    fn default() -> Self {
        Self {
            margin: 1.0,
            p: 2.0,
            eps: 1e-6,
            swap: false,
            reduction: Reduction::Mean,
        }
    }
}

/// By how much `positive` is not nearer to `anchor` than `negative` less a margin, as
/// `torch.nn.functional.triplet_margin_loss`: vectors lie along the last dimension.
///
/// # Errors
/// [`crate::Error::Op`] if the shapes do not broadcast.
#[track_caller]
pub fn triplet_margin_loss(
    anchor: &Tensor,
    positive: &Tensor,
    negative: &Tensor,
    options: TripletMarginOptions,
) -> Result<Tensor> {
    let apart = |a: &Tensor, b: &Tensor| pairwise_distance(a, b, options.p, options.eps);
    let mut far = apart(anchor, negative)?;
    if options.swap {
        far = far.minimum(&apart(positive, negative)?)?;
    }
    let losses = apart(anchor, positive)?.sub(&far)?;
    let losses = losses.add_scalar(options.margin)?.clamp_min(0.0)?;
    options.reduction.of(&losses)
}

/// The lengths of vectors, `eps` at least, of a tensor that is broadcast to another's shape. The bound stands
/// under the root, so that the gradient of nothing is nothing.
#[track_caller]
fn length(x: &Tensor, like: &Tensor, dim: [usize; 1], eps: f64) -> Result<Tensor> {
    let squares = x.expand(like.shape().clone())?.square()?;
    squares.sum_dims(&dim, false)?.clamp_min(eps * eps)?.sqrt()
}
