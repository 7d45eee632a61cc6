//! Random numbers of a sample.

use crate::order::mix;
use highwater_ops::philox::Deviates;

/// Random numbers that are a function of a seed, an epoch, a sample's index, and how many were drawn before:
/// Philox 4x32-10, with a stream for each sample.
#[derive(Debug, Clone)]
pub struct Draws {
    stream: Deviates,
    drawn: [f32; 4],
    used: usize,
}

/// Numbers of which a draw of the generator is one.
const SCALE: u64 = 1 << 24;

impl Draws {
    /// The numbers of a sample in an epoch.
    pub fn new(seed: u64, epoch: u64, index: u64) -> Self {
        Self {
            stream: Deviates::new(mix(seed ^ mix(epoch)), index, false),
            drawn: [0.0; 4],
            used: 4,
        }
    }

    /// A number from 0 up and below 1, a multiple of `2^-24`.
    pub fn unit(&mut self) -> f32 {
        if self.used == self.drawn.len() {
            self.stream.fill(&mut self.drawn);
            self.used = 0;
        }
        self.used += 1;
        self.drawn[self.used - 1]
    }

    /// A number from `low` to `high`.
    pub fn uniform(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    /// Whether something of a probability happens.
    pub fn chance(&mut self, probability: f64) -> bool {
        f64::from(self.unit()) < probability
    }

    /// A whole number from 0 up and below `count`; 0 of none. Even to `count` in `2^48`.
    pub fn below(&mut self, count: usize) -> usize {
        let mut word = || (self.unit() * SCALE as f32) as u64;
        let drawn = word() * SCALE + word();
        ((u128::from(drawn) * count as u128) >> 48) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_seed_epoch_and_index_alone() {
        let draw = |seed, epoch, index| -> Vec<usize> {
            let mut draws = Draws::new(seed, epoch, index);
            (0..9).map(|_| draws.below(1_000_000)).collect()
        };
        assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
        for other in [draw(2, 2, 3), draw(1, 3, 3), draw(1, 2, 4)] {
            assert_ne!(draw(1, 2, 3), other);
        }
    }

    #[test]
    fn numbers_are_even() {
        let mut draws = Draws::new(5, 0, 0);
        let mut counts = [0; 7];
        for _ in 0..70_000 {
            counts[draws.below(7)] += 1;
            let x = draws.uniform(-1.0, 3.0);
            assert!((-1.0..=3.0).contains(&x));
        }
        assert!(
            counts.iter().all(|count| (9500..10500).contains(count)),
            "{counts:?}"
        );
        assert_eq!((draws.below(0), draws.below(1)), (0, 0));
        let heads = (0..10_000).filter(|_| draws.chance(0.25)).count();
        assert!((2300..2700).contains(&heads), "{heads}");
    }
}
