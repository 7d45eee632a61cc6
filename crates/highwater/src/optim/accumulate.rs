//! Micro-batches whose gradient is that of the whole batch.

use crate::Result;
use crate::error::usage_error;
use crate::pending::context::micro_batch;
use crate::tensor::Tensor;
use highwater_graph::Location;

/// Adds the gradients of a batch that is cut into `micro_batches` to those that parameters have, one backward
/// for each, and answers the batch's loss, detached. Call the optimizer's `step` afterwards.
///
/// `loss` is the mean over what a micro-batch counts, and `weight` how much that is: its samples, or, of text
/// that is padded, its tokens that are no padding. Each loss is weighed by its share, so that loss and gradient
/// are those of the mean over the whole batch, however unevenly it is cut; a plain mean of means is not (as many
/// a trainer found). Micro-batches that count nothing are left out, and their `loss` is not called.
///
/// ```
/// use highwater::optim::accumulate;
/// use highwater::prelude::*;
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let w = Parameter::new(&engine, [1], |w| w.fill(2.0))?;
/// // Means over three elements and over one.
/// let parts = [vec![1.0, 2.0, 3.0], vec![6.0]];
/// let loss = accumulate(&parts, Vec::len, |part| {
///     engine.tensor(part, [part.len()])?.mul(&w)?.mean()
/// })?;
/// assert_eq!(loss.item()?, 6.0);
/// assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [3.0]);
/// # Ok(())
/// # }
/// ```
///
/// Inside of `loss` the parts are [`micro_batch`](crate::micro_batch)es.
///
/// # Errors
/// What `loss` and [`Tensor::backward`] refuse: gradients of the parts before stay, until
/// [`zero_grad`](super::Optimizer::zero_grad) drops them. [`crate::Error::Usage`] where nothing counts anything.
#[track_caller]
pub fn accumulate<B>(
    micro_batches: &[B],
    weight: impl Fn(&B) -> usize,
    mut loss: impl FnMut(&B) -> Result<Tensor>,
) -> Result<Tensor> {
    let location = Location::caller();
    let weights = micro_batches.iter().map(|part| weight(part) as f64);
    let parts: Vec<(&B, f64)> = micro_batches
        .iter()
        .zip(weights)
        .filter(|part| part.1 > 0.0)
        .collect();
    let total: f64 = parts.iter().map(|part| part.1).sum();
    let mut whole: Option<Tensor> = None;
    for (i, (part, weight)) in parts.iter().enumerate() {
        let part = micro_batch(i, parts.len(), || loss(part))?.mul_scalar(weight / total)?;
        part.backward()?;
        let part = part.detach()?;
        whole = Some(match whole {
            None => part,
            Some(whole) => whole.add(&part)?,
        });
    }
    whole.ok_or_else(|| {
        let message = "accumulate: no micro-batch counts anything, so that there is no mean";
        usage_error(message.to_owned(), location)
    })
}
