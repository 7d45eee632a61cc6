//! The hash of a payload: XXH3 with 128 bits, at the pace of memory.
//!
//! Payloads are hashed as they travel, beside kernels that want the processor. A stream of the
//! library's copies every byte through a buffer of its own; here the long form of XXH3 (Collet, the
//! xxHash specification, XXH3 for more than 240 bytes) reads them where they are, asks for memory ahead
//! of time, and uses what vectors the processor has. Short payloads are left to the library.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "vectors and hints of the processor")
)]
#![expect(clippy::inline_always, reason = "for the vectors of who calls")]

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_128;

/// Up to so many bytes XXH3 has other forms.
const SHORT: usize = 240;
/// Bytes that are taken in at a time.
const STRIPE: usize = 64;
/// Bytes after which the state is scrambled.
const ROUND: usize = 1024;
/// How far ahead memory is asked for: across pages, where the processor does not by itself.
const AHEAD: usize = 8192;

const PRIME32: [u64; 3] = [0x9E37_79B1, 0x85EB_CA77, 0xC2B2_AE3D];
const PRIME64: [u64; 5] = [
    0x9E37_79B1_85EB_CA87,
    0xC2B2_AE3D_27D4_EB4F,
    0x1656_67B1_9E37_79F9,
    0x85EB_CA77_C2B2_AE63,
    0x27D4_EB2F_1656_67C5,
];
const AVALANCHE: u64 = 0x1656_6791_9E37_79F9;

/// The secret of the specification.
const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

/// The hash of a payload, as far as its bytes have been seen; while they travel, that costs no time.
pub(super) struct Hash {
    state: Stripes,
    /// Where the payload starts in the transfer.
    start: usize,
    /// Up to where in the transfer it is hashed: whole stripes.
    at: usize,
    /// Where in the transfer its last whole stripe starts, if it ends with its whole blocks.
    last: usize,
}

impl Hash {
    /// Of a payload whose whole blocks are these of the transfer.
    pub(super) fn of_bytes(transferred: Range<usize>) -> Self {
        Self {
            state: Stripes::new(),
            start: transferred.start,
            at: transferred.start,
            last: transferred.end.saturating_sub(STRIPE),
        }
    }

    /// That sees nothing.
    pub(super) fn none() -> Self {
        Self::of_bytes(0..0)
    }

    /// Sees a transfer's bytes in order, from this one on.
    pub(super) fn from(&mut self, mut from: usize) -> impl FnMut(&[u8]) {
        move |bytes| {
            let end = bytes.len().min(self.last.saturating_sub(from));
            let skip = self.at.checked_sub(from);
            if let Some(new) = skip.and_then(|skip| bytes.get(skip..end)) {
                let new = &new[..new.len() / STRIPE * STRIPE];
                self.state.take(new);
                self.at += new.len();
            }
            from += bytes.len();
        }
    }

    /// The hash of the payload, those of its bytes included that were not seen.
    pub(super) fn finish(mut self, payload: &[u8]) -> u128 {
        let Some(last) = payload
            .len()
            .checked_sub(STRIPE)
            .filter(|_| payload.len() > SHORT)
        else {
            return xxh3_128(payload);
        };
        let whole = (payload.len() - 1) / STRIPE * STRIPE;
        self.state.take(&payload[self.at - self.start..whole]);
        self.state.end(&payload[last..], payload.len() as u64)
    }
}

/// The hash of bytes that are all there.
pub(crate) fn hash_of(bytes: &[u8]) -> u128 {
    Hash::none().finish(bytes)
}

/// What the stripes so far have come to.
struct Stripes {
    lanes: [u64; 8],
    /// Where in a round the next stripe is.
    at: usize,
}

impl Stripes {
    fn new() -> Self {
        let [p1, p2, p3, p4, p5] = PRIME64;
        let [q1, q2, q3] = PRIME32;
        Self {
            lanes: [q3, p1, p2, p3, p4, q2, p5, q1],
            at: 0,
        }
    }

