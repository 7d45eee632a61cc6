//! Random numbers that are functions of a position: Philox 4x32-10 (Salmon et al., "Parallel random
//! numbers: as easy as 1, 2, 3", 2011).
//!
//! Element `i` of a stream (`seed`, `offset`) is word `i % 4` of the block with key `seed` and counter
//! (`i / 4`, `offset`), each 64 bits, low half first. So it depends on nothing else: not on threads,
//! not on which elements are drawn beside it. Uniform and normal deviates are made with plain
//! arithmetic: they are the same bits on every machine.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::math;
use crate::kernels::simd::{Plain, multiversion};

/// Words that are drawn at once.
pub(crate) const WORDS: usize = 4 * COUNTERS;
/// Counters that are drawn at once.
const COUNTERS: usize = 16;

/// The 4 words of a counter: the function as it is defined.
#[inline(always)]
fn block(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = u64::from(counter[0]) * 0xD251_1F53;
        let b = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
        key[0] = key[0].wrapping_add(0x9E37_79B9);
        key[1] = key[1].wrapping_add(0xBB67_AE85);
    }
    counter
}

#[inline(always)]
fn halves(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// The words of elements `start` to `start + 64`; `start` is a multiple of 4.
#[inline(always)]
pub(crate) fn words(seed: u64, offset: u64, start: u64) -> [u32; WORDS] {
    let mut words = [0; WORDS];
    let ([o0, o1], key) = (halves(offset), halves(seed));
    let (groups, _) = words.as_chunks_mut::<4>();
    for (i, group) in groups.iter_mut().enumerate() {
        let [c0, c1] = halves(start / 4 + i as u64);
        *group = block([c0, c1, o0, o1], key);
    }
    words
}

/// Fills `out` with uniform deviates of `[0, 1)`, multiples of `2^-24`: elements 0, 1, .. of the
/// stream.
pub fn fill_uniform(seed: u64, offset: u64, out: &mut [f32]) {
    uniform(seed, offset, 0, out);
}

/// Fills `out` with normal deviates of mean 0 and variance 1, by Box and Muller's transform: elements
/// 0, 1, .. of the stream, of which pairs are made of pairs of words.
pub fn fill_normal(seed: u64, offset: u64, out: &mut [f32]) {
    normal(seed, offset, 0, out);
}

/// Fills `out` with the whole numbers below its length in a random order: the shuffle of Fisher and Yates,
/// whose `i`-th step draws two words of the stream.
pub fn fill_permutation(seed: u64, offset: u64, out: &mut [i64]) {
    for (i, x) in out.iter_mut().enumerate() {
        *x = i as i64;
    }
    for last in (1..out.len()).rev() {
        let other = below(seed, offset, last as u64, last as u64 + 1);
        out.swap(last, other as usize);
    }
}

/// Fills `out` with whole numbers from `low` to below `high`, all as likely; the `i`-th draws two words of the
/// stream. `low` everywhere where `high` is not above it.
pub fn fill_integers(seed: u64, offset: u64, (low, high): (i64, i64), out: &mut [i64]) {
    // The difference of any two fits.
    let count = if high > low {
        high.wrapping_sub(low) as u64
    } else {
        0
    };
    for (i, x) in out.iter_mut().enumerate() {
        *x = low.wrapping_add(below(seed, offset, i as u64, count) as i64);
    }
}

/// A whole number below `count`, of the 64 bits at a position.
fn below(seed: u64, offset: u64, at: u64, count: u64) -> u64 {
    let ([c0, c1], [o0, o1]) = (halves(at), halves(offset));
    let [low, high, ..] = block([c0, c1, o0, o1], halves(seed));
    let word = u128::from(low) | u128::from(high) << 32;
    ((word * u128::from(count)) >> 64) as u64
}

/// The deviates of [`fill_uniform`] or [`fill_normal`], a part after the other: what fills what is not of
/// `f32`s.
#[derive(Debug, Clone, Copy)]
pub struct Deviates {
    seed: u64,
    offset: u64,
    normal: bool,
    at: u64,
}

impl Deviates {
    /// Of a stream.
    pub const fn new(seed: u64, offset: u64, normal: bool) -> Self {
        Self {
            seed,
            offset,
            normal,
            at: 0,
        }
    }

    /// The next ones. All parts but the last must be of a multiple of 4.
    pub fn fill(&mut self, out: &mut [f32]) {
        let fill = if self.normal { normal } else { uniform };
        fill(self.seed, self.offset, self.at, out);
        self.at += out.len() as u64;
    }
}

/// A word as a multiple of `2^-24` in `[0, 1)`.
#[inline(always)]
fn unit(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

multiversion! {
    fn uniform[I](seed: u64, offset: u64, start: u64, out: &mut [f32]) {
        for (i, out) in out.chunks_mut(WORDS).enumerate() {
            let words = words(seed, offset, start + (i * WORDS) as u64);
            for (out, word) in out.iter_mut().zip(words) {
                *out = unit(word);
            }
        }
    }
}

multiversion! {
    fn normal[I](seed: u64, offset: u64, start: u64, out: &mut [f32]) {
        for (i, out) in out.chunks_mut(WORDS).enumerate() {
            let words = words(seed, offset, start + (i * WORDS) as u64);
            let mut deviates = [0.0; WORDS];
            let (pairs, _) = words.as_chunks::<2>();
            for (to, &[a, b]) in deviates.as_chunks_mut::<2>().0.iter_mut().zip(pairs) {
                // Above 0, so that the logarithm is finite.
                let radius = unit(a) + 1.0 / 16_777_216.0;
                let radius = (-2.0 * math::log::<Plain>(radius)).sqrt();
                let (sin, cos) = math::sin_cos_turns::<Plain>(unit(b));
                *to = [radius * cos, radius * sin];
            }
            out.copy_from_slice(&deviates[..out.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers_of_random123() {
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let cases = [
            (
                [0; 4],
                [0; 2],
                [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
            ),
            (
                [!0; 4],
                [!0; 2],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            (
                pi,
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, answer) in cases {
            assert_eq!(block(counter, key), answer);
        }
    }

    #[test]
    fn a_word_depends_on_its_position_alone() {
        let all: Vec<u32> = (0..4).flat_map(|i| words(7, 9, i * 64)).collect();
        for start in (0..192).step_by(4) {
            assert_eq!(words(7, 9, start as u64)[..], all[start..start + 64]);
        }
        let low = block([3, 1, 9, 2], [7, 5]);
        let start = 4 * (3 + (1_u64 << 32));
        assert_eq!(words(7 + (5 << 32), 9 + (2 << 32), start)[..4], low);
    }

    #[test]
    fn permutations_hold_every_number_and_each_is_as_likely() {
        let mut x = vec![0; 1000];
        fill_permutation(1, 2, &mut x);
        let mut sorted = x.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..1000) && sorted != x);
        let mut counts = [0; 6];
        for offset in 0..6000 {
            let mut x = [0; 3];
            fill_permutation(1, offset, &mut x);
            counts[(x[0] * 2 + i64::from(x[1] > x[2])) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (900..1100).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn deviates_are_distributed_as_they_should() {
        let mut x = vec![0.0; 1_000_003];
        let moments = |x: &[f32]| {
            let mean = |power| x.iter().map(|&x| f64::from(x).powi(power)).sum::<f64>() / 1e6;
            [mean(1), mean(2), mean(3), mean(4)]
        };
        fill_uniform(1, 2, &mut x);
        assert!(x.iter().all(|&x| (0.0..1.0).contains(&x)));
        let near = |got: [f64; 4], want: [f64; 4]| {
            let distance = got.iter().zip(want).map(|(a, b)| (a - b).abs());
            assert!(distance.fold(0.0, f64::max) < 0.02, "{got:?}");
        };
        near(moments(&x), [0.5, 1.0 / 3.0, 0.25, 0.2]);
        fill_normal(1, 2, &mut x);
        near(moments(&x), [0.0, 1.0, 0.0, 3.0]);
        let mut start = vec![0.0; 1001];
        fill_normal(1, 2, &mut start);
        assert!(
            start
                .iter()
                .zip(&x)
                .all(|(a, b)| a.to_bits() == b.to_bits())
        );
    }
}
