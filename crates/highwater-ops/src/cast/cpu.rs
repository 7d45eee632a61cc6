//! The fast kernels: one conversion for each pair of element types, and one to truth from each.
//!
//! Conversions are integer arithmetic or the processor's own, on blocks of 1,024 elements, and keep to
//! the pace of a copy.

use crate::float::Convert;
use crate::simd::multiversion;
use crate::table::joined;
use crate::{Args, DTypes, Element, KernelError, Row, blocks};
use half::{bf16, f16};
use highwater_graph::{DType, Op};
use std::sync::Arc;

/// Rows from one type to each of a list, and to truth.
macro_rules! rows {
    ($from:ident: $from_type:ty => [$($to:ident: $to_type:ty),*]) => {
        &[
            $(Row::cpu(DTypes::new(&[DType::$from], &[DType::$to]), || {
                Arc::new(kernel::<$from_type, $to_type>)
            }),)*
            Row::cpu(DTypes::new(&[DType::$from], &[DType::Bool]), || {
                Arc::new(truths::<$from_type>)
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

fn kernel<T: Element + Convert<U>, U: Element>(
    _op: &dyn Op,
    args: &mut Args<'_>,
) -> Result<(), KernelError> {
    let output = &mut args.outputs[0];
    blocks::map(args.pool, [&args.inputs[0]], output, |_, [x], y| {
        T::convert(x, y);
    })
}

/// True is what is not zero, NaN as well.
fn truths<T: Comparable>(_op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let output = &mut args.outputs[0];
    blocks::map(args.pool, [&args.inputs[0]], output, |_, [x], y| {
        are_true::<T>(x, y);
    })
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
