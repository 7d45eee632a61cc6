//! Moments in a byte each.
//!
//! A code is a root: decoding multiplies and encoding takes square roots, which processors have for vectors,
//! so that no table is looked up and nothing branches, and each direction is one loop over a block that the
//! compiler makes vectors of. The scale is a maximum of bits, which no order changes; chance is mixed by
//! whole-number arithmetic from a number, its place, the scale and the step, whichever thread does it. An
//! update takes three times as long as one of moments in `f32`, most of it for the three roots of each second
//! moment (BENCHMARKS.md).

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::simd::multiversion;

/// Elements that share a scale.
pub(crate) const BLOCK: usize = 256;

/// Steps of the code of a moment that has a sign, in each direction.
const SIGNED: f32 = 127.0;
/// Steps of the code of one that has none.
const UNSIGNED: f32 = 255.0;

#[inline(always)]
fn squared(x: f32) -> f32 {
    x * x
}

multiversion! {
    /// The moments of a block.
    pub(super) fn decode_signed(codes: &[u8], scale: f32, to: &mut [f32]) {
        for (to, &code) in to.iter_mut().zip(codes) {
            let code = f32::from(code as i8);
            let share = squared(squared(code / SIGNED)) * scale;
            *to = share.copysign(code);
        }
    }
}

multiversion! {
    /// The moments of a block.
    pub(super) fn decode_unsigned(codes: &[u8], scale: f32, to: &mut [f32]) {
        for (to, &code) in to.iter_mut().zip(codes) {
            let share = squared(squared(squared(f32::from(code) / UNSIGNED)));
            *to = share * scale;
        }
    }
}

/// What a block's numbers are shares of: finite, as 0 times it must be 0.
#[inline(always)]
fn largest(block: &[f32]) -> f32 {
    // Bits of magnitudes are in the order of the magnitudes.
    let bits = block
        .iter()
        .fold(0, |most, x| most.max(x.to_bits() & 0x7fff_ffff));
    f32::from_bits(bits.min(f32::MAX.to_bits()))
}

