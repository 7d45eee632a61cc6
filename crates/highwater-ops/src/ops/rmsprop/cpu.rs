//! The fast kernels: one pass, in chunks of a fixed size.
//!
//! All of an update is one loop over parameter, moments and gradient, as in `adamw/cpu.rs`: of each of the
//! four kinds its own, so that a moment that is not kept is neither read nor asked for. `formats` says how
//! cells are cut, and in which form they lie.

use super::RmsProp;
use crate::kernels::cells::is_finite_magnitude;
use crate::kernels::float::Float;
use crate::kernels::formats;
use crate::kernels::simd::multiversion;
use crate::{Args, KernelError, op_as};
use highwater_graph::Op;

/// What the inner loops multiply by.
struct Constants {
    lr: f32,
    alpha: f32,
    one_minus_alpha: f32,
    eps: f32,
    sign: f32,
    weight_decay: f32,
    momentum: f32,
}

impl Constants {
    fn new(op: &RmsProp) -> Self {
        Self {
            lr: op.lr as f32,
            alpha: op.alpha as f32,
            one_minus_alpha: (1.0 - op.alpha) as f32,
            eps: op.eps as f32,
            sign: op.sign() as f32,
            weight_decay: op.weight_decay as f32,
            momentum: op.momentum as f32,
        }
    }
}

multiversion! {
    /// Updates a piece; answers whether its gradient is finite.
    fn plain(c: &Constants, p: &mut [f32], v: &mut [f32], g: &[f32]) -> bool {
        let mut largest = 0;
        for ((p, v), &g) in p.iter_mut().zip(v).zip(g) {
            largest = largest.max(g.to_bits() << 1);
            let g = c.sign * g + c.weight_decay * *p;
            *v = c.alpha * *v + c.one_minus_alpha * (g * g);
            *p -= c.lr * (g / (v.sqrt() + c.eps));
        }
        is_finite_magnitude(largest)
    }
}

multiversion! {
    /// The same with momentum.
    fn with_buffer(
        c: &Constants,
        p: &mut [f32],
        v: &mut [f32],
        b: &mut [f32],
        g: &[f32],
    ) -> bool {
        let mut largest = 0;
        for (((p, v), b), &g) in p.iter_mut().zip(v).zip(b).zip(g) {
            largest = largest.max(g.to_bits() << 1);
            let g = c.sign * g + c.weight_decay * *p;
            *v = c.alpha * *v + c.one_minus_alpha * (g * g);
            *b = c.momentum * *b + g / (v.sqrt() + c.eps);
            *p -= c.lr * *b;
        }
        is_finite_magnitude(largest)
    }
}

multiversion! {
    /// The same, centered and without momentum.
    fn centered(
        c: &Constants,
        p: &mut [f32],
        v: &mut [f32],
        a: &mut [f32],
        g: &[f32],
    ) -> bool {
        let mut largest = 0;
        for (((p, v), a), &g) in p.iter_mut().zip(v).zip(a).zip(g) {
            largest = largest.max(g.to_bits() << 1);
            let g = c.sign * g + c.weight_decay * *p;
            *v = c.alpha * *v + c.one_minus_alpha * (g * g);
            *a += c.one_minus_alpha * (g - *a);
            let variance = (*v - *a * *a).max(0.0);
            *p -= c.lr * (g / (variance.sqrt() + c.eps));
        }
        is_finite_magnitude(largest)
    }
}

multiversion! {
    /// The same, centered and with momentum.
    fn centered_with_buffer(
        c: &Constants,
        p: &mut [f32],
        v: &mut [f32],
        b: &mut [f32],
        a: &mut [f32],
        g: &[f32],
    ) -> bool {
        let mut largest = 0;
        for ((((p, v), b), a), &g) in p.iter_mut().zip(v).zip(b).zip(a).zip(g) {
            largest = largest.max(g.to_bits() << 1);
            let g = c.sign * g + c.weight_decay * *p;
            *v = c.alpha * *v + c.one_minus_alpha * (g * g);
            *a += c.one_minus_alpha * (g - *a);
            let variance = (*v - *a * *a).max(0.0);
            *b = c.momentum * *b + g / (variance.sqrt() + c.eps);
            *p -= c.lr * *b;
        }
        is_finite_magnitude(largest)
    }
}

pub(super) fn kernel<T: Float>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let op: &RmsProp = op_as(op)?;
    let (name, c, formats) = (RmsProp::NAME, Constants::new(op), &op.formats);
    match (op.momentum != 0.0, op.centered) {
        (false, false) => {
            formats::update_any::<T, 1>(name, args, formats, [false], &|p, [v], g| {
                plain(&c, p, v, g)
            })
        }
        (true, false) => {
            formats::update_any::<T, 2>(name, args, formats, [false, true], &|p, [v, b], g| {
                with_buffer(&c, p, v, b, g)
            })
        }
        (false, true) => {
            formats::update_any::<T, 2>(name, args, formats, [false, true], &|p, [v, a], g| {
                centered(&c, p, v, a, g)
            })
        }
        (true, true) => {
            let signed = [false, true, true];
            formats::update_any::<T, 3>(name, args, formats, signed, &|p, [v, b, a], g| {
                centered_with_buffer(&c, p, v, b, a, g)
            })
        }
    }
}
