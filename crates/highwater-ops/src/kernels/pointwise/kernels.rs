//! The kernels of pointwise operations, by their number of inputs and by what these are made of.
//!
//! Of floats each is one loop over slices of `f32`, compiled for every instruction set with the operation's
//! `value` inlined in it. That is arithmetic and selections without branches, so that the compiler makes
//! vectors of it (but of `norm_slope`, which calls a function for its powers); constants and all that lies
//! between inputs and output stay in registers. How elements are cut into tasks and pieces, `blocks.rs` says;
//! an element depends on nothing but its inputs. Functions of few operations wait for memory (`relu` and
//! `add` at 91 and 95% of the pace of a copy); what those of many cost is in BENCHMARKS.md, *Half precision*.

#![expect(
    clippy::inline_always,
    reason = "where elements are `f32` no stage is to be made"
)]

use super::Pointwise;
use crate::kernels::blocks::{Stage, on_floats};
use crate::kernels::elements::{Elements, Map};
use crate::kernels::float::Float;
use crate::kernels::rows::rows_of_floats;
use crate::kernels::simd::multiversion;
use crate::table::joined;
use crate::{DTypes, Row};
use highwater_graph::DType;
use std::marker::PhantomData;
use std::sync::Arc;

/// Of one input.
pub(super) struct Unary<F, T>(PhantomData<fn() -> (F, T)>);

impl<F: Pointwise<1>> Unary<F, f32> {
    pub(super) const ROWS: &'static [Row] = rows_of_floats! {
        T: [T] -> [T]; Map::<Unary<F, T>, 1>::NEW; Map::<Exact<F>, 1>::NEW
    };
}

impl<F: Pointwise<1>, T: Float> Elements<1> for Unary<F, T> {
    type Op = F;
    type From = T;
    type To = T;

    #[inline(always)]
    fn fill(f: &F, x: [&[T]; 1], y: &mut [T], stage: Stage<'_, 1>) {
        on_floats(x, y, stage, |_, [x], y| unary(f, x, y));
    }
}

/// Of two inputs.
pub(super) struct Binary<F, T>(PhantomData<fn() -> (F, T)>);

impl<F: Pointwise<2>> Binary<F, f32> {
    pub(super) const ROWS: &'static [Row] = rows_of_floats! {
        T: [T] -> [T]; Map::<Binary<F, T>, 2>::NEW; Map::<Exact<F>, 2>::NEW
    };
}

impl<F: Pointwise<2>, T: Float> Elements<2> for Binary<F, T> {
    type Op = F;
    type From = T;
    type To = T;

    #[inline(always)]
    fn fill(f: &F, x: [&[T]; 2], y: &mut [T], stage: Stage<'_, 2>) {
        on_floats(x, y, stage, |_, [a, b], y| binary(f, a, b, y));
    }
}

/// Of three inputs.
pub(super) struct Ternary<F, T>(PhantomData<fn() -> (F, T)>);

impl<F: Pointwise<3>> Ternary<F, f32> {
    pub(super) const ROWS: &'static [Row] = rows_of_floats! {
        T: [T] -> [T]; Map::<Ternary<F, T>, 3>::NEW; Map::<Exact<F>, 3>::NEW
    };
}

impl<F: Pointwise<3>, T: Float> Elements<3> for Ternary<F, T> {
    type Op = F;
    type From = T;
    type To = T;

    #[inline(always)]
    fn fill(f: &F, x: [&[T]; 3], y: &mut [T], stage: Stage<'_, 3>) {
        on_floats(x, y, stage, |_, [a, b, c], y| ternary(f, a, b, c, y));
    }
}

/// Of two inputs of `I64`.
pub(super) struct Whole<F>(PhantomData<fn() -> F>);

impl<F: Pointwise<2>> Whole<F> {
    const ROW: Row = Row::cpu(DTypes::new(&[DType::I64], &[DType::I64]), || {
        Arc::new(Map::<Self, 2>::NEW)
    });
    pub(super) const ROWS: [Row; 5] = joined(&[Binary::<F, f32>::ROWS, &[Self::ROW]]);
}

impl<F: Pointwise<2>> Elements<2> for Whole<F> {
    type Op = F;
    type From = i64;
    type To = i64;

    fn fill(f: &F, [a, b]: [&[i64]; 2], y: &mut [i64], _stage: Stage<'_, 2>) {
        for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
            *y = f.whole([a, b]);
        }
    }
}

/// Of `F64`: the plain reference's element.
pub(super) struct Exact<F>(PhantomData<fn() -> F>);

impl<F: Pointwise<N>, const N: usize> Elements<N> for Exact<F> {
    type Op = F;
    type From = f64;
    type To = f64;

    fn fill(f: &F, x: [&[f64]; N], y: &mut [f64], _stage: Stage<'_, N>) {
        for (i, y) in y.iter_mut().enumerate() {
            *y = f.exact(std::array::from_fn(|k| x[k][i]));
        }
    }
}

multiversion! {
    fn unary[I, F: Pointwise<1>](f: &F, x: &[f32], y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = f.value::<I>([x]);
        }
    }
}

multiversion! {
    fn binary[I, F: Pointwise<2>](f: &F, a: &[f32], b: &[f32], y: &mut [f32]) {
        for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
            *y = f.value::<I>([a, b]);
        }
    }
}

multiversion! {
    fn ternary[I, F: Pointwise<3>](f: &F, a: &[f32], b: &[f32], c: &[f32], y: &mut [f32]) {
        for (((y, &a), &b), &c) in y.iter_mut().zip(a).zip(b).zip(c) {
            *y = f.value::<I>([a, b, c]);
        }
    }
}
