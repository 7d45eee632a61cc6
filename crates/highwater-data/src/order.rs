//! In which order samples are taken.

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
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
