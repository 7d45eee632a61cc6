//! The best settings found for each peak.

use crate::outcome::Candidate;
use std::collections::BTreeMap;

/// For each peak the fastest settings found; slower ones with a higher peak are dropped.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    best: BTreeMap<u64, Candidate>,
    /// How many offers were taken.
    pub(crate) taken: u64,
}

impl Archive {
    pub(crate) fn offer(&mut self, found: &Candidate) {
        let outcome = found.outcome;
        let below = self.best.range(..=outcome.peak).next_back();
        if below.is_some_and(|(_, f)| f.outcome.seconds <= outcome.seconds) {
            return;
        }
        let worse: Vec<u64> = self
            .best
            .range(outcome.peak..)
            .take_while(|(_, f)| f.outcome.seconds >= outcome.seconds)
            .map(|(&peak, _)| peak)
            .collect();
        for peak in worse {
            self.best.remove(&peak);
        }
        self.best.insert(outcome.peak, found.clone());
        self.taken += 1;
    }

    /// The fastest with a peak of at most `bytes`.
    pub(crate) fn within(&self, bytes: u64) -> Option<&Candidate> {
        self.best
            .range(..=bytes)
            .next_back()
            .map(|(_, found)| found)
    }

    /// All, least peak first.
    pub(crate) fn all(&self) -> impl DoubleEndedIterator<Item = &Candidate> {
        self.best.values()
    }
}
