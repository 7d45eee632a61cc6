//! The element types of numbers: how kernels that compute in `f32` read and write all of them.
//!
//! A kernel is written once, on slices of `f32`. What it loads of another type is widened on the way,
//! piece by piece, and what it stores is rounded, to nearest even; nothing is rounded in between.
//! Elements that are `f32` are worked on where they lie. `rows.rs` makes the rows of the table for all of these
//! types.
//!
//! A conversion is one loop over slices, compiled for every instruction set: to `bf16` it is arithmetic on
//! bits, without branches; `f16` to and from `f32` is that of the crate `half`.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::simd::multiversion;
use crate::{Element, KernelError, View};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use highwater_graph::{DType, Spec};

/// Elements that are staged on the stack at once.
pub(crate) const PIECE: usize = 512;

/// Conversion of slices of one length.
pub(crate) trait Convert<To>: Sized {
    /// Converts every element.
    fn convert(from: &[Self], to: &mut [To]);
}

macro_rules! convert {
    ($($from:ty => $to:ty: |$x:ident| $value:expr;)*) => {$(
        impl Convert<$to> for $from {
            #[allow(clippy::cast_lossless, reason = "as others do that are not")]
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
}

/// Whole numbers become floats by way of `f32`, but for `f64`; floats lose what stands behind the point, and
/// what a whole type cannot hold wraps around.
macro_rules! convert_whole {
    ($($whole:ty: [$($other:ty),*];)*) => {
        convert! {
            $(
                $whole => f32: |x| x as f32;
                $whole => f64: |x| x as f64;
                $whole => bf16: |x| round_to_bf16(x as f32);
                $whole => f16: |x| f16::from_f32(x as f32);
                f32 => $whole: |x| x as i64 as $whole;
                f64 => $whole: |x| x as i64 as $whole;
                bf16 => $whole: |x| widen(x) as i64 as $whole;
                f16 => $whole: |x| x.to_f32() as i64 as $whole;
                $($whole => $other: |x| x as $other;)*
            )*
        }
    };
}

convert_whole! {
    i64: [i64, u32, u8];
    u32: [i64, u32, u8];
    u8: [i64, u32, u8];
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

/// An element type that kernels widen to `f32` as they load and round from `f32` as they store.
pub(crate) trait Float: Element {
    /// The number as `f32`, exactly.
    fn wide(self) -> f32;
    /// The nearest number of this type, of two the even one.
    fn nearest(x: f32) -> Self;
    /// Widens every element; both are of one length.
    fn widen(from: &[Self], to: &mut [f32]);
    /// Rounds every element; both are of one length.
    fn round(from: &[f32], to: &mut [Self]);
}

macro_rules! float {
    ($($type:ty: |$x:ident| $wide:expr, |$y:ident| $nearest:expr;)*) => {$(
        impl Float for $type {
            #[inline(always)]
            fn wide(self) -> f32 {
                let $x = self;
                $wide
            }
            #[inline(always)]
            fn nearest($y: f32) -> Self {
                $nearest
            }
            fn widen(from: &[Self], to: &mut [f32]) {
                match as_f32(from) {
                    Some(from) => to.copy_from_slice(from),
                    None => Self::convert(from, to),
                }
            }
            fn round(from: &[f32], to: &mut [Self]) {
                match as_f32_mut(to) {
                    Some(to) => to.copy_from_slice(from),
                    None => f32::convert(from, to),
                }
            }
        }
    )*};
}

float! {
    f32: |x| x, |y| y;
    bf16: |x| widen(x), |y| round_to_bf16(y);
    f16: |x| x.to_f32(), |y| f16::from_f32(y);
}

/// Whether elements are `f32` as they lie in memory, and need no staging.
pub(crate) fn is_f32<T: Float>() -> bool {
    T::is(DType::F32)
}

/// The elements themselves, if they are `f32`.
pub(crate) fn as_f32<T: Float>(x: &[T]) -> Option<&[f32]> {
    is_f32::<T>().then(|| bytemuck::cast_slice(x))
}

/// The elements themselves, if they are `f32`.
pub(crate) fn as_f32_mut<T: Float>(x: &mut [T]) -> Option<&mut [f32]> {
    is_f32::<T>().then(|| bytemuck::cast_slice_mut(x))
}

/// Lets `f` work on slices of one length as `f32`, where they lie if they are that; else a piece at a
/// time is widened, and rounded after. `f` is told the position of the piece.
pub(crate) fn update<T: Float, const N: usize>(
    mut data: [&mut [T]; N],
    f: &mut dyn FnMut(usize, [&mut [f32]; N]),
) {
    if is_f32::<T>() {
        return f(0, data.map(|data| as_f32_mut(data).unwrap_or_default()));
    }
    let len = data.first().map_or(0, |data| data.len());
    let mut pieces = [[0.0; PIECE]; N];
    for start in (0..len).step_by(PIECE) {
        let part = start..len.min(start + PIECE);
        for (data, piece) in data.iter().zip(&mut pieces) {
            T::widen(&data[part.clone()], &mut piece[..part.len()]);
        }
        f(
            start,
            pieces.each_mut().map(|piece| &mut piece[..part.len()]),
        );
        for (data, piece) in data.iter_mut().zip(&pieces) {
            T::round(&piece[..part.len()], &mut data[part.clone()]);
        }
    }
}

/// Writes numbers as elements of a float type, rounded to nearest even: the bytes of as many.
///
/// # Errors
/// [`KernelError::Unsupported`] for another dtype, for bytes that are not aligned to it, and for another
/// number of them.
pub fn round_to(from: &[f32], dtype: DType, to: &mut [u8]) -> Result<(), KernelError> {
    fn convert<T: Element>(from: &[f32], view: &mut View<'_>) -> Result<(), KernelError>
    where
        f32: Convert<T>,
    {
        f32::convert(from, view.slice_mut::<T>()?);
        Ok(())
    }
    let spec = Spec::contiguous(dtype, [from.len()]);
    let view = &mut View::write(to, &spec);
    match dtype {
        DType::F64 => convert::<f64>(from, view),
        DType::BF16 => convert::<bf16>(from, view),
        DType::F16 => convert::<f16>(from, view),
        _ => convert::<f32>(from, view),
    }
}

/// Writes numbers as elements of a type, as a cast of `F64` does: the bytes of as many.
///
/// # Errors
/// As [`round_to`]; for a dtype without numbers of its own.
pub fn numbers_to(from: &[f64], dtype: DType, to: &mut [u8]) -> Result<(), KernelError> {
    fn convert<T: Element>(from: &[f64], view: &mut View<'_>) -> Result<(), KernelError>
    where
        f64: Convert<T>,
    {
        f64::convert(from, view.slice_mut::<T>()?);
        Ok(())
    }
    let spec = Spec::contiguous(dtype, [from.len()]);
    let view = &mut View::write(to, &spec);
    match dtype {
        DType::F32 => convert::<f32>(from, view),
        DType::BF16 => convert::<bf16>(from, view),
        DType::F16 => convert::<f16>(from, view),
        DType::I64 => convert::<i64>(from, view),
        DType::U32 => convert::<u32>(from, view),
        DType::U8 => convert::<u8>(from, view),
        DType::Bool => {
            let truths = view.slice_mut::<u8>()?.iter_mut().zip(from);
            truths.for_each(|(to, &x)| *to = (x != 0.0).into());
            Ok(())
        }
        _ => convert::<f64>(from, view),
    }
}

/// The dtype of sums and statistics of tensors of a dtype: `F32` at least.
pub(crate) const fn sums_in(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

/// The largest relative error of rounding to an element type.
pub(crate) fn half_ulp(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2.0_f64.powi(-8),
        DType::F16 => 2.0_f64.powi(-11),
        DType::F32 => 2.0_f64.powi(-24),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::Convert;
    use half::{bf16, f16};

    #[test]
    fn rounding_is_to_nearest_even_and_special_values_stay() {
        let mut x = vec![
            1.0 + 1.0 / 256.0,
            1.0 + 3.0 / 256.0,
            65519.0,
            65520.0,
            3.4e38,
            -0.0,
        ];
        x.extend([
            6e-8,
            1e-8,
            1e-40,
            -1e-40,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::MAX,
        ]);
        x.extend((0..4000_u32).map(|i| f32::from_bits(i.wrapping_mul(0x0132_4567))));
        x.retain(|x| !x.is_nan());
        let (mut b, mut h) = (vec![bf16::ZERO; x.len()], vec![f16::ZERO; x.len()]);
        f32::convert(&x, &mut b);
        f32::convert(&x, &mut h);
        for ((&x, b), h) in x.iter().zip(b).zip(h) {
            assert_eq!(b.to_bits(), bf16::from_f32(x).to_bits(), "{x}");
            assert_eq!(h.to_bits(), f16::from_f32(x).to_bits(), "{x}");
        }
        let mut b = [bf16::ZERO];
        f32::convert(&[f32::from_bits(0x7f80_0001)], &mut b);
        assert!(b[0].is_nan());
    }

    #[test]
    fn doubles_are_rounded_once() {
        // Just above and below the middle of two neighbours, and nearer to it than f32 can tell.
        let (middle, next) = (1.0 + 2.0_f64.powi(-8), 1.0 + 2.0_f64.powi(-7));
        let tiny = 2.0_f64.powi(-40);
        let x = [
            middle - tiny,
            middle,
            middle + tiny,
            -middle - tiny,
            1e300,
            f64::NAN,
        ];
        let mut b = [bf16::ZERO; 6];
        f64::convert(&x, &mut b);
        let bits = |x: f64| bf16::from_f64(x).to_bits();
        let want = [1.0, 1.0, next, -next, f64::INFINITY].map(bits);
        assert_eq!(b[..5].iter().map(|b| b.to_bits()).collect::<Vec<_>>(), want);
        assert!(b[5].is_nan());
        let mut h = [f16::ZERO; 6];
        f64::convert(&[1.0 + 2.0_f64.powi(-11) + tiny; 6], &mut h);
        assert_eq!(h[0].to_bits(), f16::ONE.to_bits() + 1);
    }

    #[test]
    fn widening_is_exact() {
        let b: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
        let (mut wide, mut back) = (vec![0.0_f32; b.len()], vec![bf16::ZERO; b.len()]);
        bf16::convert(&b, &mut wide);
        f32::convert(&wide, &mut back);
        for ((b, wide), back) in b.iter().zip(wide).zip(back) {
            let same = wide.to_bits() == b.to_f32().to_bits() && back.to_bits() == b.to_bits();
            assert!(same || (b.is_nan() && wide.is_nan() && back.is_nan()));
        }
    }
}
