//! Adam, with weight decay that is added to gradients.

use super::formats::{Master, Moments};
use super::groups::Groups;
use super::options::options;
use highwater_graph::Op;
use highwater_ops::Formats;
use std::sync::Arc;

options! {
    /// Settings of a parameter group, with PyTorch's defaults.
    AdamOptions {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// Decay rates of the two moments.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the denominator.
        eps: f64 = 1e-8,
        /// L2 penalty: so much of the parameter is added to its gradient.
        weight_decay: f64 = 0.0,
        /// Whether to divide by the largest second moment so far, which is a third moment. Settled when the
        /// optimizer is made.
        amsgrad: bool = false,
        /// Whether the objective is to grow.
        maximize: bool = false,
    } master, moments
}

/// Adam (Kingma & Ba 2015), as `torch.optim.Adam`. Each
/// parameter has two moments of its own size, `exp_avg` and `exp_avg_sq`, with `amsgrad` a third one,
/// `max_exp_avg_sq`.
pub type Adam = Groups<AdamOptions>;

/// What Adam and AdamW are but for their defaults: the rule of options whose fields have the same names.
macro_rules! rule {
    ($options:ty, decoupled: $decoupled:literal) => {
        impl $crate::optim::Rule for $options {
            fn bounds(&self) -> Vec<(&'static str, f64, f64)> {
                $crate::optim::adam::bounds(&self.op())
            }

            fn moments(&self) -> &'static [&'static str] {
                self.op().moments()
            }

            fn formats(&self) -> (Option<Master>, Moments) {
                (self.master, self.moments)
            }

            fn update(&self, steps: u64, formats: Formats) -> Arc<dyn Op> {
                let step = steps + 1;
                Arc::new(highwater_ops::AdamW {
                    step,
                    formats,
                    ..self.op()
                })
            }

            fn goes_by_gradient(&self) -> bool {
                true
            }

            fn lr(&self) -> f64 {
                self.lr
            }

            fn set_lr(&mut self, lr: f64) {
                self.lr = lr;
            }

            fn set_momentum(&mut self, momentum: f64) {
                self.betas.0 = momentum;
            }
        }

        impl $options {
            fn op(&self) -> highwater_ops::AdamW {
                highwater_ops::AdamW {
                    lr: self.lr,
                    beta1: self.betas.0,
                    beta2: self.betas.1,
                    eps: self.eps,
                    weight_decay: self.weight_decay,
                    decoupled: $decoupled,
                    amsgrad: self.amsgrad,
                    maximize: self.maximize,
                    step: 1,
                    formats: Formats::PLAIN,
                }
            }
        }
    };
}
pub(super) use rule;

rule!(AdamOptions, decoupled: false);

/// The bounds of the settings of Adam in all its forms.
pub(super) fn bounds(op: &highwater_ops::AdamW) -> Vec<(&'static str, f64, f64)> {
    vec![
        ("lr", op.lr, f64::INFINITY),
        ("beta1", op.beta1, 1.0),
        ("beta2", op.beta2, 1.0),
        ("eps", op.eps, f64::INFINITY),
        ("weight_decay", op.weight_decay, f64::INFINITY),
    ]
}