    /// Takes whole stripes that are not the last bytes of the message.
    fn take(&mut self, stripes: &[u8]) {
        debug_assert!(stripes.len().is_multiple_of(STRIPE));
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
                // SAFETY: the processor has what the function wants.
                return unsafe { self.take_avx512(stripes) };
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: as above.
                return unsafe { self.take_avx2(stripes) };
            }
        }
        self.take_here(stripes);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn take_avx512(&mut self, stripes: &[u8]) {
        self.take_here(stripes);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn take_avx2(&mut self, stripes: &[u8]) {
        self.take_here(stripes);
    }

    #[inline(always)]
    fn take_here(&mut self, mut stripes: &[u8]) {
        let mut lanes = self.lanes;
        while !stripes.is_empty() {
            let (round, later) = stripes.split_at(stripes.len().min(ROUND - self.at));
            let secrets = SECRET[self.at / 8..].windows(STRIPE).step_by(8);
            for (stripe, secret) in round.chunks_exact(STRIPE).zip(secrets) {
                prefetch(stripe.as_ptr().wrapping_add(AHEAD));
                accumulate(&mut lanes, stripe, secret);
            }
            self.at += round.len();
            if self.at == ROUND {
                self.at = 0;
                scramble(&mut lanes);
            }
            stripes = later;
        }
        self.lanes = lanes;
    }

    /// Takes the last bytes, a stripe that may repeat some, of a message of so many bytes.
    fn end(mut self, last: &[u8], bytes: u64) -> u128 {
        accumulate(&mut self.lanes, last, &SECRET[121..]);
        let low = self.merge(11, bytes.wrapping_mul(PRIME64[0]));
        let high = self.merge(117, !bytes.wrapping_mul(PRIME64[1]));
        u128::from(high) << 64 | u128::from(low)
    }

    fn merge(&self, secret: usize, start: u64) -> u64 {
        let secret = SECRET[secret..].chunks_exact(16);
        let pairs = self.lanes.chunks_exact(2).zip(secret);
        let sum = pairs.fold(start, |sum, (lanes, secret)| {
            let factor = |i: usize| u128::from(lanes[i] ^ word(secret, i));
            let product = factor(0) * factor(1);
            sum.wrapping_add(product as u64 ^ (product >> 64) as u64)
        });
        let mixed = (sum ^ sum >> 37).wrapping_mul(AVALANCHE);
        mixed ^ mixed >> 32
    }
}

/// The `i`th word of some bytes.
#[inline(always)]
fn word(bytes: &[u8], i: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[8 * i..8 * i + 8]);
    u64::from_le_bytes(word)
}

#[inline(always)]
fn accumulate(lanes: &mut [u64; 8], stripe: &[u8], secret: &[u8]) {
    let words: [u64; 8] = std::array::from_fn(|i| word(stripe, i));
    for i in 0..8 {
        let keyed = words[i] ^ word(secret, i);
        let product = (keyed & 0xFFFF_FFFF).wrapping_mul(keyed >> 32);
        lanes[i] = lanes[i].wrapping_add(words[i ^ 1]).wrapping_add(product);
    }
}

#[inline(always)]
fn scramble(lanes: &mut [u64; 8]) {
    for (i, lane) in lanes.iter_mut().enumerate() {
        let mixed = *lane ^ *lane >> 47 ^ word(&SECRET[128..], i);
        *lane = mixed.wrapping_mul(PRIME32[0]);
    }
}

/// Brings the line of memory near, if that is the processor's to do; a hint, for any address.
#[inline(always)]
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every processor of this kind has it, and it faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The hash of a payload that was seen in pieces, some lost.
    fn seen(payload: &[u8], pieces: &[(usize, bool)]) -> u128 {
        let whole = payload.len() / 4096 * 4096;
        let mut hash = Hash::of_bytes(0..whole);
        let mut at = 0;
        for &(bytes, lost) in pieces {
            let end = (at + bytes).min(whole);
            if !lost {
                hash.from(at)(&payload[at..end]);
            }
            at = end;
        }
        hash.finish(payload)
    }

    proptest! {
        #[test]
        fn a_hash_is_that_of_the_library(
            bytes in prop_oneof![0..600usize, 0..40_000usize],
            whole: bool,
            seed: u64,
            pieces in prop::collection::vec((0..9000usize, prop::bool::weighted(0.1)), 0..12),
            even: bool,
        ) {
            let bytes = if whole { bytes / 4096 * 4096 } else { bytes };
            let random = |i: usize| (seed ^ i as u64).wrapping_mul(PRIME64[2]) >> 40;
            let payload: Vec<u8> = (0..bytes).map(|i| random(i) as u8).collect();
            let piece = |&(bytes, lost): &(usize, bool)| (if even { bytes / 512 * 512 } else { bytes }, lost);
            let pieces: Vec<(usize, bool)> = pieces.iter().map(piece).collect();
            prop_assert_eq!(seen(&payload, &pieces), xxh3_128(&payload));
            let mut portable = Stripes::new();
            if bytes > SHORT {
                portable.take_here(&payload[..(bytes - 1) / STRIPE * STRIPE]);
                let ended = portable.end(&payload[bytes - STRIPE..], bytes as u64);
                prop_assert_eq!(ended, xxh3_128(&payload));
            }
        }
    }
}