/// A number from 0 to below 1 that nothing else depends on: mixed from the bits of what is held, and from a
/// seed, the place in the block and the scale, which differ from step to step and from block to block.
#[inline(always)]
fn by_chance(x: f32, seed: u32, i: usize) -> f32 {
    let mut bits = x.to_bits() ^ seed ^ (i as u32).wrapping_mul(0x9e37_79b9);
    for factor in [0x7feb_352d, 0x846c_a68b] {
        bits ^= bits >> 16;
        bits = bits.wrapping_mul(factor);
        bits ^= bits >> 15;
    }
    (bits >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// Of a whole number from -127 to 255, in two's complement. Conversions of other numbers have more to do.
#[inline(always)]
fn low_byte(whole: f32) -> u8 {
    const ONES: f32 = 12_582_912.0;
    (whole + ONES).to_bits() as u8
}

/// One of the two steps around a root, the nearer its power is to the share the likelier.
#[inline(always)]
fn one_of_two(root: f32, share: f32, chance: f32, power: impl Fn(f32) -> f32) -> f32 {
    let below = root.floor();
    let (low, high) = (power(below), power(below + 1.0));
    let up = share - low > chance * (high - low);
    below + if up { 1.0 } else { 0.0 }
}

/// What chance depends on in a block.
#[inline(always)]
fn seed(scale: f32, step: u64) -> u32 {
    scale.to_bits().rotate_left(16) ^ (step as u32).wrapping_mul(0x85eb_ca6b)
}

multiversion! {
    /// Codes of a block; answers its scale.
    pub(super) fn encode_signed(block: &[f32], step: u64, codes: &mut [u8]) -> f32 {
        let scale = largest(block);
        let seed = seed(scale, step);
        let whole = if scale > 0.0 { scale } else { 1.0 };
        for (i, (code, &x)) in codes.iter_mut().zip(block).enumerate() {
            let share = (x.abs() / whole).min(1.0);
            let root = share.sqrt().sqrt() * SIGNED;
            let power = |steps: f32| squared(squared(steps / SIGNED));
            let steps = one_of_two(root, share, by_chance(x, seed, i), power);
            // What is below the least step by itself is 0, or it would be far above what it is.
            let steps = if root < 1.0 { 0.0 } else { steps };
            *code = low_byte(steps.copysign(x));
        }
        scale
    }
}

multiversion! {
    /// Codes of a block; answers its scale.
    pub(super) fn encode_unsigned(block: &[f32], step: u64, codes: &mut [u8]) -> f32 {
        let scale = largest(block);
        let seed = seed(scale, step);
        let whole = if scale > 0.0 { scale } else { 1.0 };
        for (i, (code, &x)) in codes.iter_mut().zip(block).enumerate() {
            let share = (x.abs() / whole).min(1.0);
            let root = share.sqrt().sqrt().sqrt() * UNSIGNED;
            let power = |steps: f32| squared(squared(squared(steps / UNSIGNED)));
            let steps = one_of_two(root, share, by_chance(x, seed, i), power);
            // It is divided by.
            let least = if x == 0.0 { 0.0 } else { 1.0 };
            *code = low_byte(steps.max(least));
        }
        scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_stay_what_they_are() {
        let codes: Vec<u8> = (0..=255).collect();
        for scale in [1.0, 0.3, 1e-30, 7e20] {
            let (mut wide, mut again) = ([0.0; 256], [0; 256]);
            decode_unsigned(&codes, scale, &mut wide);
            assert_eq!(wide[255].to_bits(), scale.to_bits());
            // What is too small for an `f32` is 0.
            let got = encode_unsigned(&wide, 3, &mut again);
            assert_eq!(got.to_bits(), scale.to_bits());
            for (i, &x) in wide.iter().enumerate().filter(|(_, x)| x.is_normal()) {
                assert_eq!(again[i], codes[i], "{x:e}");
            }
            // -128 is no code.
            let signed: Vec<u8> = (-127..=127_i8).map(|code| code as u8).collect();
            decode_signed(&signed, scale, &mut wide[..255]);
            let got = encode_signed(&wide[..255], 3, &mut again[..255]);
            assert_eq!(got.to_bits(), scale.to_bits());
            assert_eq!(again[..255], signed);
        }
    }

    #[test]
    fn nothing_small_becomes_nothing() {
        let mut block = [0.0; 256];
        (block[0], block[1], block[2]) = (1.0, 1e-30, f32::from_bits(1));
        let (mut codes, mut back) = ([9; 256], [0.0; 256]);
        let scale = encode_unsigned(&block, 7, &mut codes);
        assert_eq!(codes[..4], [255, 1, 1, 0]);
        decode_unsigned(&codes, scale, &mut back);
        assert!(back[1] > 0.0 && back[3] == 0.0);
        let scale = encode_unsigned(&[0.0; 256], 7, &mut codes);
        assert!(scale == 0.0 && codes == [0; 256]);
        let scale = encode_signed(&[-0.0; 256], 7, &mut codes);
        assert!(scale == 0.0 && codes == [0; 256]);
    }

    /// A step of the code.
    #[test]
    fn numbers_are_as_near_as_they_are_said_to_be() {
        let block: Vec<f32> = (0..256_u16)
            .map(|i| f32::from(i + 2).powi(4) / 257_f32.powi(4))
            .collect();
        let (mut codes, mut back) = ([0; 256], [0.0; 256]);
        let scale = encode_unsigned(&block, 7, &mut codes);
        decode_unsigned(&codes, scale, &mut back);
        for (x, got) in block.iter().zip(&back) {
            let step = 1.01 / 255.0 / x.powf(0.125);
            let (low, high) = ((1.0 - step).powi(8), (1.0 + step).powi(8));
            assert!((low..=high).contains(&(got / x)), "{x} {got}");
        }
        let signed: Vec<f32> = block.iter().map(|x| -x).collect();
        let scale = encode_signed(&signed, 7, &mut codes);
        decode_signed(&codes, scale, &mut back);
        for (x, got) in signed.iter().zip(&back) {
            let step = 1.01 / 127.0 / x.abs().powf(0.25);
            let (low, high) = ((1.0 - step).max(0.0).powi(4), (1.0 + step).powi(4));
            assert!((low..=high).contains(&(got / x)), "{x} {got}");
        }
    }

    /// What decays each time by much less than a step of its code.
    #[test]
    fn what_decays_slowly_decays() {
        type Encode = fn(&[f32], u64, &mut [u8]) -> f32;
        type Decode = fn(&[u8], f32, &mut [f32]);
        let signed: (Encode, Decode) = (encode_signed, decode_signed);
        for (encode, decode) in [signed, (encode_unsigned, decode_unsigned)] {
            for start in [1e-2, 1e-4] {
                let mut block = [start; 256];
                let mut codes = [0; 256];
                for step in 0..1000 {
                    block[0] = 1.0;
                    let scale = encode(&block, step, &mut codes);
                    decode(&codes, scale, &mut block);
                    for x in &mut block[1..] {
                        *x *= 0.998;
                    }
                }
                let mean = block[1..].iter().sum::<f32>() / 255.0;
                let exact = start * 0.998_f32.powi(1000);
                assert!((mean / exact - 1.0).abs() < 0.3, "{mean:e}, {exact:e}");
            }
        }
    }
}
