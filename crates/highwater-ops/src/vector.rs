//! Vectors of `f32` on each instruction set, and the choice of the set at run time.
//!
//! A value of a type that implements [`Simd`] proves that the processor has its instructions. All
//! that works on vectors is inlined into one function per instruction set, so that it is compiled
//! for it.

#![expect(unsafe_code, reason = "vector instructions")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

/// An instruction set with vectors of `f32`.
pub(crate) trait Simd: Copy {
    /// A vector.
    type V: Copy;
    /// Elements of a vector: divides 16.
    const LANES: usize;

    /// The same number in every lane.
    fn splat(self, x: f32) -> Self::V;
    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, in one rounding where the instruction set has it.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger; `b` where one is not a number.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `2^x = 2^n 2^f`: the whole number `n` nearest to `x`, and `f = x - n`.
    fn split(self, x: Self::V) -> (Self::V, Self::V);
    /// `p 2^n`, and 0 where `x` is so small that the result would not be a normal number.
    fn scale(self, p: Self::V, n: Self::V, x: Self::V) -> Self::V;

    /// The first elements of a slice.
    fn load(self, from: &[f32]) -> Self::V {
        assert!(from.len() >= Self::LANES, "a vector must lie in the slice");
        // SAFETY: asserted.
        unsafe { self.load_at(from.as_ptr()) }
    }

    /// Writes the first elements of a slice.
    fn store(self, to: &mut [f32], v: Self::V) {
        assert!(to.len() >= Self::LANES, "a vector must lie in the slice");
        // SAFETY: asserted.
        unsafe { self.store_at(to.as_mut_ptr(), v) }
    }

    /// Loads a vector.
    ///
    /// # Safety
    /// `from` must be valid for reads of a vector.
    unsafe fn load_at(self, from: *const f32) -> Self::V;

    /// Stores a vector.
    ///
    /// # Safety
    /// `to` must be valid for writes of a vector.
    unsafe fn store_at(self, to: *mut f32, v: Self::V);

    /// Transposes a block of `LANES` rows of `LANES` columns, times `factor`.
    ///
    /// # Safety
    /// Rows of `from` and `to`, `from_row` and `to_row` elements apart, must be valid.
    unsafe fn transpose(self, from: (*const f32, usize), to: (*mut f32, usize), factor: Self::V);

    /// Runs a task in a function of its own, compiled for this instruction set.
    fn call(self, task: impl Task);
}

/// `2^x`, to about one unit in the last place. Results below the normal numbers are 0.
#[inline(always)]
pub(crate) fn exp2<S: Simd>(s: S, x: S::V) -> S::V {
    let (n, f) = s.split(x);
    // Interpolates 2^f on [-1/2, 1/2] at the Chebyshev nodes; relative error below 1e-8.
    let mut p = s.splat(EXP2[0]);
    for &c in &EXP2[1..] {
        p = s.fma(p, f, s.splat(c));
    }
    s.scale(p, n, x)
}

/// Coefficients of `f^6`, .., `f^0`.
const EXP2: [f32; 7] = [
    1.545_316_3e-4,
    1.339_086_3e-3,
    9.618_083e-3,
    5.550_357e-2,
    2.402_265e-1,
    6.931_472e-1,
    1.0,
];

/// Work that is generic over the instruction set. `run` must be `#[inline(always)]`.
pub(crate) trait Task {
    /// Does the work.
    fn run<S: Simd>(self, s: S);
}

/// Which instruction set a kernel uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// The best that the processor has.
    Best,
    /// AVX2 and FMA at most.
    #[cfg(test)]
    Avx2,
    /// What the target has at least.
    #[cfg(test)]
    Portable,
}

/// Asks for the cache line of an address, which need not be valid.
#[inline(always)]
pub(crate) fn prefetch(at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which faults for no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
    let _ = at;
}

