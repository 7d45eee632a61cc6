//! One body, several instruction sets: how kernels are vectorised.
//!
//! [`multiversion!`] compiles a function once for each instruction set and picks one when it is
//! called. The body is ordinary Rust that LLVM vectorises; it may be generic over [`Isa`], whose
//! only say is whether a multiplication and an addition are rounded once. A machine always picks
//! the same version, so its results are the same bits every time; machines that differ in
//! [`Level`](crate::device::cpu::Level) may differ in bits.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

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

/// The arithmetic of the baseline.
#[cfg(target_arch = "aarch64")]
pub(crate) type BaselineIsa = Fused;
/// The arithmetic of the baseline.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) type BaselineIsa = Plain;

/// Declares a function whose body is compiled for AVX-512, for AVX2 with FMA and for the baseline;
/// the widest that the processor has is called.
///
/// Rust never contracts `a * b + c` by itself. A body that wants that names a type parameter in
/// brackets, first of all, which stands for the version's [`Isa`] and is no parameter of the
/// function that callers see; others, with one bound each, may follow it. Without brackets, the
/// versions differ in speed alone.
///
/// Whatever the body calls must be `#[inline(always)]` to be compiled for the same instruction set.
/// Slices as arguments of their own (not in structs or arrays) tell LLVM that they do not overlap.
///
/// ```text
/// multiversion! {
///     /// `y = x * factor + y`
///     pub(crate) fn axpy[I](factor: f32, x: &[f32], y: &mut [f32]) {
///         for (y, &x) in y.iter_mut().zip(x) {
///             *y = I::fma(x, factor, *y);
///         }
///     }
/// }
/// ```
macro_rules! multiversion {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block
    ) => {
        $crate::kernels::simd::multiversion! {
            @versions $(#[$meta])*
            $vis fn $name[AnyIsa]($($arg: $type),*) $(-> $result)? $body
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident[$isa:ident $(, $generic:ident: $bound:path)*](
            $($arg:ident: $type:ty),* $(,)?
        ) $(-> $result:ty)? $body:block
    ) => {
        $crate::kernels::simd::multiversion! {
            @versions
            $(#[$meta])*
            $vis fn $name[$isa $(, $generic: $bound)*]($($arg: $type),*) $(-> $result)? $body
        }
    };
    (
        @versions $(#[$meta:meta])*
        $vis:vis fn $name:ident[$isa:ident $(, $generic:ident: $bound:path)*](
            $($arg:ident: $type:ty),*
        ) $(-> $result:ty)? $body:block
    ) => {
        $(#[$meta])*
        #[cfg_attr(
            target_arch = "x86_64",
            expect(unsafe_code, reason = "a version is called only where it can run")
        )]
        $vis fn $name<$($generic: $bound),*>($($arg: $type),*) $(-> $result)? {
            #[allow(clippy::inline_always, reason = "each version below must hold its own copy")]
            #[inline(always)]
            fn body<$isa: $crate::kernels::simd::Isa $(, $generic: $bound)*>(
                $($arg: $type),*
            ) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn avx512<$($generic: $bound),*>($($arg: $type),*) $(-> $result)? {
                    body::<$crate::kernels::simd::Fused $(, $generic)*>($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2<$($generic: $bound),*>($($arg: $type),*) $(-> $result)? {
                    body::<$crate::kernels::simd::Fused $(, $generic)*>($($arg),*)
                }
                match $crate::device::cpu::level() {
                    $crate::device::cpu::Level::Avx512 | $crate::device::cpu::Level::Avx512Bf16 => {
                        // SAFETY: `level` says that the processor has these features.
                        return unsafe { avx512::<$($generic),*>($($arg),*) };
                    }
                    $crate::device::cpu::Level::Avx2 => {
                        // SAFETY: as above.
                        return unsafe { avx2::<$($generic),*>($($arg),*) };
                    }
                    $crate::device::cpu::Level::Portable => {}
                }
            }
            body::<$crate::kernels::simd::BaselineIsa $(, $generic)*>($($arg),*)
        }
    };
}
pub(crate) use multiversion;

multiversion! {
    /// Adds numbers to sums, each to its own.
    pub(crate) fn add_to(sums: &mut [f32], x: &[f32]) {
        for (sum, x) in sums.iter_mut().zip(x) {
            *sum += x;
        }
    }
}

/// The sum of all lanes: of halves, then of halves of those, and so on.
#[inline(always)]
pub(crate) fn sum_lanes<T: Copy + std::ops::AddAssign, const LANES: usize>(
    mut lanes: [T; LANES],
) -> T {
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            let other = lanes[i + width];
            lanes[i] += other;
        }
    }
    lanes[0]
}

multiversion! {
    /// The sum in `f64`.
    pub(crate) fn sum_block[I](x: &[f32]) -> f64 {
        const LANES: usize = 32;
        let mut lanes = [0.0_f64; LANES];
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane += f64::from(x);
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            *lane += f64::from(x);
        }
        sum_lanes(lanes)
    }
}
