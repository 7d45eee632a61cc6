//! What a walk left behind, so that the same one need not be done again.

use super::Simulator;
use crate::simulate::outcome::{Candidate, Outcome, Price};

/// What a whole walk came to.
#[derive(Debug, Default)]
pub(super) struct Left {
    settings: Vec<u8>,
    due: Vec<u32>,
    /// None until there was one.
    outcome: Option<Outcome>,
    high: Vec<u64>,
    replays: Vec<u32>,
}

impl Simulator<'_> {
    /// What moving a byte counts for.
    pub(crate) fn price(&self) -> &Price {
        &self.price
    }

    /// Sets that; answers what it was.
    pub(crate) fn set_price(&mut self, price: Price) -> Price {
        (self.whole, self.left.outcome) = (false, None);
        self.anchor.forget();
        std::mem::replace(&mut self.price, price)
    }

    /// Is again as after a walk of these settings, if that was the latest, or the latest that was kept.
    pub(super) fn recall(&mut self, settings: &[u8], due: &[u32]) -> Option<Outcome> {
        if self.whole && self.settings == settings && self.due == due {
            self.keep();
            return Some(self.outcome);
        }
        let left = &self.left;
        let outcome = left.outcome?;
        if left.settings != settings || left.due != due {
            return None;
        }
        self.settings.clone_from(&left.settings);
        self.due.clone_from(&left.due);
        self.high.clone_from(&left.high);
        self.replays.clone_from(&left.replays);
        (self.outcome, self.whole) = (outcome, true);
        Some(outcome)
    }

    /// Keeps what the latest walk came to.
    pub(super) fn keep(&mut self) {
        let left = &mut self.left;
        left.settings.clone_from(&self.settings);
        left.due.clone_from(&self.due);
        left.high.clone_from(&self.high);
        left.replays.clone_from(&self.replays);
        left.outcome = Some(self.outcome);
    }

    /// Leaves in `held` what is held at the peak and not used by its run. Counts as a whole walk.
    pub(crate) fn watch(&mut self, found: &Candidate) {
        if self.stand(&found.settings, &found.due).is_some() {
            self.watch_history();
            return;
        }
        let work = self.work + u64::from(found.outcome.runs);
        self.watch = found.outcome.peak_run;
        self.anchor(&found.settings, &found.due);
        let _ = self.walk(&found.settings, &found.due, &mut ());
        self.watch = u32::MAX;
        self.work = work;
    }
}
