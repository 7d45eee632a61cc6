//! The fast kernels: one conversion for each pair of element types.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::simd::multiversion;
use crate::{Args, DTypes, Element, KernelError, Row, blocks};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use highwater_graph::{DType, Op};
use std::sync::Arc;

/// Conversion of slices of one length.
pub(super) trait Convert<To>: Sized {
    /// Converts every element.
    fn convert(from: &[Self], to: &mut [To]);
}

macro_rules! convert {
    ($($from:ty => $to:ty: |$x:ident| $value:expr;)*) => {$(
        impl Convert<$to> for $from {
            fn convert(from: &[Self], to: &mut [$to]) {
                multiversion! {
                    fn all[I](from: &[$from], to: &mut [$to]) {
                        for (to, &$x) in to.iter_mut().zip(from) {
                            *to = $value;
                        }
                    }
                }
                all(from, to);
            }
        }
    )*};
}

convert! {
    f32 => f32: |x| x;
    f32 => f64: |x| f64::from(x);
    f32 => bf16: |x| round_to_bf16(x);
    f64 => f64: |x| x;
    f64 => f32: |x| x as f32;
    f64 => bf16: |x| round_to_bf16(round_to_odd(x));
    f64 => f16: |x| f16::from_f32(round_to_odd(x));
    bf16 => bf16: |x| x;
    bf16 => f32: |x| widen(x);
    bf16 => f64: |x| f64::from(widen(x));
    bf16 => f16: |x| f16::from_f32(widen(x));
    f16 => f16: |x| x;
    f16 => f64: |x| x.to_f64();
    f16 => bf16: |x| round_to_bf16(x.to_f32());
    i64 => f32: |x| x as f32;
    u32 => f32: |x| x as f32;
}

impl Convert<f16> for f32 {
    fn convert(from: &[Self], to: &mut [f16]) {
        to.convert_from_f32_slice(from);
    }
}

impl Convert<f32> for f16 {
    fn convert(from: &[Self], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }
}

/// [`bf16::from_f32`] without branches.
#[inline(always)]
fn round_to_bf16(x: f32) -> bf16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    // A NaN must not be rounded to infinity.
    let nan = (bits >> 16) | 0x40;
    bf16::from_bits(if x.is_nan() { nan } else { rounded } as u16)
}

/// A number that rounds, to anything narrower than `f32`, as `x` itself does: of the two neighbours of
/// `x`, the one whose last bit is set.
#[inline(always)]
fn round_to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let bits = nearest.to_bits();
    let wide = f64::from(nearest);
    let towards_zero = if wide.abs() > x.abs() { bits - 1 } else { bits };
    let exact = wide.to_bits() == x.to_bits();
    f32::from_bits(if exact { bits } else { towards_zero | 1 })
}

#[inline(always)]
fn widen(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

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
