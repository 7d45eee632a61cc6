//! One body, several instruction sets: how kernels are vectorised.
//!
//! [`versions!`] compiles a function once for each instruction set and picks one when it is called.
//! The body is ordinary Rust that LLVM vectorises; it is generic over [`Isa`], whose only say is
//! whether a multiplication and an addition are rounded once. A machine always picks the same
//! version, so its results are the same bits every time; machines of different levels may differ.

use std::sync::OnceLock;

/// An instruction set, as far as results depend on it.
pub(crate) trait Isa: Copy {
    /// `a * b + c`, rounded once where the processor does that in one instruction, else twice.
    fn fma(a: f32, b: f32, c: f32) -> f32;
}

/// Multiplication and addition are one instruction of one rounding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fused;

/// Multiplication and addition are two instructions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plain;

impl Isa for Fused {
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

impl Isa for Plain {
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

/// The instruction sets that bodies are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// What every processor of the target has.
    Baseline,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The AVX-512 of servers since 2017.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// The best level of this processor.
#[inline]
pub(crate) fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(detect)
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (avx2, avx512) {
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        _ => Level::Baseline,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Baseline
}

/// The arithmetic of [`Level::Baseline`].
#[cfg(target_arch = "aarch64")]
pub(crate) type BaselineIsa = Fused;
/// The arithmetic of [`Level::Baseline`].
#[cfg(not(target_arch = "aarch64"))]
pub(crate) type BaselineIsa = Plain;

/// Defines a function that runs the version of its body for this processor.
///
/// The first type parameter, named in brackets before the others, is the [`Isa`] of the version; it
/// is no parameter of the function that callers see. Whatever the body calls must be
/// `#[inline(always)]` to be compiled for the same instruction set. Slices as arguments of their
/// own (not fields, not arrays of slices) tell LLVM that they do not overlap.
///
/// ```ignore
/// versions! {
///     /// `y = x * factor + y`
///     pub(crate) fn axpy[I](factor: f32, x: &[f32], y: &mut [f32]) {
///         for (y, &x) in y.iter_mut().zip(x) {
///             *y = I::fma(x, factor, *y);
///         }
///     }
/// }
/// ```
macro_rules! versions {
    ($(#[$meta:meta])* $vis:vis fn $name:ident[$isa:ident $(, $g:ident: $bound:path)*](
        $($arg:ident: $type:ty),* $(,)?
    ) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[expect(clippy::inline_always, reason = "compiled for the instruction set of its caller")]
        #[cfg_attr(
            target_arch = "x86_64",
            expect(unsafe_code, reason = "the processor is asked before its version is called")
        )]
        $vis fn $name<$($g: $bound),*>($($arg: $type),*) $(-> $ret)? {
            #[inline(always)]
            fn body<$isa: $crate::simd::Isa $(, $g: $bound)*>($($arg: $type),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512<$($g: $bound),*>($($arg: $type),*) $(-> $ret)? {
                body::<$crate::simd::Fused $(, $g)*>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<$($g: $bound),*>($($arg: $type),*) $(-> $ret)? {
                body::<$crate::simd::Fused $(, $g)*>($($arg),*)
            }

            match $crate::simd::level() {
                // SAFETY: `level` answers this only where the processor has these features.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx512 => unsafe { avx512::<$($g),*>($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx2 => unsafe { avx2::<$($g),*>($($arg),*) },
                $crate::simd::Level::Baseline => {
                    body::<$crate::simd::BaselineIsa $(, $g)*>($($arg),*)
                }
            }
        }
    };
}
pub(crate) use versions;
