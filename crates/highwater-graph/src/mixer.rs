//! A fast hash with the same answers everywhere.

use std::hash::{BuildHasherDefault, Hasher};

/// Mixes words by multiplications folded to 64 bits, as wyhash does. Faster than the standard
/// library's for keys of a few words, without its defence against keys that are chosen to collide:
/// for what decides about speed or is compared in full afterwards.
#[derive(Debug, Default, Clone, Copy)]
pub struct Mixer(u64);

/// Makes a [`Mixer`] for each key of a map.
pub type BuildMixer = BuildHasherDefault<Mixer>;

/// Odd, with about as many ones as zeros in each part.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Mixer {
    fn word(&mut self, word: u64) {
        // Zeros count too: what is mixed in is never just the sum of what came before.
        let product = u128::from(self.0 ^ word).wrapping_add(1) * u128::from(FACTOR);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for &word in words {
            self.word(u64::from_le_bytes(word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.word(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.word(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.word(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.word(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::hash::Hash;

    fn hash(key: impl Hash) -> u64 {
        let mut mixer = Mixer::default();
        key.hash(&mut mixer);
        mixer.finish()
    }

    #[test]
    fn short_keys_do_not_collide_in_whole_or_in_either_half() {
        let pairs = (0..300_u64).flat_map(|a| (0..300_u32).map(move |b| (a, b)));
        let hashes: Vec<u64> = pairs.map(hash).collect();
        let distinct: BTreeSet<u64> = hashes.iter().copied().collect();
        assert_eq!(distinct.len(), hashes.len());
        // Of 90,000 random numbers of 32 bits, about one pair is equal.
        for half in [0, 32] {
            let halves: BTreeSet<u32> = hashes.iter().map(|h| (h >> half) as u32).collect();
            assert!(halves.len() + 20 > hashes.len(), "{}", halves.len());
        }
    }

    #[test]
    fn order_length_and_zeros_count() {
        let keys: [&[u64]; 6] = [&[], &[0], &[0, 0], &[1, 0], &[0, 1], &[1]];
        let distinct: BTreeSet<u64> = keys.into_iter().map(hash).collect();
        assert_eq!(distinct.len(), keys.len());
        assert_ne!(hash("linear"), hash("linear_backward"));
    }
}
