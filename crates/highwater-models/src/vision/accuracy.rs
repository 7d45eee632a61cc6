//! How many images are told right.

use highwater::{DType, Result, Tensor};

/// The share of images whose class is among the `k` with the highest logits, as `topk` orders them: a scalar `f32` of
/// logits `[N, classes]` and classes `[N]` of `i64`. Of fewer classes than `k`, it is 1. torchvision's reference
/// scripts call it `accuracy`.
///
/// # Errors
/// [`highwater::Error`] for other shapes.
pub fn top_k_accuracy(logits: &Tensor, classes: &Tensor, k: usize) -> Result<Tensor> {
    let ends = [logits.dims().first(), logits.dims().last()];
    let [count, most] = ends.map(|extent| extent.copied().unwrap_or(1));
    let (_, told) = logits.reshape([count, most])?.topk(k.min(most), 1, true)?;
    let right = told
        .eq(&classes.reshape([count, 1])?)?
        .to_dtype(DType::F32)?;
    right.sum_dims(&[1], false)?.mean()
}
