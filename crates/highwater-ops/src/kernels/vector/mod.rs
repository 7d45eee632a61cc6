//! Vectors of `f32` on each instruction set, and the choice of the set at run time.
//!
//! A value of a type that implements [`Simd`] proves that the processor has its instructions. All
//! that works on vectors is inlined into one function per instruction set, so that it is compiled
//! for it: what is not `#[inline(always)]`, and closures that are handed to iterators, may be compiled for the
//! baseline instead, with each instruction a call.

#![expect(unsafe_code, reason = "vector instructions")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

#[cfg(target_arch = "x86_64")]
mod x86;

use crate::device::cpu::{Level, level};
use crate::kernels::float::Float;
use half::bf16;

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
    /// Of each lane, seen as two numbers of `bf16`: `c` plus the product of the upper ones, plus that of
    /// the lower ones. What is below the normal numbers may count as 0.
    fn dot(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Words of two numbers of `bf16`: in each lane that of `low`, then that of `high`, rounded to nearest
    /// even. What is below the normal numbers may become 0.
    #[inline(always)]
    fn pair(self, low: Self::V, high: Self::V) -> Self::V {
        pair_plainly(self, low, high)
    }
    /// The larger; `b` where one is not a number.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `2^x = 2^n 2^f`: the whole number `n` nearest to `x`, and `f = x - n`.
    fn split(self, x: Self::V) -> (Self::V, Self::V);
    /// `p 2^n`; may be 0 where `x` is so small that the result would not be a normal number.
    fn scale(self, p: Self::V, n: Self::V, x: Self::V) -> Self::V;

    /// The first elements of a slice.
    #[inline(always)]
    fn load(self, from: &[f32]) -> Self::V {
        assert!(from.len() >= Self::LANES, "a vector must lie in the slice");
        // SAFETY: asserted.
        unsafe { self.load_at(from.as_ptr()) }
    }

    /// Writes the first elements of a slice.
    #[inline(always)]
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

    /// Words of which a number of the first row is the lower half, and one of the second the upper.
    ///
    /// # Safety
    /// Both must be valid for reads of as many numbers as a vector has lanes.
    unsafe fn interleave(self, first: *const u16, second: *const u16) -> Self::V;

    /// Transposes a block of `LANES` rows of `LANES` columns, times `factor` if there is one; else bits
    /// stay as they are.
    ///
    /// # Safety
    /// Rows of `from`, so many bytes apart, and of `to`, so many elements apart, must be valid.
    unsafe fn transpose(
        self,
        from: (*const f32, usize),
        to: (*mut f32, usize),
        factor: Option<Self::V>,
    );

    /// Runs a task in a function of its own, compiled for this instruction set.
    fn call(self, task: impl Task);
}

/// [`Simd::dot`] lane by lane: for instruction sets that do not have it, where nobody asks for it but
/// who wants to know what it is.
#[inline(always)]
fn dot_plainly<S: Simd>(s: S, a: S::V, b: S::V, c: S::V) -> S::V {
    let [a, b, mut c] = [a, b, c].map(|v| lanes(s, v));
    for ((a, b), c) in a.iter().zip(&b).zip(&mut c) {
        let ([a_low, a_high], [b_low, b_high]) = (halves(*a), halves(*b));
        // Products are exact.
        *c = (*c + a_high * b_high) + a_low * b_low;
    }
    s.load(&c)
}

/// [`Simd::pair`] lane by lane.
#[inline(always)]
fn pair_plainly<S: Simd>(s: S, low: S::V, high: S::V) -> S::V {
    let (low, high) = (lanes(s, low), lanes(s, high));
    s.load(&std::array::from_fn::<_, 16, _>(|i| word(low[i], high[i])))
}

/// A vector's elements, then zeros.
#[inline(always)]
fn lanes<S: Simd>(s: S, v: S::V) -> [f32; 16] {
    let mut lanes = [0.0; 16];
    s.store(&mut lanes, v);
    lanes
}

/// A word of two numbers, rounded to `bf16`.
#[inline(always)]
fn word(low: f32, high: f32) -> f32 {
    let bits = |x: f32| u32::from(bf16::nearest(x).to_bits());
    f32::from_bits(bits(low) | bits(high) << 16)
}

/// The lower and the upper half of a word, as numbers of `bf16`.
#[inline(always)]
fn halves(word: f32) -> [f32; 2] {
    let bits = word.to_bits();
    [
        f32::from_bits(bits << 16),
        f32::from_bits(bits & 0xffff_0000),
    ]
}

/// `2^x`, to about one unit in the last place. What is below the normal numbers may become 0, and what comes
/// within half a power of the largest one infinite.
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

impl Version {
    /// Whether it has [`Simd::dot`] as one instruction.
    pub(crate) fn has_pairs(self) -> bool {
        self == Self::Best && level() >= Level::Avx512Bf16
    }
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
        #[cfg(test)]
        if version == Version::Avx2 && level() >= Level::Avx2 {
            // SAFETY: both other levels have these features.
            return unsafe { x86::run_avx2(task) };
        }
        match level() {
            // SAFETY: `level` says that the processor has the features.
            Level::Avx512Bf16 => return unsafe { x86::run_avx512_bf16(task) },
            // SAFETY: as above.
            Level::Avx512 => return unsafe { x86::run_avx512(task) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { x86::run_avx2(task) },
            Level::Portable => {}
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
    fn dot(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        dot_plainly(self, a, b, c)
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
    unsafe fn interleave(self, first: *const u16, second: *const u16) -> Self::V {
        let mut words = [0.0; 4];
        for (i, word) in words.iter_mut().enumerate() {
            // SAFETY: four numbers each, the caller's.
            let (low, high) = unsafe { (*first.add(i), *second.add(i)) };
            *word = f32::from_bits(u32::from(low) | u32::from(high) << 16);
        }
        words
    }
    #[inline(always)]
    unsafe fn transpose(
        self,
        (from, from_bytes): (*const f32, usize),
        (to, to_row): (*mut f32, usize),
        factor: Option<Self::V>,
    ) {
        for i in 0..4 {
            for j in 0..4 {
                // SAFETY: inside the block of four rows and columns, the caller's.
                unsafe {
                    let x = from.byte_add(i * from_bytes).add(j).read_unaligned();
                    *to.add(j * to_row + i) = factor.map_or(x, |factor| x * factor[0]);
                }
            }
        }
    }
    fn call(self, task: impl Task) {
        task.run(self);
    }
}

#[cfg(test)]
mod tests;
