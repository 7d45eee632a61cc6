//! The best settings found for each peak.

use crate::simulate::Candidate;
use std::collections::BTreeMap;

/// For each peak the fastest settings found; slower ones with a higher peak are dropped.
#[derive(Debug, Default)]
pub(crate) struct Archive<'a> {
    best: BTreeMap<u64, Candidate>,
    /// What was known before: only what is better is taken beside it.
    known: Option<&'a Archive<'a>>,
    /// How many offers were taken.
    pub(crate) taken: u64,
}

impl<'a> Archive<'a> {
    /// For what is better than all that is known.
    pub(crate) fn beside(known: &'a Archive<'a>) -> Archive<'a> {
        Archive {
            known: Some(known),
            ..Archive::default()
        }
    }

    pub(crate) fn offer(&mut self, found: &Candidate) {
        let outcome = found.outcome;
        let best = self.within(outcome.peak);
        if best.is_some_and(|best| best.outcome.seconds <= outcome.seconds) {
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
        let own = self.best.range(..=bytes).next_back();
        let own = own.map(|(_, found)| found);
        let known = self.known.and_then(|known| known.within(bytes));
        let both = known.into_iter().chain(own);
        both.min_by(|a, b| a.outcome.seconds.total_cmp(&b.outcome.seconds))
    }

    /// All that was taken, least peak first.
    pub(crate) fn all(&self) -> impl DoubleEndedIterator<Item = &Candidate> {
        self.best.values()
    }
}
