//! The fast kernel.
//!
//! A task is rows of some 32,768 elements: filled with zeros, and one element of each row written again while
//! it is in a cache.

use super::OneHot;
use crate::kernels::indices::Indices;
use crate::{Args, Element, KernelError, op_as};
use highwater_graph::Op;

/// Elements of the output that one task fills, about.
const TASK: usize = 1 << 15;

/// An element type that has a one.
pub(super) trait One: Element {
    const ONE: Self;
}

macro_rules! one {
    ($($type:ty: $one:expr),*) => {$(
        impl One for $type {
            const ONE: Self = $one;
        }
    )*};
}
one!(f32: 1.0, f64: 1.0, half::bf16: half::bf16::ONE, half::f16: half::f16::ONE, i64: 1);

pub(super) fn one_hot<T: One>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let classes = op_as::<OneHot>(op)?.classes;
    let indices = Indices::of(&args.inputs[0])?;
    indices.check(classes, None)?;
    let out = args.outputs[0].slice_mut::<T>()?;
    let rows = (TASK / classes.max(1)).max(1);
    args.pool.for_each_chunk(out, rows * classes, |task, out| {
        out.fill(T::zeroed());
        for (row, out) in out.chunks_mut(classes).enumerate() {
            out[indices.get(task * rows + row) as usize] = T::ONE;
        }
    });
    Ok(())
}
