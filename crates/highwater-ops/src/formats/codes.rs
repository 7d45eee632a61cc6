//! Moments in a byte each.

#![expect(unsafe_code, reason = "code for several processors")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::simd::multiversion;

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

/// What a block's numbers are shares of.
#[inline(always)]
fn largest(block: &[f32]) -> f32 {
    // Bits of magnitudes are in the order of the magnitudes.
    let bits = block
        .iter()
        .fold(0, |most, x| most.max(x.to_bits() & 0x7fff_ffff));
    f32::from_bits(bits)
}

multiversion! {
    /// Codes of a block; answers its scale.
    pub(super) fn encode_signed(block: &[f32], codes: &mut [u8]) -> f32 {
        let scale = largest(block);
        let whole = if scale > 0.0 { scale } else { 1.0 };
        for (code, &x) in codes.iter_mut().zip(block) {
            let steps = (x.abs() / whole).sqrt().sqrt() * SIGNED + 0.5;
            *code = steps.copysign(x) as i32 as u8;
        }
        scale
    }
}

multiversion! {
    /// Codes of a block; answers its scale.
    pub(super) fn encode_unsigned(block: &[f32], codes: &mut [u8]) -> f32 {
        let scale = largest(block);
        let whole = if scale > 0.0 { scale } else { 1.0 };
        for (code, &x) in codes.iter_mut().zip(block) {
            let share = x.abs() / whole;
            let steps = share.sqrt().sqrt().sqrt() * UNSIGNED + 0.5;
            let least = i32::from(x != 0.0);
            *code = (steps as i32).max(least) as u8;
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
            let got = encode_unsigned(&wide, &mut again);
            assert_eq!(got.to_bits(), scale.to_bits());
            for (i, &x) in wide.iter().enumerate().filter(|(_, x)| x.is_normal()) {
                assert_eq!(again[i], codes[i], "{x:e}");
            }
            // -128 is no code.
            let signed: Vec<u8> = (-127..=127_i8).map(|code| code as u8).collect();
            decode_signed(&signed, scale, &mut wide[..255]);
            let got = encode_signed(&wide[..255], &mut again[..255]);
            assert_eq!(got.to_bits(), scale.to_bits());
            assert_eq!(again[..255], signed);
        }
    }

    #[test]
    fn nothing_small_becomes_nothing() {
        let mut block = [0.0; 256];
        (block[0], block[1], block[2]) = (1.0, 1e-30, f32::from_bits(1));
        let (mut codes, mut back) = ([9; 256], [0.0; 256]);
        let scale = encode_unsigned(&block, &mut codes);
        assert_eq!(codes[..4], [255, 1, 1, 0]);
        decode_unsigned(&codes, scale, &mut back);
        assert!(back[1] > 0.0 && back[3] == 0.0);
        let scale = encode_unsigned(&[0.0; 256], &mut codes);
        assert!(scale == 0.0 && codes == [0; 256]);
        let scale = encode_signed(&[-0.0; 256], &mut codes);
        assert!(scale == 0.0 && codes == [0; 256]);
    }

    /// Half a step of the code.
    #[test]
    fn numbers_are_as_near_as_they_are_said_to_be() {
        let block: Vec<f32> = (0..256_u16)
            .map(|i| f32::from(i + 2).powi(4) / 257_f32.powi(4))
            .collect();
        let (mut codes, mut back) = ([0; 256], [0.0; 256]);
        let scale = encode_unsigned(&block, &mut codes);
        decode_unsigned(&codes, scale, &mut back);
        for (x, got) in block.iter().zip(&back) {
            let step = 0.51 / 255.0 / x.powf(0.125);
            let (low, high) = ((1.0 - step).powi(8), (1.0 + step).powi(8));
            assert!((low..=high).contains(&(got / x)), "{x} {got}");
        }
        let signed: Vec<f32> = block.iter().map(|x| -x).collect();
        let scale = encode_signed(&signed, &mut codes);
        decode_signed(&codes, scale, &mut back);
        for (x, got) in signed.iter().zip(&back) {
            let step = 0.51 / 127.0 / x.abs().powf(0.25);
            let (low, high) = ((1.0 - step).powi(4), (1.0 + step).powi(4));
            assert!((low..=high).contains(&(got / x)), "{x} {got}");
        }
    }
}
