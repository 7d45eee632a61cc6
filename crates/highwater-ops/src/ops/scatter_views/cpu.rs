//! The fast kernel: tasks own parts of the output, and walk only those elements of each view that
//! fall into their part, which stays in the cache from zeroing to the last view.
//!
//! A part is 8,192 elements, 32 KiB of `f32`; of narrower types 2,048, which are summed in `f32` on the stack
//! and rounded once. What of a view falls into a part is found by bounds on its indices, dimension by
//! dimension, so that each gradient is read once in all; runs that lie side by side on both sides are added
//! by vectors. An element gets its gradients in the order of the views, without atomics and whatever the
//! threads.

use super::ScatterViews;
use crate::kernels::float::{Float, PIECE, as_f32, as_f32_mut, is_f32};
use crate::kernels::simd::add_to;
use crate::{Args, KernelError, View, op_as};
use highwater_graph::{Layout, Op, RANK_MAX};
use smallvec::SmallVec;
use std::ops::Range;

/// Elements of the output that one task fills.
const CHUNK: usize = 1 << 13;

/// The same where sums are staged on the stack.
const STAGED: usize = 1 << 11;

/// One dimension of a view, in the output and in the gradient.
#[derive(Clone, Copy)]
struct Dim {
    extent: usize,
    out: usize,
    gradient: usize,
}

type Dims = SmallVec<[Dim; RANK_MAX]>;

/// The dimensions to walk, outermost first. Where different indices reach different elements, any
/// order gives the same sums, and that of the output's memory is fastest.
fn dims(out: &Layout, gradient: &Layout) -> Dims {
    let strides = out.strides().iter().zip(gradient.strides());
    let mut all: Dims = out
        .shape()
        .iter()
        .zip(strides)
        .filter(|&(&extent, _)| extent != 1)
        .map(|(&extent, (&out, &gradient))| Dim {
            extent,
            out,
            gradient,
        })
        .collect();
    if out.is_injective() {
        all.sort_by_key(|dim| std::cmp::Reverse(dim.out));
    }
    let mut merged = Dims::new();
    for dim in all {
        match merged.last_mut() {
            Some(outer)
                if outer.out == dim.out * dim.extent
                    && outer.gradient == dim.gradient * dim.extent =>
            {
                outer.extent *= dim.extent;
                (outer.out, outer.gradient) = (dim.out, dim.gradient);
            }
            _ => merged.push(dim),
        }
    }
    merged
}

/// One task's part of the output, which starts at `start` of the whole.
struct Part<'a, T> {
    out: &'a mut [f32],
    start: usize,
    gradient: &'a [T],
}

impl<T: Float> Part<'_, T> {
    /// The indices of a dimension that reach into the part: from `position`, with the dimensions
    /// inside it reaching `reach` elements further.
    fn inside(&self, dim: Dim, position: usize, reach: usize) -> Range<usize> {
        let end = self.start + self.out.len();
        if dim.out == 0 {
            let misses = position >= end || position + reach < self.start;
            return 0..if misses { 0 } else { dim.extent };
        }
        let first = self
            .start
            .saturating_sub(position + reach)
            .div_ceil(dim.out);
        let last = end.saturating_sub(position).div_ceil(dim.out);
        first..last.min(dim.extent)
    }

    fn walk(&mut self, dims: &[Dim], position: usize, from: usize) {
        let Some((&dim, rest)) = dims.split_first() else {
            if let Some(to) = position
                .checked_sub(self.start)
                .and_then(|at| self.out.get_mut(at))
            {
                *to += self.gradient[from].wide();
            }
            return;
        };
        let reach = rest.iter().map(|dim| (dim.extent - 1) * dim.out).sum();
        let inside = self.inside(dim, position, reach);
        if inside.is_empty() {
            return;
        }
        if rest.is_empty() {
            self.run(dim, inside, position, from);
        } else {
            for i in inside {
                self.walk(rest, position + i * dim.out, from + i * dim.gradient);
            }
        }
    }

    /// Adds an innermost run, all of which is inside.
    fn run(&mut self, dim: Dim, inside: Range<usize>, position: usize, from: usize) {
        let at = position + inside.start * dim.out - self.start;
        let from = from + inside.start * dim.gradient;
        let len = inside.len();
        if dim.out == 1 && dim.gradient == 1 {
            let (out, gradient) = (
                &mut self.out[at..at + len],
                &self.gradient[from..from + len],
            );
            if let Some(gradient) = as_f32(gradient) {
                return add_to(out, gradient);
            }
            let mut buffer = [0.0; PIECE];
            for (out, gradient) in out.chunks_mut(PIECE).zip(gradient.chunks(PIECE)) {
                let buffer = &mut buffer[..out.len()];
                T::widen(gradient, buffer);
                add_to(out, buffer);
            }
        } else {
            for k in 0..len {
                self.out[at + k * dim.out] += self.gradient[from + k * dim.gradient].wide();
            }
        }
    }
}

pub(super) fn kernel<T: Float>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let op: &ScatterViews = op_as(op)?;
    let inputs = &*args.inputs;
    for input in inputs {
        input.storage::<T>()?;
    }
    let out = args.outputs[0].slice_mut::<T>()?;
    let len = if is_f32::<T>() { CHUNK } else { STAGED };
    args.pool.for_each_chunk(out, len, |task, out| {
        if let Some(out) = as_f32_mut(out) {
            return scatter::<T>(op, inputs, task * len, out);
        }
        let mut sums = [0.0; STAGED];
        let sums = &mut sums[..out.len()];
        scatter::<T>(op, inputs, task * len, sums);
        T::round(sums, out);
    });
    Ok(())
}

/// Fills a part of the output, which starts at `start`.
fn scatter<T: Float>(op: &ScatterViews, inputs: &[View<'_>], start: usize, out: &mut [f32]) {
    out.fill(0.0);
    for (layout, input) in op.layouts.iter().zip(inputs) {
        let Ok(gradient) = input.storage::<T>() else {
            continue;
        };
        if layout.numel() != 0 {
            let dims = dims(layout, input.layout());
            let mut part = Part {
                out: &mut *out,
                start,
                gradient,
            };
            part.walk(&dims, layout.offset(), input.layout().offset());
        }
    }
}
