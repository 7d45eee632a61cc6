//! What the processor does at most, measured: for figures to stand beside.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::Pool;
use crate::kernels::gemm::tile::{Pairs, Singles, Words};
use crate::kernels::vector::{Simd, Task, Version, dispatch};
use std::hint::black_box;
use std::marker::PhantomData;
use std::time::Instant;

/// How often each limit is measured; the best counts.
const TRIES: usize = 12;
/// Multiplications of each chain in a try: about a millisecond.
const LENGTH: usize = 1 << 18;
/// Chains side by side: more than a processor needs to have an operation under way in every stage of
/// its units, and as many as there are registers for in every instruction set.
const CHAINS: usize = 12;

/// What some threads of this processor do in a second at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Floating-point operations in `f32`: fused multiply-adds from registers, two operations for each
    /// lane, with the widest vectors that kernels use.
    pub f32_flops: f64,
    /// The same for products of `bf16`: of pairs, summed in `f32`, where kernels use such an instruction;
    /// else that of `f32`, to which they are widened.
    pub bf16_flops: f64,
    /// Bytes read and written together by a copy, each byte counted twice.
    pub copy_bytes: f64,
}

impl Limits {
    /// Measures the threads of a pool for some ten milliseconds and the time that copying takes. The
    /// copy is of half of `bytes`, which the heap is asked for and which are given back: where they fit
    /// into a cache, the figure is the cache's.
    #[must_use]
    pub fn measure(pool: &Pool, bytes: usize) -> Self {
        let threads = pool.threads();
        let flops = (CHAINS * LENGTH * threads) as f64 * 2.0 * lanes() as f64;
        let f32_flops = flops / seconds_of::<Singles>(pool);
        let bf16_flops = if Version::Best.has_pairs() {
            2.0 * flops / seconds_of::<Pairs>(pool)
        } else {
            f32_flops
        };
        let len = (bytes / 2 / size_of::<f32>()).max(1);
        let (from, mut to) = (vec![1.0_f32; len], vec![0.0_f32; len]);
        let part = len.div_ceil(threads);
        let copy_seconds = best(|| {
            pool.for_each_chunk(&mut to, part, |i, to| {
                to.copy_from_slice(&from[i * part..][..to.len()]);
            });
            black_box(&mut to);
        });
        Self {
            f32_flops,
            bf16_flops,
            copy_bytes: (2 * len * size_of::<f32>()) as f64 / copy_seconds,
        }
    }
}

/// The least seconds that `f` takes.
fn best(mut f: impl FnMut()) -> f64 {
    let seconds = |_| {
        let started = Instant::now();
        f();
        started.elapsed().as_secs_f64()
    };
    (0..TRIES).map(seconds).fold(f64::INFINITY, f64::min)
}

/// Elements of a vector of the best instruction set.
fn lanes() -> usize {
    struct Lanes<'a>(&'a mut usize);
    impl Task for Lanes<'_> {
        #[inline(always)]
        fn run<S: Simd>(self, _: S) {
            *self.0 = S::LANES;
        }
    }
    let mut lanes = 0;
    dispatch(Version::Best, Lanes(&mut lanes));
    lanes
}

/// The least seconds that each thread's chains of words take.
fn seconds_of<W: Words>(pool: &Pool) -> f64 {
    best(|| {
        pool.for_each(pool.threads(), |_| {
            dispatch(Version::Best, Chains::<W>(PhantomData));
        });
    })
}

/// Chains of multiplied words that wait for nothing but themselves.
struct Chains<W>(PhantomData<W>);

impl<W: Words> Task for Chains<W> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (a, b) = (s.splat(black_box(0.5)), s.splat(black_box(1.0)));
        let mut sums: [S::V; CHAINS] = std::array::from_fn(|i| s.splat(i as f32));
        for _ in 0..LENGTH {
            for sum in &mut sums {
                *sum = W::multiply(s, a, b, *sum);
            }
        }
        let total = sums
            .into_iter()
            .fold(s.splat(0.0), |total, sum| s.add(total, sum));
        let mut out = [0.0; 16];
        s.store(&mut out, total);
        black_box(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_some_machine() {
        let pool = Pool::new(2).unwrap();
        let limits = Limits::measure(&pool, 1 << 20);
        // Slower than any processor that runs this, and faster than any there is.
        assert!((1e6..1e15).contains(&limits.f32_flops), "{limits:?}");
        assert!((1e6..1e15).contains(&limits.bf16_flops), "{limits:?}");
        assert!((1e6..1e14).contains(&limits.copy_bytes), "{limits:?}");
    }
}
