//! The fast kernels: one conversion for each pair of element types.

use crate::float::Convert;
use crate::{Args, DTypes, Element, KernelError, Row, blocks};
use half::{bf16, f16};
use highwater_graph::{DType, Op};
use std::sync::Arc;

macro_rules! rows {
    ($($from:ident: $from_type:ty => $($to:ident: $to_type:ty),*;)*) => {
        &[$($(Row::cpu(DTypes::new(&[DType::$from], &[DType::$to]), || {
            Arc::new(kernel::<$from_type, $to_type>)
        })),*),*]
    };
}

pub(super) const ROWS: &[Row] = rows! {
    F32: f32 => F32: f32, F64: f64, BF16: bf16, F16: f16;
    F64: f64 => F32: f32, F64: f64, BF16: bf16, F16: f16;
    BF16: bf16 => F32: f32, F64: f64, BF16: bf16, F16: f16;
    F16: f16 => F32: f32, F64: f64, BF16: bf16, F16: f16;
    I64: i64 => F32: f32;
    U32: u32 => F32: f32;
};

fn kernel<T: Element + Convert<U>, U: Element>(
    _op: &dyn Op,
    args: &mut Args<'_>,
) -> Result<(), KernelError> {
    let output = &mut args.outputs[0];
    blocks::map(args.pool, [&args.inputs[0]], output, |_, [x], y| {
        T::convert(x, y);
    })
}
