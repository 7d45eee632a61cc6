//! The fast kernel: results one by one where their elements are neighbours, else side by side. A result that
//! is decided looks no further.
//!
//! A single result is cut into tasks of 32,768 elements, of which the first that decides it lets the others
//! pass; else a task has as many results as come to that, or 1,024 side by side. Nothing is summed: what is
//! shared is one truth, which no order changes.

use super::Any;
use crate::kernels::blocks::{BLOCK, Reader};
use crate::kernels::reduction::{Plan, TASK};
use crate::{Args, Element, KernelError, op_as};
use highwater_graph::Op;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) fn any<T: Truth>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let op: &Any = op_as(op)?;
    let input = &args.inputs[0];
    let (mask, _) =
        (op.plan(input.spec().shape())).map_err(|_| KernelError::WrongOp { op: op.name() })?;
    let plan = Plan::new(input.layout(), &mask);
    let reader = Reader::<T>::through(input, &plan.layout)?;
    let out = args.outputs[0].slice_mut::<u8>()?;
    if out.len() == 1 {
        let decided = AtomicBool::new(false);
        args.pool.for_each(plan.count.div_ceil(TASK), |task| {
            let range = task * TASK..plan.count.min((task + 1) * TASK);
            if !decided.load(Ordering::Relaxed) && is_among(&reader, range, !op.every) {
                decided.store(true, Ordering::Relaxed);
            }
        });
        out[0] = u8::from(decided.into_inner() != op.every);
        return Ok(());
    }
    let width = if plan.columns {
        BLOCK
    } else {
        (TASK / plan.count.clamp(1, TASK)).max(1)
    };
    args.pool.for_each_chunk(out, width, |task, out| {
        let start = task * width;
        if !plan.columns {
            for (i, y) in out.iter_mut().enumerate() {
                let first = (start + i) * plan.count;
                let decided = is_among(&reader, first..first + plan.count, !op.every);
                *y = u8::from(decided != op.every);
            }
            return;
        }
        out.fill(0);
        let mut buffer = [T::zeroed(); BLOCK];
        for at in 0..plan.count {
            let x = &mut buffer[..out.len()];
            reader.copy(at * plan.sums + start, x);
            for (decided, &mut x) in out.iter_mut().zip(x) {
                *decided |= u8::from(x.is_true() != op.every);
            }
        }
        for y in out {
            *y ^= u8::from(op.every);
        }
    });
    Ok(())
}

/// Whether an element is that.
fn is_among<T: Truth>(reader: &Reader<'_, T>, range: std::ops::Range<usize>, wanted: bool) -> bool {
    let mut buffer = [T::zeroed(); BLOCK];
    range.clone().step_by(BLOCK).any(|start| {
        let x = &mut buffer[..BLOCK.min(range.end - start)];
        reader.copy(start, x);
        x.iter().any(|x| x.is_true() == wanted)
    })
}

/// An element that is true or not.
pub(super) trait Truth: Element {
    /// Whether it is other than 0.
    fn is_true(self) -> bool;
}

macro_rules! truth {
    ($($type:ty: |$x:ident| $is_true:expr;)*) => {$(
        impl Truth for $type {
            #[inline]
            fn is_true(self) -> bool {
                let $x = self;
                $is_true
            }
        }
    )*};
}
truth! {
    f32: |x| x != 0.0;
    f64: |x| x != 0.0;
    half::bf16: |x| x != Self::ZERO;
    half::f16: |x| x != Self::ZERO;
    i64: |x| x != 0;
    i16: |x| x != 0;
    u32: |x| x != 0;
    u8: |x| x != 0;
}