/// Runs a task.
pub(crate) fn dispatch(version: Version, task: impl Task) {
    #[cfg(test)]
    if version == Version::Portable {
        return task.run(Portable);
    }
    #[cfg(target_arch = "x86_64")]
    {
        use crate::simd::{Level, level};
        #[cfg(test)]
        if version == Version::Avx2 && level() != Level::Baseline {
            // SAFETY: both other levels have these features.
            return unsafe { x86::run_avx2(task) };
        }
        match level() {
            // SAFETY: `level` says that the processor has the features.
            Level::Avx512 => return unsafe { x86::run_avx512(task) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { x86::run_avx2(task) },
            Level::Baseline => {}
        }
    }
    let _ = version;
    task.run(Portable);
}

/// Whatever the target has at least.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

/// Added and taken away, rounds to a whole number and leaves it in the low bits.
const MAGIC: f32 = 12_582_912.0;

impl Simd for Portable {
    type V = [f32; 4];
    const LANES: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; 4]
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        std::array::from_fn(|i| {
            if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
                a[i].mul_add(b[i], c[i])
            } else {
                a[i] * b[i] + c[i]
            }
        })
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn split(self, x: Self::V) -> (Self::V, Self::V) {
        // Into the range where 2^x has an exponent, or is 0 or infinite; not a number stays so.
        let x = x.map(|x| x.clamp(-127.0, 128.0));
        let n = x.map(|x| (x + MAGIC) - MAGIC);
        (n, self.sub(x, n))
    }
    #[inline(always)]
    fn scale(self, p: Self::V, n: Self::V, _x: Self::V) -> Self::V {
        // n is at least -127, whose exponent bits are those of 0.
        std::array::from_fn(|i| {
            let bits = (n[i] + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits());
            p[i] * f32::from_bits(bits.wrapping_add(127) << 23)
        })
    }
    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> Self::V {
        // SAFETY: the caller's.
        unsafe { from.cast::<Self::V>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_at(self, to: *mut f32, v: Self::V) {
        // SAFETY: the caller's.
        unsafe { to.cast::<Self::V>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn transpose(
        self,
        (from, from_row): (*const f32, usize),
        (to, to_row): (*mut f32, usize),
        factor: Self::V,
    ) {
        for i in 0..4 {
            for j in 0..4 {
                // SAFETY: inside the block of four rows and columns, the caller's.
                unsafe { *to.add(j * to_row + i) = *from.add(i * from_row + j) * factor[0] }
            }
        }
    }
    fn call(self, task: impl Task) {
        task.run(self);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Simd, Task};
    #[allow(clippy::wildcard_imports, reason = "some thirty instructions")]
    use std::arch::x86_64::*;

    /// AVX-512F. Made only in [`run_avx512`].
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(());

    /// AVX2 and FMA. Made only in [`run_avx2`].
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(());

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    pub(crate) fn run_avx512(task: impl Task) {
        task.run(Avx512(()));
    }

    #[target_feature(enable = "avx2,fma")]
    pub(crate) fn run_avx2(task: impl Task) {
        task.run(Avx2(()));
    }

    /// Instructions that a token stands for.
    macro_rules! have {
        ($instructions:expr) => {
            // SAFETY: a token exists only where the processor has its instructions.
            unsafe { $instructions }
        };
    }

    impl Simd for Avx512 {
        type V = __m512;
        const LANES: usize = 16;

        #[inline(always)]
        fn splat(self, x: f32) -> __m512 {
            have!(_mm512_set1_ps(x))
        }
        #[inline(always)]
        fn add(self, a: __m512, b: __m512) -> __m512 {
            have!(_mm512_add_ps(a, b))
        }
        #[inline(always)]
        fn sub(self, a: __m512, b: __m512) -> __m512 {
            have!(_mm512_sub_ps(a, b))
        }
        #[inline(always)]
        fn mul(self, a: __m512, b: __m512) -> __m512 {
            have!(_mm512_mul_ps(a, b))
        }
        #[inline(always)]
        fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
            have!(_mm512_fmadd_ps(a, b, c))
        }
        #[inline(always)]
        fn max(self, a: __m512, b: __m512) -> __m512 {
            have!(_mm512_max_ps(a, b))
        }
        #[inline(always)]
        fn split(self, x: __m512) -> (__m512, __m512) {
            let n = have!(_mm512_roundscale_ps::<0>(x));
            (n, self.sub(x, n))
        }
        #[inline(always)]
        fn scale(self, p: __m512, n: __m512, x: __m512) -> __m512 {
            let least = self.splat(-126.0);
            have!(_mm512_maskz_scalef_ps(
                _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, least),
                p,
                n
            ))
        }
        #[inline(always)]
        unsafe fn load_at(self, from: *const f32) -> __m512 {
            // SAFETY: the caller's.
            unsafe { _mm512_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store_at(self, to: *mut f32, v: __m512) {
            // SAFETY: the caller's.
            unsafe { _mm512_storeu_ps(to, v) }
        }
        #[inline(always)]
        unsafe fn transpose(
            self,
            (from, from_row): (*const f32, usize),
            (to, to_row): (*mut f32, usize),
            factor: __m512,
        ) {
            // SAFETY: the token's instructions, on 16 rows of 16 elements, the caller's.
            unsafe {
                let mut r: [__m512; 16] =
                    std::array::from_fn(|i| _mm512_loadu_ps(from.add(i * from_row)));
                for i in 0..8 {
                    let (a, b) = (r[2 * i], r[2 * i + 1]);
                    r[2 * i] = _mm512_unpacklo_ps(a, b);
                    r[2 * i + 1] = _mm512_unpackhi_ps(a, b);
                }
                for g in 0..4 {
                    let t: [__m512d; 4] = std::array::from_fn(|i| _mm512_castps_pd(r[4 * g + i]));
                    r[4 * g] = _mm512_castpd_ps(_mm512_unpacklo_pd(t[0], t[2]));
                    r[4 * g + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(t[0], t[2]));
                    r[4 * g + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(t[1], t[3]));
                    r[4 * g + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(t[1], t[3]));
                }
                // Quarter q of r[4 g + c] is now column 4 q + c of rows 4 g to 4 g + 3.
                for c in 0..4 {
                    let (a, b, d, e) = (r[c], r[4 + c], r[8 + c], r[12 + c]);
                    let (x0, x1) = (
                        _mm512_shuffle_f32x4::<0x44>(a, b),
                        _mm512_shuffle_f32x4::<0xEE>(a, b),
                    );
                    let (y0, y1) = (
                        _mm512_shuffle_f32x4::<0x44>(d, e),
                        _mm512_shuffle_f32x4::<0xEE>(d, e),
                    );
                    r[c] = _mm512_shuffle_f32x4::<0x88>(x0, y0);
                    r[4 + c] = _mm512_shuffle_f32x4::<0xDD>(x0, y0);
                    r[8 + c] = _mm512_shuffle_f32x4::<0x88>(x1, y1);
                    r[12 + c] = _mm512_shuffle_f32x4::<0xDD>(x1, y1);
                }
                for (j, &column) in r.iter().enumerate() {
                    _mm512_storeu_ps(to.add(j * to_row), _mm512_mul_ps(column, factor));
                }
            }
        }
        #[inline(always)]
        fn call(self, task: impl Task) {
            have!(run_avx512(task));
        }
    }

    impl Simd for Avx2 {
        type V = __m256;
        const LANES: usize = 8;

        #[inline(always)]
        fn splat(self, x: f32) -> __m256 {
            have!(_mm256_set1_ps(x))
        }
        #[inline(always)]
        fn add(self, a: __m256, b: __m256) -> __m256 {
            have!(_mm256_add_ps(a, b))
        }
        #[inline(always)]
        fn sub(self, a: __m256, b: __m256) -> __m256 {
            have!(_mm256_sub_ps(a, b))
        }
        #[inline(always)]
        fn mul(self, a: __m256, b: __m256) -> __m256 {
            have!(_mm256_mul_ps(a, b))
        }
        #[inline(always)]
        fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
            have!(_mm256_fmadd_ps(a, b, c))
        }
        #[inline(always)]
        fn max(self, a: __m256, b: __m256) -> __m256 {
            have!(_mm256_max_ps(a, b))
        }
        #[inline(always)]
        fn split(self, x: __m256) -> (__m256, __m256) {
            // As in the portable one; minimum and maximum answer their second operand where one
            // is not a number.
            let x = have!(_mm256_min_ps(
                _mm256_set1_ps(128.0),
                _mm256_max_ps(_mm256_set1_ps(-127.0), x)
            ));
            let n = have!(_mm256_round_ps::<
                { _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC },
            >(x));
            (n, self.sub(x, n))
        }
        #[inline(always)]
        fn scale(self, p: __m256, n: __m256, _x: __m256) -> __m256 {
            have!({
                let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
                _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent)))
            })
        }
        #[inline(always)]
        unsafe fn load_at(self, from: *const f32) -> __m256 {
            // SAFETY: the caller's.
            unsafe { _mm256_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store_at(self, to: *mut f32, v: __m256) {
            // SAFETY: the caller's.
            unsafe { _mm256_storeu_ps(to, v) }
        }
        #[inline(always)]
        unsafe fn transpose(
            self,
            (from, from_row): (*const f32, usize),
            (to, to_row): (*mut f32, usize),
            factor: __m256,
        ) {
            // SAFETY: the token's instructions, on 8 rows of 8 elements, the caller's.
            unsafe {
                let mut r: [__m256; 8] =
                    std::array::from_fn(|i| _mm256_loadu_ps(from.add(i * from_row)));
                for i in 0..4 {
                    let (a, b) = (r[2 * i], r[2 * i + 1]);
                    r[2 * i] = _mm256_unpacklo_ps(a, b);
                    r[2 * i + 1] = _mm256_unpackhi_ps(a, b);
                }
                for g in 0..2 {
                    let t: [__m256d; 4] = std::array::from_fn(|i| _mm256_castps_pd(r[4 * g + i]));
                    r[4 * g] = _mm256_castpd_ps(_mm256_unpacklo_pd(t[0], t[2]));
                    r[4 * g + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(t[0], t[2]));
                    r[4 * g + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(t[1], t[3]));
                    r[4 * g + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(t[1], t[3]));
                }
                for c in 0..4 {
                    let (a, b) = (r[c], r[4 + c]);
                    r[c] = _mm256_permute2f128_ps::<0x20>(a, b);
                    r[4 + c] = _mm256_permute2f128_ps::<0x31>(a, b);
                }
                for (j, &column) in r.iter().enumerate() {
                    _mm256_storeu_ps(to.add(j * to_row), _mm256_mul_ps(column, factor));
                }
            }
        }
        #[inline(always)]
        fn call(self, task: impl Task) {
            have!(run_avx2(task));
        }
    }
}
