//! What optimizers do to numbers, written down from their definitions.

use crate::array::{Array, UNIT, loose};
use crate::program::{OptimizerSpec, Rule};
use crate::tape::quotient;

/// An optimizer's state.
#[derive(Debug, Clone)]
pub(crate) struct Moments {
    parameters: Vec<usize>,
    rule: Rule,
    /// For each parameter.
    slots: Vec<Slot>,
}

#[derive(Debug, Clone)]
struct Slot {
    /// Whether its moments are there: from the start, or if it was frozen then, from its first update.
    made: bool,
    steps: u64,
    moments: Vec<Array>,
}

impl Moments {
    /// Of parameters of these shapes, and whether each is frozen.
    pub(crate) fn new(spec: &OptimizerSpec, parameters: Vec<(Vec<usize>, bool)>) -> Self {
        let count = match spec.rule {
            Rule::Sgd { momentum: 0.0, .. } => 0,
            Rule::Sgd { .. } => 1,
            Rule::AdamW { .. } => 2,
        };
        let slot = |(shape, frozen): (Vec<usize>, bool)| Slot {
            made: !frozen,
            steps: 0,
            moments: vec![Array::full(&shape, 0.0); count],
        };
        Self {
            parameters: spec.parameters.clone(),
            rule: spec.rule,
            slots: parameters.into_iter().map(slot).collect(),
        }
    }

    pub(crate) fn parameters(&self) -> Vec<usize> {
        self.parameters.clone()
    }

    pub(crate) fn all(&self) -> Vec<Array> {
        let made = self.slots.iter().filter(|slot| slot.made);
        made.flat_map(|slot| slot.moments.clone()).collect()
    }

    pub(crate) fn steps(&self) -> Vec<u64> {
        self.slots.iter().map(|slot| slot.steps).collect()
    }

    pub(crate) fn set_lr(&mut self, to: f64) {
        match &mut self.rule {
            Rule::Sgd { lr, .. } | Rule::AdamW { lr, .. } => *lr = to,
        }
    }

    /// The parameter's next value.
    pub(crate) fn update(&mut self, slot: usize, value: &Array, grad: &Array) -> Array {
        let slot = &mut self.slots[slot];
        slot.steps += 1;
        slot.made = true;
        match self.rule {
            Rule::Sgd {
                lr,
                momentum,
                dampening,
                weight_decay,
                nesterov,
            } => {
                let grad = if weight_decay == 0.0 {
                    grad.clone()
                } else {
                    grad.plus(&value.scaled(weight_decay))
                };
                let mut change = grad.clone();
                if let [buffer] = &mut slot.moments[..] {
                    *buffer = if slot.steps == 1 {
                        grad.clone()
                    } else {
                        buffer.scaled(momentum).plus(&grad.scaled(1.0 - dampening))
                    };
                    change = if nesterov {
                        grad.plus(&buffer.scaled(momentum))
                    } else {
                        buffer.clone()
                    };
                }
                value.plus(&change.scaled(-lr))
            }
            Rule::AdamW {
                lr,
                betas,
                eps,
                weight_decay,
            } => {
                let [mean, square] = &mut slot.moments[..] else {
                    return value.clone();
                };
                *mean = mean.scaled(betas.0).plus(&grad.scaled(1.0 - betas.0));
                *square = square
                    .scaled(betas.1)
                    .plus(&grad.times(grad).scaled(1.0 - betas.1));
                let steps = slot.steps as i32;
                let (c1, c2) = (1.0 - betas.0.powi(steps), 1.0 - betas.1.powi(steps));
                let root = |v: f64, e: f64| {
                    let at = (v / c2).sqrt();
                    let (low, high) = (((v - e).max(0.0) / c2).sqrt(), ((v + e) / c2).sqrt());
                    (
                        at + eps,
                        (high - at).max(at - low) + 4.0 * UNIT * (at + eps),
                    )
                };
                let change = mean.zip(&square.map(root), |(m, em), below| {
                    let (value, error) = quotient((m / c1, em / c1), below);
                    // A mean over the root of a mean of squares is never far from one.
                    (
                        value,
                        error.min(value.abs() + 20.0) + 8.0 * UNIT * value.abs(),
                    )
                });
                let decayed = value.scaled(1.0 - lr * weight_decay);
                decayed.plus(&change.scaled(-lr))
            }
        }
    }
}

/// The norm of several gradients and its bound; none where it is not to be told from zero.
pub(crate) fn norm(grads: &[&Array]) -> Option<(f64, f64)> {
    let of = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
        grads
            .iter()
            .flat_map(|g| g.value.iter().zip(&g.error))
            .map(|(&v, &e)| f(v, e))
            .sum()
    };
    let norm = of(&|v, _| v * v).sqrt();
    let slack = of(&|v, e| v.abs() * e);
    let error = of(&|_, e| e * e).sqrt();
    if norm == 0.0 {
        return (error == 0.0).then_some((0.0, 0.0));
    }
    (error < 1e-3 * norm).then(|| {
        (
            norm,
            slack / norm + error * error / norm + 4.0 * UNIT * norm,
        )
    })
}

/// A gradient scaled so that the norm of all is at most `most`.
pub(crate) fn clip(grad: &Array, (norm, error): (f64, f64), most: f64) -> Array {
    if most / (norm + error + 1e-6) > 1.0 {
        return grad.clone();
    }
    let (factor, slack) = quotient((most, 0.0), (norm + 1e-6, error + UNIT * norm));
    let (factor, slack) = (factor.min(1.0), slack + 4.0 * UNIT * factor);
    grad.map(|v, e| loose(v * factor, v.abs() * slack + e * (factor + slack)))
}
