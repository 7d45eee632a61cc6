//! Parameters in half precision and what their masters have beyond them.
//!
//! All of it is arithmetic on bits, in loops over a block that the compiler makes vectors of. The master of a
//! split parameter is joined from both halves in registers, and lies in the block alone. Random words are
//! drawn from the first multiple of 4 on before the block, since one counter gives four; which word an
//! element gets depends on its place in the parameter.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::{BLOCK, Draws};
use crate::kernels::philox;
use crate::kernels::simd::multiversion;
use half::{bf16, f16};

/// The nearest `bf16`, of two the one further from 0.
#[inline(always)]
pub(super) fn nearest_or_away(master: f32) -> bf16 {
    bf16::from_bits((master.to_bits().wrapping_add(0x8000) >> 16) as u16)
}

/// What the master's bits are above those of the parameter, shifted up.
#[inline(always)]
pub(super) fn beyond(master: f32) -> i16 {
    // The lower half: from 0x8000 on it was rounded up, and is below.
    master.to_bits() as i16
}

/// The master.
#[inline(always)]
pub(super) fn joined(parameter: bf16, beyond: i16) -> f32 {
    let high = u32::from(parameter.to_bits()) << 16;
    f32::from_bits(high.wrapping_add_signed(i32::from(beyond)))
}

/// One of the two neighbours, by 16 random bits.
#[inline(always)]
pub(super) fn at_random(x: f32, random: u32) -> bf16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(random & 0xffff) >> 16;
    let nan = (bits >> 16) | 0x40;
    bf16::from_bits(if x.is_nan() { nan } else { rounded } as u16)
}

multiversion! {
    pub(super) fn join(parameter: &[bf16], low: &[i16], master: &mut [f32]) {
        for ((to, &p), &low) in master.iter_mut().zip(parameter).zip(low) {
            *to = joined(p, low);
        }
    }
}

multiversion! {
    pub(super) fn split(master: &[f32], parameter: &mut [bf16], low: &mut [i16]) {
        for ((&x, p), low) in master.iter().zip(parameter).zip(low) {
            *p = nearest_or_away(x);
            *low = beyond(x);
        }
    }
}

multiversion! {
    pub(super) fn round_away(master: &[f32], parameter: &mut [bf16]) {
        for (&x, p) in master.iter().zip(parameter) {
            *p = nearest_or_away(x);
        }
    }
}

multiversion! {
    /// Makes a master what the parameter is, where that is not what the master rounds to.
    pub(super) fn make_current(parameter: &[bf16], master: &mut [f32]) {
        for (x, &p) in master.iter_mut().zip(parameter) {
            let same = nearest_or_away(*x).to_bits() == p.to_bits();
            *x = if same { *x } else { joined(p, 0) };
        }
    }
}

multiversion! {
    /// [`make_current`], by what the master rounds to, and what the parameter is in `f32`.
    pub(super) fn make_current_f16(
        parameter: &[f16],
        rounded: &[f16],
        wide: &[f32],
        master: &mut [f32]
    ) {
        for (((x, &p), r), &wide) in master.iter_mut().zip(parameter).zip(rounded).zip(wide) {
            *x = if r.to_bits() == p.to_bits() { *x } else { wide };
        }
    }
}

multiversion! {
    fn round_at_random_to(x: &[f32], words: &[u32], to: &mut [bf16]) {
        for ((to, &x), &word) in to.iter_mut().zip(x).zip(words) {
            *to = at_random(x, word);
        }
    }
}

multiversion! {
    /// Words from the `start`-th on, a multiple of 4.
    fn draw(seed: u64, offset: u64, start: u64, words: &mut [u32]) {
        let mut at = start;
        for words in words.chunks_mut(philox::WORDS) {
            words.copy_from_slice(&philox::words(seed, offset, at)[..words.len()]);
            at += philox::WORDS as u64;
        }
    }
}

