//! Vectors of AVX-512 and of AVX2.

use super::{Simd, Task, dot_plainly, pair_plainly};
#[allow(clippy::wildcard_imports, reason = "some thirty instructions")]
use std::arch::x86_64::*;

/// AVX-512, with products of pairs of `bf16` if so. Made only in [`run_avx512`] and
/// [`run_avx512_bf16`].
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const DOTS: bool>(());

/// AVX2 and FMA. Made only in [`run_avx2`].
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(crate) fn run_avx512(task: impl Task) {
    task.run(Avx512::<false>(()));
}

#[target_feature(enable = "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(crate) fn run_avx512_bf16(task: impl Task) {
    task.run(Avx512::<true>(()));
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

impl<const DOTS: bool> Simd for Avx512<DOTS> {
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
    fn dot(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        if DOTS {
            // SAFETY: the token's instructions; the bits of a vector, seen as another.
            unsafe {
                let pairs = |v: __m512| std::mem::transmute::<__m512, __m512bh>(v);
                _mm512_dpbf16_ps(c, pairs(a), pairs(b))
            }
        } else {
            dot_plainly(self, a, b, c)
        }
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
    fn pair(self, low: __m512, high: __m512) -> __m512 {
        if DOTS {
            // Each lane's two, from one half of the vector and from the other.
            const TOGETHER: [u16; 32] = {
                let mut from = [0; 32];
                let mut i = 0;
                while i < 32 {
                    from[i] = (i / 2 + i % 2 * 16) as u16;
                    i += 1;
                }
                from
            };
            // SAFETY: the token's instructions; the bits of a vector, seen as another.
            unsafe {
                let halves: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
                let together = _mm512_loadu_epi16(TOGETHER.as_ptr().cast());
                _mm512_castsi512_ps(_mm512_permutexvar_epi16(together, halves))
            }
        } else {
            pair_plainly(self, low, high)
        }
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
    unsafe fn interleave(self, first: *const u16, second: *const u16) -> __m512 {
        // SAFETY: the token's instructions, on 16 numbers each, the caller's.
        unsafe {
            let low = _mm512_cvtepu16_epi32(_mm256_loadu_si256(first.cast()));
            let high = _mm512_cvtepu16_epi32(_mm256_loadu_si256(second.cast()));
            _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32::<16>(high)))
        }
    }
    #[inline(always)]
    unsafe fn transpose(
        self,
        (from, from_bytes): (*const f32, usize),
        (to, to_row): (*mut f32, usize),
        factor: Option<__m512>,
    ) {
        // SAFETY: the token's instructions, on 16 rows of 16 elements, the caller's.
        unsafe {
            let mut r: [__m512; 16] =
                std::array::from_fn(|i| _mm512_loadu_ps(from.byte_add(i * from_bytes)));
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
                let column = factor.map_or(column, |factor| _mm512_mul_ps(column, factor));
                _mm512_storeu_ps(to.add(j * to_row), column);
            }
        }
    }
    #[inline(always)]
    fn call(self, task: impl Task) {
        if DOTS {
            have!(run_avx512_bf16(task));
        } else {
            have!(run_avx512(task));
        }
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
    fn dot(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        dot_plainly(self, a, b, c)
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
    unsafe fn interleave(self, first: *const u16, second: *const u16) -> __m256 {
        // SAFETY: the token's instructions, on 8 numbers each, the caller's.
        unsafe {
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(first.cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(second.cast()));
            _mm256_castsi256_ps(_mm256_or_si256(low, _mm256_slli_epi32::<16>(high)))
        }
    }
    #[inline(always)]
    unsafe fn transpose(
        self,
        (from, from_bytes): (*const f32, usize),
        (to, to_row): (*mut f32, usize),
        factor: Option<__m256>,
    ) {
        // SAFETY: the token's instructions, on 8 rows of 8 elements, the caller's.
        unsafe {
            let mut r: [__m256; 8] =
                std::array::from_fn(|i| _mm256_loadu_ps(from.byte_add(i * from_bytes)));
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
                let column = factor.map_or(column, |factor| _mm256_mul_ps(column, factor));
                _mm256_storeu_ps(to.add(j * to_row), column);
            }
        }
    }
    #[inline(always)]
    fn call(self, task: impl Task) {
        have!(run_avx2(task));
    }
}
