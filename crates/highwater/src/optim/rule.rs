//! What tells one optimizer from another.

use super::{Direction, Master, Moments};
use crate::Result;
use crate::tensor::Tensor;
use highwater_graph::{Op, Shape};
use highwater_ops::{Formats, Sgd};
use std::sync::Arc;

/// The settings of a group of parameters, and the update that follows from them: what tells one
/// optimizer from another. [`Groups`](super::Groups) makes an optimizer of it.
///
/// There are two ways to write one. With operations on tensors: [`Rule::statistics`] names what is kept for each
/// parameter, and [`Rule::direction`] makes from the gradient what the parameter is to be updated by, of which
/// [`Rule::lr`] is subtracted so many times. Or as one operation with a kernel of its own, [`Rule::update`], for which
/// [`Rule::moments`] are kept. The first is short, the second fast: it reads and writes everything once.
///
/// ```
/// use highwater::optim::{Direction, Groups, Optimizer, Rule};
/// use highwater::{Shape, prelude::*};
///
/// /// Steps by the sign of an average of gradients.
/// #[derive(Debug, Clone)]
/// struct Signum {
///     lr: f64,
///     momentum: f64,
/// }
///
/// impl Rule for Signum {
///     fn bounds(&self) -> Vec<(&'static str, f64, f64)> {
///         vec![("lr", self.lr, f64::INFINITY), ("momentum", self.momentum, 1.0)]
///     }
///
///     fn statistics(&self, shape: &Shape) -> Vec<(&'static str, Shape)> {
///         vec![("momentum_buffer", shape.clone())]
///     }
///
///     fn direction(&self, of: &Direction<'_>) -> Result<Tensor> {
///         of.lerp("momentum_buffer", of.gradient(), 1.0 - self.momentum)?.sign()
///     }
///
///     fn lr(&self) -> f64 {
///         self.lr
///     }
///
///     fn set_lr(&mut self, lr: f64) {
///         self.lr = lr;
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let w = Parameter::new(&engine, [2], |w| w.copy_from_slice(&[1.0, -1.0]))?;
/// let mut optimizer = Groups::new(vec![w.clone()], Signum { lr: 0.25, momentum: 0.9 })?;
/// w.square()?.sum()?.backward()?;
/// optimizer.step()?;
/// assert_eq!(w.to_vec::<f32>()?, [0.75, -0.75]);
/// # Ok(())
/// # }
/// ```
pub trait Rule: std::fmt::Debug + Send {
    /// Each setting with what it must be below; none may be negative.
    fn bounds(&self) -> Vec<(&'static str, f64, f64)>;

    /// The names of the moments that [`Rule::update`] writes, each of zeros at first, of the parameter's shape. Asked
    /// once, when the optimizer is made.
    fn moments(&self) -> &'static [&'static str] {
        &[]
    }

    /// How parameters in half precision and moments are held. Asked once, like the moments.
    fn formats(&self) -> (Option<Master>, Moments) {
        (None, Moments::F32)
    }

    /// The operation that updates a parameter, after so many earlier updates of it. Its inputs are the parameter, the
    /// cells beside it ([`Formats::cells`]: the moments), all of which it writes, and the direction. It must go
    /// element by element, since a large parameter is updated some rows at a time; blocks of a format start
    /// at the first row. Unless it is written, the learning rate times the direction is subtracted, whatever the
    /// formats.
    fn update(&self, _steps: u64, formats: Formats) -> Arc<dyn Op> {
        plain_update(self.lr(), 0.0, formats)
    }

    /// What is kept beside the moments of a parameter of a shape: names and shapes of tensors of `F32`s, or of
    /// `F64`s for such a parameter, of zeros at first, which [`Rule::direction`] writes. Asked once. A parameter that
    /// has some is updated as a whole.
    fn statistics(&self, _shape: &Shape) -> Vec<(&'static str, Shape)> {
        Vec::new()
    }

    /// What the parameter is updated by: of its shape, made with any operations from its gradient, its statistics
    /// and itself; the gradient unless it is written.
    ///
    /// It is called once for each step of a parameter, while the step is recorded: tensors have no values yet, so that
    /// it must read none. Nothing that it does is differentiated or cast. The engine is not locked meanwhile, so other
    /// threads go on.
    ///
    /// # Errors
    /// What operations refuse. The step is given up then: no parameter has changed, and gradients that had not been
    /// computed are dropped.
    fn direction(&self, of: &Direction<'_>) -> Result<Tensor> {
        Ok(of.gradient().clone())
    }

    /// Whether the direction is always the gradient. [`Rule::direction`] is not called then.
    fn goes_by_gradient(&self) -> bool {
        false
    }

    /// What is wrong with settings that cannot be together, each of them being within its bounds.
    fn conflict(&self) -> Option<&'static str> {
        None
    }

    /// What is wrong with a parameter of this shape, if it cannot be updated so.
    fn refuses(&self, _shape: &Shape) -> Option<&'static str> {
        None
    }

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate.
    fn set_lr(&mut self, lr: f64);

    /// Sets the momentum, or the first of the betas; nothing where there is neither.
    fn set_momentum(&mut self, _momentum: f64) {}
}

/// A weight decay as an L2 penalty on the gradient and as one that is decoupled from it, of which one is 0.
pub(super) fn penalty_and_decay(weight_decay: f64, decoupled: bool) -> (f64, f64) {
    if decoupled {
        (0.0, weight_decay)
    } else {
        (weight_decay, 0.0)
    }
}

/// The update `p <- (1 - lr weight_decay) p - lr direction`.
pub(super) fn plain_update(lr: f64, weight_decay: f64, formats: Formats) -> Arc<dyn Op> {
    Arc::new(Sgd {
        lr,
        momentum: 0.0,
        dampening: 0.0,
        weight_decay,
        nesterov: false,
        maximize: false,
        first: false,
        formats,
    })
}