/// Rounds the elements of a block, from the `at`-th on of what is updated.
pub(super) fn round_at_random(x: &[f32], draws: &Draws, at: usize, to: &mut [bf16]) {
    let start = draws.start + at as u64;
    let before = (start % 4) as usize;
    let mut words = [0; BLOCK + 4];
    let words = &mut words[..before + x.len()];
    draw(draws.seed, draws.offset, start - start % 4, words);
    round_at_random_to(x, &words[before..], to);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits of `f32`, those at the edges among them.
    fn all_kinds() -> impl Iterator<Item = u32> {
        let edges = [0, 0x7fff, 0x8000, 0x8001, 0xffff];
        let highs = [
            0, 1, 0x3f80, 0x7f7f, 0x7f80, 0x7fc0, 0x7fff, 0x8000, 0xff80, 0xffff,
        ];
        let edges = highs
            .into_iter()
            .flat_map(move |high: u32| edges.map(|low| high << 16 | low));
        edges.chain((0..1_u32 << 16).map(|i| i.wrapping_mul(0x9e37_79b1)))
    }

    #[test]
    fn two_halves_are_the_master_bit_for_bit() {
        for bits in all_kinds() {
            let x = f32::from_bits(bits);
            let (p, low) = (nearest_or_away(x), beyond(x));
            assert_eq!(joined(p, low).to_bits(), bits, "{x:e}");
            let wide = f64::from(p.to_f32());
            if x.is_finite() && wide.is_finite() {
                // No neighbour is nearer, nor as near and further from 0.
                let distance = |p: bf16| (f64::from(p.to_f32()) - f64::from(x)).abs();
                let up = bf16::from_bits(p.to_bits() + 1);
                assert!(!up.is_finite() || distance(up) > distance(p), "{x:e}");
                let magnitude = p.to_bits() & 0x7fff;
                if magnitude > 0 {
                    let down = bf16::from_bits(p.to_bits() - 1);
                    assert!(distance(down) >= distance(p), "{x:e}");
                }
            }
        }
    }

    #[test]
    fn rounding_at_random_keeps_numbers_on_average() {
        let draws = Draws {
            seed: 3,
            offset: 5,
            start: 0,
        };
        for x in [1.0_f32 + 1.0 / 512.0, -3.0 - 1.0 / 1024.0, 1e-40, 2.5] {
            let mut rounded = vec![bf16::ZERO; 1 << 16];
            for (i, block) in rounded.chunks_mut(BLOCK).enumerate() {
                round_at_random(&[x; BLOCK], &draws, i * BLOCK, block);
            }
            let sum: f64 = rounded.iter().map(|p| f64::from(p.to_f32())).sum();
            let mean = sum / f64::from(1 << 16);
            // Of numbers that are not normal it is no smaller.
            let ulp = (f64::from(x.abs()) / 128.0).max(2.0_f64.powi(-133));
            assert!((mean - f64::from(x)).abs() < ulp / 50.0, "{x:e}: {mean:e}");
        }
        let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        let mut rounded = [bf16::ZERO; 3];
        round_at_random(&special, &draws, 0, &mut rounded);
        assert_eq!(rounded[..2], [bf16::INFINITY, bf16::NEG_INFINITY]);
        assert!(rounded[2].is_nan());
    }

    #[test]
    fn random_bits_depend_on_the_position_alone() {
        let draws = |start| Draws {
            seed: 3,
            offset: 5,
            start,
        };
        let x: Vec<f32> = (0..250_u16).map(|i| 1.0 + f32::from(i) / 1e5).collect();
        let mut whole = [bf16::ZERO; 250];
        round_at_random(&x, &draws(9), 0, &mut whole);
        for (start, at) in [(9, 121), (130, 0), (128, 2), (3, 127)] {
            let mut part = [bf16::ZERO; 129];
            round_at_random(&x[121..], &draws(start), at, &mut part);
            assert_eq!(whole[121..], part);
        }
    }
}
