//! In which order batches visit the data.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The order in which sequences are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// From front to back, batch after batch, as llm.c does.
    #[default]
    Sequential,
    /// All sequences in an order drawn anew for each epoch.
    Shuffled,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sequential => "sequential",
            Self::Shuffled => "shuffled",
        })
    }
}

/// Where in the data the next batch starts: with the seed and the data, all that resuming needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// How many times all of the data has been seen.
    pub epoch: u64,
    /// Within this epoch: in tokens for [`Order::Sequential`], in sequences for
    /// [`Order::Shuffled`].
    pub position: u64,
}

/// Where `index` goes in a permutation of `0..count` that `seed` and `epoch` choose. Needs no memory:
/// a Feistel network over the next power of four, walked until it is back in range.
///
/// `index` must be below `count`.
pub fn permute(index: u64, count: u64, seed: u64, epoch: u64) -> u64 {
    // Half the bits of the domain, at least one; the domain is less than four times `count`.
    let half_bits = (u64::BITS - count.saturating_sub(1).leading_zeros())
        .div_ceil(2)
        .max(1);
    let mask = (1 << half_bits) - 1;
    let key = mix(seed ^ mix(epoch));
    let mut at = index;
    loop {
        let (mut left, mut right) = (at >> half_bits, at & mask);
        for round in 0..6 {
            let drawn = mix(key ^ mix(right ^ (round << 56)));
            (left, right) = (right, left ^ (drawn & mask));
        }
        at = (left << half_bits) | right;
        if at < count {
            return at;
        }
    }
}

/// Scatters the bits of a number (the finaliser of SplitMix64).
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_positions_stay_what_they_are() {
        // A resumed run must find the order that it left: these numbers may never change.
        let first: Vec<_> = (0..8).map(|i| permute(i, 1000, 42, 0)).collect();
        assert_eq!(first, [521, 765, 315, 325, 202, 6, 147, 825]);
    }

    proptest! {
        #[test]
        fn it_is_a_permutation(count in 1_u64..2000, seed in any::<u64>(), epoch in 0_u64..4) {
            let mut all: Vec<_> = (0..count).map(|i| permute(i, count, seed, epoch)).collect();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..count));
        }

        #[test]
        fn large_counts_stay_in_range(count in 1..=u64::MAX, index in any::<u64>(), seed in any::<u64>()) {
            prop_assert!(permute(index % count, count, seed, 0) < count);
        }

        #[test]
        fn epochs_differ(seed in any::<u64>()) {
            let order = |epoch| (0..100).map(|i| permute(i, 100, seed, epoch)).collect::<Vec<_>>();
            prop_assert_ne!(order(0), order(1));
        }
    }
}
