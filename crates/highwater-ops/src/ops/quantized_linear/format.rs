//! Weights in few bits: blocks of numbers with a scale each.
//!
//! Signed bytes are one multiplication each, in a loop that the compiler makes vectors of. Of NF4 the 16
//! numbers are multiplied by a block's scale first, and each byte is two look-ups in those, 64 bytes that
//! stay in the first cache.

use crate::kernels::simd::multiversion;

/// How a weight that is not trained is held: 64 numbers of a row in a block, each a code of its share of
/// the largest magnitude of the block, which is held in `F32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// A signed byte: steps of 1/127.
    Int8,
    /// Four bits, two codes in a byte, the first of them in its upper half: the 16 numbers of NF4, which
    /// normal deviates fill evenly (Dettmers et al., "QLoRA", 2023; `bitsandbytes`' `quant_type="nf4"`).
    Nf4,
}

/// What the codes of NF4 stand for.
const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

multiversion! {
    fn decode_bytes(codes: &[u8], step: f32, to: &mut [f32]) {
        for (to, &code) in to.iter_mut().zip(codes) {
            *to = f32::from(code as i8) * step;
        }
    }
}

impl WeightFormat {
    /// Numbers that share a scale.
    pub const BLOCK: usize = 64;

    /// Bytes of the codes of a row of so many numbers.
    pub const fn row_bytes(self, width: usize) -> usize {
        match self {
            Self::Int8 => width,
            Self::Nf4 => width.div_ceil(2),
        }
    }

    /// How many scales such a row has.
    pub const fn scales(width: usize) -> usize {
        width.div_ceil(Self::BLOCK)
    }

    /// Codes and scales of a row: each number's nearest code.
    ///
    /// # Panics
    /// Unless there is room for just so many codes and scales.
    pub fn quantize(self, row: &[f32], codes: &mut [u8], scales: &mut [f32]) {
        let width = row.len();
        assert!(
            codes.len() == self.row_bytes(width) && scales.len() == Self::scales(width),
            "codes and scales must be as many as a row has"
        );
        codes.fill(0);
        for (i, (block, scale)) in row.chunks(Self::BLOCK).zip(scales).enumerate() {
            *scale = block.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
            for (k, &x) in block.iter().enumerate() {
                let share = if *scale > 0.0 { x / *scale } else { 0.0 };
                let at = i * Self::BLOCK + k;
                match self {
                    Self::Int8 => codes[at] = (share * 127.0).round_ties_even() as i8 as u8,
                    Self::Nf4 => {
                        let middles = NF4.windows(2).map(|pair| f32::midpoint(pair[0], pair[1]));
                        let code = middles.filter(|&middle| share > middle).count() as u8;
                        codes[at / 2] |= if at % 2 == 0 { code << 4 } else { code };
                    }
                }
            }
        }
    }

    /// The numbers of a row by its codes and scales, as products read them.
    ///
    /// # Panics
    /// Unless codes and scales are as many as a row of so many numbers has.
    pub fn dequantize(self, codes: &[u8], scales: &[f32], row: &mut [f32]) {
        let width = row.len();
        assert!(
            codes.len() == self.row_bytes(width) && scales.len() == Self::scales(width),
            "codes and scales must be as many as a row has"
        );
        for (i, (block, &scale)) in row.chunks_mut(Self::BLOCK).zip(scales).enumerate() {
            self.decode(codes, scale, i * Self::BLOCK, block);
        }
    }

    /// The numbers of a row from the `start`-th on, of one block.
    pub(super) fn decode(self, codes: &[u8], scale: f32, start: usize, to: &mut [f32]) {
        match self {
            Self::Int8 => decode_bytes(&codes[start..start + to.len()], scale / 127.0, to),
            Self::Nf4 => {
                let numbers = NF4.map(|share| share * scale);
                let number = |code: u8| numbers[usize::from(code & 15)];
                // An odd start is the lower half of a byte.
                let (first, rest) = to.split_at_mut((start % 2).min(to.len()));
                for to in first {
                    *to = number(codes[start / 2]);
                }
                let (pairs, last) = rest.as_chunks_mut::<2>();
                let codes = &codes[start.div_ceil(2)..];
                for (to, &code) in pairs.iter_mut().zip(codes) {
                    *to = [number(code >> 4), number(code)];
                }
                for to in last {
                    *to = number(codes[pairs.len()] >> 4);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_nearest_and_come_back_from_anywhere() {
        for format in [WeightFormat::Int8, WeightFormat::Nf4] {
            let row: Vec<f32> = (0..151_u16)
                .map(|i| (f32::from(i) * 0.7).sin() * f32::from(1 + i / 64))
                .collect();
            let mut codes = vec![0xa5; format.row_bytes(row.len())];
            let mut scales = vec![0.0; WeightFormat::scales(row.len())];
            format.quantize(&row, &mut codes, &mut scales);
            let mut whole = vec![0.0; row.len()];
            for (i, to) in whole.chunks_mut(WeightFormat::BLOCK).enumerate() {
                format.decode(&codes, scales[i], i * WeightFormat::BLOCK, to);
            }
            let levels: Vec<f32> = match format {
                WeightFormat::Int8 => (-127..=127_i8).map(|k| f32::from(k) / 127.0).collect(),
                WeightFormat::Nf4 => NF4.to_vec(),
            };
            for (i, (&x, &held)) in row.iter().zip(&whole).enumerate() {
                let scale = scales[i / WeightFormat::BLOCK];
                let nearest = levels.iter().map(|level| (level * scale - x).abs());
                let nearest = nearest.fold(f32::INFINITY, f32::min);
                assert!(((held - x).abs() - nearest).abs() < 1e-5, "{i}: {x} {held}");
            }
            for (start, end) in [
                (0, 1),
                (1, 2),
                (1, 64),
                (63, 64),
                (65, 70),
                (150, 151),
                (128, 151),
            ] {
                let mut part = vec![0.0; end - start];
                let scale = scales[start / WeightFormat::BLOCK];
                format.decode(&codes, scale, start, &mut part);
                assert_eq!(part, whole[start..end], "{format:?} {start} {end}");
            }
            let zeros = vec![0.0; row.len()];
            format.quantize(&zeros, &mut codes, &mut scales);
            assert!(scales.iter().all(|&scale| scale == 0.0));
        }
    }
}
