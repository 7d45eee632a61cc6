//! In which order batches visit the data.

use std::fmt;

use highwater_data::permute;
use serde::{Deserialize, Serialize};

use super::DataError;

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

impl Cursor {
    /// Takes the next of so many things, from the first again when all were taken.
    pub(super) fn take(&mut self, count: u64, order: Order, seed: u64) -> u64 {
        if self.position >= count {
            self.epoch += 1;
            self.position = 0;
        }
        let at = self.position;
        self.position += 1;
        match order {
            Order::Sequential => at,
            Order::Shuffled => permute(at, count, seed, self.epoch),
        }
    }

    /// That data that ends there has this place.
    pub(super) fn check(self, end: u64) -> Result<(), DataError> {
        let Self { position, .. } = self;
        if position > end {
            return Err(DataError::Cursor { position, end });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use highwater_data::permute;
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
