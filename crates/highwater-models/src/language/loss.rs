//! The loss of hidden states under a head, with label smoothing (Szegedy et al. 2016).

use highwater::nn::functional::{CrossEntropyOptions, Reduction, cross_entropy};
use highwater::{DType, Result, Tensor};

/// Logits that are held at once where something comes between them and the loss, about.
const LOGITS: usize = 1 << 24;

/// Mean cross-entropy of targets `[..]` after hidden states `[.., C]` under a head `[V, C]`: logits are never held.
///
/// With logits `z`, smoothing by `s` adds `s * (z[target] - mean(z))` to the loss of a row. Both terms are products of
/// the hidden state with one vector, a row of the head and the mean of its rows, so they need no logits either.
pub(crate) fn linear_loss(
    hidden: &Tensor,
    head: &Tensor,
    targets: &Tensor,
    label_smoothing: f64,
) -> Result<Tensor> {
    let loss = hidden.linear_cross_entropy(head, targets)?;
    if label_smoothing <= 0.0 {
        return Ok(loss);
    }
    let targets = targets.to_dtype(DType::I64)?;
    let ignored = targets.eq_scalar(-100.0)?;
    let own = head.embedding(&targets.masked_fill(&ignored, 0.0)?)?;
    let (own, mean) = (own.to_dtype(DType::F32)?, head.mean_dims(&[0], false)?);
    let apart = own.sub(&mean.to_dtype(DType::F32)?)?;
    let above = hidden.to_dtype(DType::F32)?.mul(&apart)?;
    let above = above.sum_dims(&[-1], false)?.masked_fill(&ignored, 0.0)?;
    let counted = ignored.logical_not()?.to_dtype(DType::F32)?.sum()?;
    let above = above.sum()?.div(&counted)?;
    loss.add(&above.mul_scalar(label_smoothing)?.to_dtype(loss.dtype())?)
}

/// The same where something comes between the head and the loss, such as a cap: `logits` makes `[rows, V]` of hidden
/// states `[rows, C]`, of some rows at a time.
pub(crate) fn loss_of_logits(
    hidden: &Tensor,
    targets: &Tensor,
    label_smoothing: f64,
    (vocab_size, logits): (usize, impl Fn(&Tensor) -> Result<Tensor>),
) -> Result<Tensor> {
    let rows = targets.shape().numel();
    let width = hidden.dims().last().copied().unwrap_or(1);
    let hidden = hidden.reshape([rows, width])?;
    let targets = targets.reshape([rows])?;
    let each = (LOGITS / vocab_size).clamp(1, rows.max(1));
    let options = CrossEntropyOptions {
        reduction: Reduction::Sum,
        label_smoothing,
        ..CrossEntropyOptions::default()
    };
    let mut sum: Option<Tensor> = None;
    for start in (0..rows).step_by(each) {
        let len = each.min(rows - start);
        let logits = logits(&hidden.narrow(0, start, len)?)?;
        let part = cross_entropy(&logits, &targets.narrow(0, start, len)?, options)?;
        sum = Some(match sum {
            Some(sum) => sum.add(&part)?,
            None => part,
        });
    }
    let Some(sum) = sum else {
        return hidden.mean();
    };
    if targets.dtype() != DType::I64 {
        return sum.mul_scalar(1.0 / rows as f64);
    }
    let left_out = options.ignore_index as f64;
    let left_out = Tensor::full(hidden.engine(), [1], left_out, DType::I64)?;
    let counted = targets.ne(&left_out)?.sum()?.to_dtype(sum.dtype())?;
    sum.div(&counted)
}
