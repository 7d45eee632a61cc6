//! The fast kernels: one conversion for each pair of element types, and one to truth from each.
//!
//! Conversions are integer arithmetic or the processor's own, one loop over slices each, compiled for every
//! instruction set. `blocks.rs` cuts: tensors that lie alike are converted where they lie, 32,768 elements to
//! a task, so that nothing is staged as `f32` between two narrow types. `f32` to `bf16` keeps to the pace of a copy
//! (BENCHMARKS.md).

use super::Cast;
use crate::kernels::blocks::Stage;
use crate::kernels::elements::{Elements, Map};
use crate::kernels::float::Convert;
use crate::kernels::simd::multiversion;
use crate::table::joined;
use crate::{DTypes, Element, Row};
use half::{bf16, f16};
use highwater_graph::DType;
use std::marker::PhantomData;
use std::sync::Arc;

/// Rows from one type to each of a list, and to truth.
macro_rules! rows {
    ($from:ident: $from_type:ty => [$($to:ident: $to_type:ty),*]) => {
        &[
            $(Row::cpu(DTypes::new(&[DType::$from], &[DType::$to]), || {
                Arc::new(Map::<Numbers<$from_type, $to_type>, 1>::NEW)
            }),)*
            Row::cpu(DTypes::new(&[DType::$from], &[DType::Bool]), || {
                Arc::new(Map::<Truths<$from_type>, 1>::NEW)
            }),
        ]
    };
}

/// Rows from each type to each.
macro_rules! table {
    ($($from:ident: $from_type:ty),*; $to:tt) => {
        &[$(rows!($from: $from_type => $to)),*]
    };
}

const TYPES: &[&[Row]] = table! {
    F32: f32, F64: f64, BF16: bf16, F16: f16, I64: i64, U32: u32, U8: u8, Bool: u8;
    [F32: f32, F64: f64, BF16: bf16, F16: f16, I64: i64, U32: u32, U8: u8]
};

pub(super) const ROWS: &[Row] = &joined::<_, 64>(TYPES);

struct Numbers<T, U>(PhantomData<fn() -> (T, U)>);

impl<T: Element + Convert<U>, U: Element> Elements<1> for Numbers<T, U> {
    type Op = Cast;
    type From = T;
    type To = U;

    fn fill(_op: &Cast, [x]: [&[T]; 1], y: &mut [U], _stage: Stage<'_, 1>) {
        T::convert(x, y);
    }
}

/// True is what is not zero, NaN as well.
struct Truths<T>(PhantomData<fn() -> T>);

impl<T: Comparable> Elements<1> for Truths<T> {
    type Op = Cast;
    type From = T;
    type To = u8;

    fn fill(_op: &Cast, [x]: [&[T]; 1], y: &mut [u8], _stage: Stage<'_, 1>) {
        are_true::<T>(x, y);
    }
}

multiversion! {
    fn are_true[I, T: Comparable](x: &[T], y: &mut [u8]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = (x != T::zeroed()).into();
        }
    }
}

/// Elements that can be told from zero.
trait Comparable: Element + PartialEq {}

impl<T: Element + PartialEq> Comparable for T {}
