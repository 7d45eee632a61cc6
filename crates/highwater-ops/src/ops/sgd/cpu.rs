//! The fast kernel: one pass, in chunks of a fixed size.
//!
//! All of an update is one loop over parameter, buffer and gradient, as in `adamw/cpu.rs`: without momentum
//! another, which reads no buffer. Settings are factors that are multiplied by, also where they are 0 or 1,
//! so that the loop has no branches. `formats` says how cells are cut, and in which form they lie.

use super::Sgd;
use crate::kernels::cells::is_finite_magnitude;
use crate::kernels::float::Float;
use crate::kernels::formats;
use crate::kernels::simd::multiversion;
use crate::{Args, KernelError, op_as};
use highwater_graph::Op;

/// What the inner loops multiply by.
struct Constants {
    lr: f32,
    /// 1, or -1 where the objective is to grow.
    sign: f32,
    weight_decay: f32,
    /// Shares of the buffer and of the gradient in the next buffer.
    momentum: f32,
    one_minus_dampening: f32,
    /// Shares of the gradient and of the next buffer in the step.
    of_gradient: f32,
    of_buffer: f32,
}

impl Constants {
    fn new(op: &Sgd) -> Self {
        let momentum = op.momentum as f32;
        Self {
            lr: op.lr as f32,
            sign: op.sign() as f32,
            weight_decay: op.weight_decay as f32,
            momentum,
            one_minus_dampening: if op.first {
                1.0
            } else {
                1.0 - op.dampening as f32
            },
            of_gradient: if op.nesterov { 1.0 } else { 0.0 },
            of_buffer: if op.nesterov { momentum } else { 1.0 },
        }
    }
}

multiversion! {
    /// Updates a piece without momentum; answers whether its gradient is finite.
    fn plain(c: &Constants, p: &mut [f32], g: &[f32]) -> bool {
        let mut largest = 0;
        for (p, &g) in p.iter_mut().zip(g) {
            largest = largest.max(g.to_bits() << 1);
            *p -= c.lr * (c.sign * g + c.weight_decay * *p);
        }
        is_finite_magnitude(largest)
    }
}

multiversion! {
    /// Updates a piece with momentum; answers whether its gradient is finite.
    fn with_buffer(c: &Constants, p: &mut [f32], b: &mut [f32], g: &[f32]) -> bool {
        let mut largest = 0;
        for ((p, b), &g) in p.iter_mut().zip(b).zip(g) {
            largest = largest.max(g.to_bits() << 1);
            let g = c.sign * g + c.weight_decay * *p;
            *b = c.momentum * *b + c.one_minus_dampening * g;
            *p -= c.lr * (c.of_gradient * g + c.of_buffer * *b);
        }
        is_finite_magnitude(largest)
    }
}

pub(super) fn kernel<T: Float>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let op: &Sgd = op_as(op)?;
    let c = Constants::new(op);
    if !op.has_buffer() {
        return formats::update_any::<T, 0>(Sgd::NAME, args, &op.formats, [], &|p, [], g| {
            plain(&c, p, g)
        });
    }
    formats::update_any::<T, 1>(Sgd::NAME, args, &op.formats, [true], &|p, [b], g| {
        if op.first {
            // What lies there may be NaN, which times 0 would stay.
            b.fill(0.0);
        }
        with_buffer(&c, p, b, g)
    })
}
