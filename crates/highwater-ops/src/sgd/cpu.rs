//! The fast kernel: one pass, in chunks of a fixed size.

#![expect(
    unsafe_code,
    reason = "tasks update their own chunks of two cells; code for several processors"
)]

use super::Sgd;
use crate::cell::CHUNK;
use crate::finite::is_finite_magnitude;
use crate::float::{Float, update};
use crate::simd::multiversion;
use crate::strided::for_each_piece;
use crate::{Args, Disjoint, KernelError, formats, op_as};
use highwater_graph::Op;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the inner loops multiply by.
struct Constants {
    lr: f32,
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
            *p -= c.lr * (g + c.weight_decay * *p);
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
            let g = g + c.weight_decay * *p;
            *b = c.momentum * *b + c.one_minus_dampening * g;
            *p -= c.lr * (c.of_gradient * g + c.of_buffer * *b);
        }
        is_finite_magnitude(largest)
    }
}

pub(super) fn kernel<T: Float>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let op: &Sgd = op_as(op)?;
    let constants = Constants::new(op);
    if !op.formats.is_plain() {
        return in_formats(op, &constants, args);
    }
    let (p, buffer, g) = match args.inputs {
        [p, g] => (p, None, g),
        [p, b, g] => (p, Some(b), g),
        _ => return Err(KernelError::WrongOp { op: op.name() }),
    };
    let (gradient, layout) = (g.storage::<T>()?, g.layout());
    let len = p.numel();
    let p = Disjoint::new(p.slice_mut::<T>()?);
    let buffer = match buffer {
        Some(buffer) => Some(Disjoint::new(buffer.slice_mut::<T>()?)),
        None => None,
    };
    let finite = AtomicBool::new(true);
    args.pool.for_each(len.div_ceil(CHUNK), |task| {
        let start = task * CHUNK;
        let chunk = CHUNK.min(len - start);
        for_each_piece(gradient, layout, start, chunk, |at, g| {
            let (at, len) = (start + at, g.len());
            // SAFETY: chunks of different tasks, and pieces of a chunk, do not overlap.
            let (p, buffer) = unsafe {
                (
                    p.part(at, len),
                    buffer.as_ref().map(|buffer| buffer.part(at, len)),
                )
            };
            let note = |fine: bool| {
                if !fine {
                    finite.store(false, Ordering::Relaxed);
                }
            };
            match buffer {
                None => update([p], |at, [p]| {
                    note(plain(&constants, p, &g[at..at + p.len()]));
                }),
                Some(b) => update([p, b], |at, [p, b]| {
                    if op.first {
                        // What lies there may be NaN, which times 0 would stay.
                        b.fill(0.0);
                    }
                    note(with_buffer(&constants, p, b, &g[at..at + p.len()]));
                }),
            }
        });
    });
    if finite.into_inner() {
        Ok(())
    } else {
        Err(KernelError::NonFinite { what: "gradient" })
    }
}

fn in_formats(op: &Sgd, constants: &Constants, args: &mut Args<'_>) -> Result<(), KernelError> {
    if !op.has_buffer() {
        return formats::update::<0>(Sgd::NAME, args, &op.formats, [], |p, [], g| {
            plain(constants, p, g)
        });
    }
    formats::update::<1>(Sgd::NAME, args, &op.formats, [true], |p, [b], g| {
        if op.first {
            b.fill(0.0);
        }
        with_buffer(constants, p, b, g)
    })
}
