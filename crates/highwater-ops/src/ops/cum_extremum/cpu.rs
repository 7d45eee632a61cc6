//! The kernel: neighbouring lines side by side, 1,024 at most, or single lines where nothing is behind the dimension.
//!
//! An element is compared with the one that was taken before it; both are copied, so that nothing is rounded.

#![expect(unsafe_code, reason = "tasks write disjoint lines of two outputs")]

use super::CumExtremum;
use crate::kernels::blocks::{BLOCK, Reader};
use crate::kernels::lines::Lines;
use crate::{Args, Disjoint, Element, KernelError, op_as};
use half::{bf16, f16};
use highwater_graph::Op;

/// Elements that one task compares at least.
const TASK: usize = 1 << 14;

/// Elements that can be compared.
pub(super) trait Compared: Element {
    /// Whether it is at least as large as another, or NaN.
    fn is_above(self, other: Self) -> bool;
    /// Whether it is at most as large as another, or NaN.
    fn is_below(self, other: Self) -> bool;
}

macro_rules! compared {
    ($($type:ty: |$x:ident| $value:expr;)*) => {$(
        impl Compared for $type {
            fn is_above(self, other: Self) -> bool {
                let [a, b] = [self, other].map(|$x| $value);
                // Nothing is at least as large as NaN.
                a >= b || is_nan(a)
            }

            fn is_below(self, other: Self) -> bool {
                let [a, b] = [self, other].map(|$x| $value);
                a <= b || is_nan(a)
            }
        }
    )*};
}

compared! {
    f32: |x| x;
    bf16: |x| x.to_f32();
    f16: |x| x.to_f32();
    i64: |x| x;
    u8: |x| x;
}

/// What is not equal to itself.
#[expect(clippy::eq_op, reason = "NaN is not")]
fn is_nan<T: PartialEq + Copy>(x: T) -> bool {
    x != x
}

pub(super) fn run<T: Compared>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let CumExtremum { largest, dim } = *op_as(op)?;
    let reader = Reader::<T>::new(&args.inputs[0])?;
    let lines = Lines::new(args.inputs[0].spec().shape(), dim);
    let Lines {
        outer,
        extent,
        inner,
    } = lines;
    let [values, places] = &mut *args.outputs else {
        return Ok(());
    };
    if values.numel() == 0 {
        return Ok(());
    }
    let values = Disjoint::new(values.slice_mut::<T>()?);
    let places = Disjoint::new(places.slice_mut::<i64>()?);
    let takes = if largest { T::is_above } else { T::is_below };
    let width = inner.min(BLOCK);
    let across = inner.div_ceil(width);
    let (tiles, each) = (outer * across, TASK.div_ceil(extent * width));
    args.pool.for_each(tiles.div_ceil(each), |task| {
        for tile in task * each..tiles.min((task + 1) * each) {
            let (row, column) = (tile / across, tile % across * width);
            let start = row * extent * inner + column;
            // SAFETY: every element of every line is visited once, and none twice at a time.
            let parts =
                |at: usize, len: usize| unsafe { (values.part(at, len), places.part(at, len)) };
            if inner == 1 {
                run_line(&reader, start, extent, takes, parts);
            } else {
                run_columns(
                    &reader,
                    start,
                    [extent, inner, width.min(inner - column)],
                    takes,
                    parts,
                );
            }
        }
    });
    Ok(())
}

/// A line whose elements are neighbours.
fn run_line<'a, T: Compared>(
    reader: &Reader<'_, T>,
    start: usize,
    extent: usize,
    takes: fn(T, T) -> bool,
    parts: impl Fn(usize, usize) -> (&'a mut [T], &'a mut [i64]),
) {
    let mut buffer = [T::zeroed(); BLOCK];
    let mut best = None;
    for first in (0..extent).step_by(BLOCK) {
        let len = BLOCK.min(extent - first);
        let x = reader.piece(start + first, &mut buffer[..len]);
        let (values, places) = parts(start + first, len);
        for (i, &x) in x.iter().enumerate() {
            let taken = match best {
                Some((best, place)) if !takes(x, best) => (best, place),
                _ => (x, (first + i) as i64),
            };
            (values[i], places[i]) = taken;
            best = Some(taken);
        }
    }
}

/// So many neighbouring lines, `inner` of which are side by side.
fn run_columns<'a, T: Compared>(
    reader: &Reader<'_, T>,
    start: usize,
    [extent, inner, width]: [usize; 3],
    takes: fn(T, T) -> bool,
    parts: impl Fn(usize, usize) -> (&'a mut [T], &'a mut [i64]),
) {
    let mut buffer = [T::zeroed(); BLOCK];
    let (mut best, mut taken) = ([T::zeroed(); BLOCK], [0; BLOCK]);
    let (best, taken) = (&mut best[..width], &mut taken[..width]);
    for k in 0..extent {
        let at = start + k * inner;
        let x = reader.piece(at, &mut buffer[..width]);
        for ((best, taken), &x) in best.iter_mut().zip(&mut *taken).zip(x) {
            if k == 0 || takes(x, *best) {
                (*best, *taken) = (x, k as i64);
            }
        }
        let (values, places) = parts(at, width);
        values.copy_from_slice(best);
        places.copy_from_slice(taken);
    }
}
