//! The plain references: one target after the other, all states of all frames. PyTorch's cases hold the lattice, which
//! the kernels go through as well, and finite differences the gradient.

use super::lattice::{Target, states};
use super::{CtcLoss, CtcLossBackward};
use crate::Array;
use highwater_graph::Op;

/// Calls `f` with each item, its frames and its labels.
fn for_each(inputs: &[Array], mut f: impl FnMut(usize, usize, &[usize])) {
    let [_, targets, input_lengths, target_lengths] = inputs else {
        return;
    };
    let mut before = 0;
    for item in 0..input_lengths.data.len() {
        let labels = target_lengths.data[item] as usize;
        let start = match *targets.shape.dims() {
            [_, width] => item * width,
            _ => before,
        };
        let of_item: Vec<usize> = targets.data[start..start + labels]
            .iter()
            .map(|&label| label as usize)
            .collect();
        f(item, input_lengths.data[item] as usize, &of_item);
        before += labels;
    }
}

/// The states of every frame, and the loss.
fn frames_of(
    target: Target<'_>,
    frames: usize,
    log_prob: impl Fn(usize, usize) -> f64,
) -> (Vec<Vec<f64>>, f64) {
    let mut all = Vec::new();
    let mut alpha = vec![f64::NEG_INFINITY; states(target.labels.len())];
    for frame in 0..frames {
        if frame == 0 {
            target.begin(&mut alpha, |class| log_prob(frame, class));
        } else {
            target.advance(&mut alpha, |class| log_prob(frame, class));
        }
        all.push(alpha.clone());
    }
    let loss = if frames == 0 {
        target.loss_of_nothing()
    } else {
        Target::loss(&alpha)
    };
    (all, loss)
}

pub(super) fn forward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &CtcLoss = op.downcast().expect("the reference of this operation");
    let log_probs = &inputs[0];
    let (batch, classes) = (log_probs.shape[1], log_probs.shape[2]);
    let mut losses = vec![0.0; batch];
    for_each(inputs, |item, frames, labels| {
        let target = Target {
            labels,
            blank: op.blank,
        };
        let log_prob =
            |frame: usize, class: usize| log_probs.data[(frame * batch + item) * classes + class];
        let (_, loss) = frames_of(target, frames, log_prob);
        losses[item] = if op.zero_infinity && loss == f64::INFINITY {
            0.0
        } else {
            loss
        };
    });
    vec![Array::new(log_probs.dtype, [batch], losses)]
}

pub(super) fn backward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &CtcLossBackward = op.downcast().expect("the reference of this operation");
    let (g, log_probs) = (&inputs[0], &inputs[1]);
    let (batch, classes) = (log_probs.shape[1], log_probs.shape[2]);
    let mut out = Array::new(
        log_probs.dtype,
        log_probs.shape.clone(),
        vec![0.0; log_probs.data.len()],
    );
    for_each(&inputs[1..], |item, frames, labels| {
        let target = Target {
            labels,
            blank: op.0.blank,
        };
        let at = |frame: usize, class: usize| (frame * batch + item) * classes + class;
        let log_prob = |frame: usize, class: usize| log_probs.data[at(frame, class)];
        let (alphas, loss) = frames_of(target, frames, log_prob);
        if op.0.zero_infinity && loss == f64::INFINITY {
            return;
        }
        let mut beta = vec![0.0; states(labels.len())];
        Target::end(&mut beta);
        for frame in (0..frames).rev() {
            if frame + 1 < frames {
                target.retreat(&mut beta, |class| log_prob(frame + 1, class));
            }
            let mut posterior = vec![0.0; classes];
            for (state, (alpha, beta)) in alphas[frame].iter().zip(&beta).enumerate() {
                posterior[target.class(state)] += (alpha + beta + loss).exp();
            }
            for (class, posterior) in posterior.into_iter().enumerate() {
                out.data[at(frame, class)] = -g.data[item] * posterior;
            }
        }
    });
    vec![out]
}
