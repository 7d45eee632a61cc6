//! The way back up: lowers settings wherever that saves time and still fits.

use crate::problem::ValueId;
use crate::search::Search;
use crate::search::levels::Levels;
use crate::simulate::setting::{KEEP, NEVER, RELEASE, awaited, spilled};
use crate::simulate::{self, Candidate};
use std::ops::Range;

/// Settings tried in vain, one after the other, before polishing is given up.
const MISSES: u32 = 48;

/// Values that are tried to be kept in place of others.
const SWAPS: usize = 10;

impl Search<'_> {
    /// Fills what room there is under a budget, to a fixed point.
    pub(crate) fn polish(&mut self, mut found: Candidate, budget: u64) -> Candidate {
        while !self.spent() && (self.fill(&mut found, budget) || self.single(&mut found, budget)) {}
        found
    }

    /// Polishes, and swaps values as long as that saves time.
    pub(crate) fn refine(&mut self, found: Candidate, budget: u64) -> Candidate {
        let mut found = self.polish(found, budget);
        while !self.spent() && self.swap(&mut found, budget) {
            found = self.polish(found, budget);
        }
        found
    }

    /// Keeps one of the dearest dropped values, and drops others for it.
    fn swap(&mut self, found: &mut Candidate, budget: u64) -> bool {
        if self.simulator.run(&found.settings, &found.due).is_err() {
            return false;
        }
        for (_, v, k) in self.repeated(&found.settings).into_iter().take(SWAPS) {
            let gap = self.program.gap(v) + k;
            if k == self.program.uses(v).len() || self.limits.low[gap] != KEEP {
                continue;
            }
            let mut settings = found.settings.clone();
            settings[gap] = KEEP;
            let next = self.try_settings(settings, &found.due);
            let next = next.filter(|next| faster(next, found));
            let next = next.and_then(|next| self.lower(next, budget));
            if let Some(next) = next.filter(|next| faster(next, found)) {
                *found = next;
                return true;
            }
        }
        false
    }

    /// Keeps as many dropped values as there seems to be room for, dearest by byte first. What
    /// they take while they are recomputed is counted twice, so the guess is on the safe side.
    fn fill(&mut self, found: &mut Candidate, budget: u64) -> bool {
        if self.simulator.run(&found.settings, &found.due).is_err() {
            return false;
        }
        let mut high = Levels::new(&self.simulator.high);
        let mut batch = Vec::new();
        for (_, v, k) in self.repeated(&found.settings) {
            let home = k == 0 && self.program.is_cell(v);
            let tail = k == self.program.uses(v).len() && !home;
            let gap = self.program.gap(v) + k;
            if tail || self.limits.low[gap] != KEEP || self.crowded(&high, v, k, budget) {
                continue;
            }
            high.raise(self.kept_span(v, k), self.program.size[v.index()]);
            batch.push(gap);
        }
        while !batch.is_empty() && !self.spent() {
            let mut settings = found.settings.clone();
            for &gap in &batch {
                settings[gap] = KEEP;
            }
            if self.accept(found, settings, budget) {
                return true;
            }
            batch.truncate(batch.len() / 2);
        }
        false
    }

    /// Tries each setting by itself.
    fn single(&mut self, found: &mut Candidate, budget: u64) -> bool {
        if self.simulator.run(&found.settings, &found.due).is_err() {
            return false;
        }
        let mut high = Levels::new(&self.simulator.high);
        let (mut better, mut misses) = (false, 0);
        for (_, v, k) in self.repeated(&found.settings) {
            let gap = self.program.gap(v) + k;
            let home = k == 0 && self.program.is_cell(v);
            let tail = k == self.program.uses(v).len() && !home;
            let crowded = self.crowded(&high, v, k, budget);
            if crowded && found.settings[gap] == 1 {
                continue;
            }
            for setting in lower_settings(found.settings[gap], tail) {
                if misses == MISSES || self.spent() {
                    return better;
                }
                let low = self.limits.low[gap];
                let allowed = tail || setting >= low && (awaited(setting).is_none() || low == KEEP);
                if !allowed || setting == KEEP && crowded {
                    continue;
                }
                let mut settings = found.settings.clone();
                settings[gap] = setting;
                if self.accept(found, settings, budget) {
                    high = Levels::new(&self.simulator.high);
                    (better, misses) = (true, 0);
                    break;
                }
                misses += 1;
            }
        }
        better
    }

    /// Takes settings if they fit and save time.
    fn accept(&mut self, found: &mut Candidate, settings: Vec<u8>, budget: u64) -> bool {
        let than = found.outcome.seconds;
        let Some(next) = self.attempt(settings, &found.due, budget, than) else {
            return false;
        };
        let better = faster(&next, found);
        if better {
            *found = next;
            self.simulator.anchor(&found.settings, &found.due);
        }
        better
    }

    /// Gaps with recomputations in the latest simulation, dearest by byte first.
    fn repeated(&self, settings: &[u8]) -> Vec<(f64, ValueId, usize)> {
        let mut list = Vec::new();
        for v in ValueId::below(self.program.size.len()) {
            for k in 0..=self.program.uses(v).len() {
                let gap = self.program.gap(v) + k;
                let count = self.simulator.replays[gap];
                if count > 0 && settings[gap] != KEEP {
                    let Some(seconds) = self.price(v, settings[gap], count) else {
                        continue;
                    };
                    list.push((seconds / (self.program.size[v.index()] + 1) as f64, v, k));
                }
            }
        }
        list.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        list
    }

    /// Seconds that a value's absence from a gap costs, given how often it comes back.
    fn price(&self, v: ValueId, setting: u8, count: u32) -> Option<f64> {
        let program = self.program;
        let (bytes, price) = (program.size[v.index()] as f64, self.simulator.price());
        if let Some(tier) = spilled(setting) {
            let written = !program.is_cell(v) || program.cells.rewritten[v.index()];
            let write = if written {
                price.write[tier as usize]
            } else {
                0.0
            };
            return Some(bytes * (write + price.read[tier as usize] * f64::from(count)));
        }
        let node = program.producer[v.index()]?;
        Some(program.alone(node, v) * f64::from(count))
    }

    /// The steps in which a value is there if it is kept in a gap: all, for the home of a cell.
    fn kept_span(&self, v: ValueId, k: usize) -> Range<usize> {
        if k == 0 && self.program.is_cell(v) {
            return 0..self.program.steps.len();
        }
        let (from, to) = self.program.span(v, k);
        to.min(from + 1) as usize..to as usize
    }

    /// Whether there is no room for a value somewhere inside its gap.
    fn crowded(&self, high: &Levels, v: ValueId, k: usize, budget: u64) -> bool {
        let span = self.kept_span(v, k);
        match budget.checked_sub(self.program.size[v.index()]) {
            Some(room) => high.exceed(span, room),
            None => !span.is_empty(),
        }
    }
}

/// Whether settings save time.
fn faster(next: &Candidate, than: &Candidate) -> bool {
    simulate::faster(next.outcome.seconds, than.outcome.seconds)
}

/// What to try in place of a setting, most saving first.
fn lower_settings(setting: u8, tail: bool) -> Vec<u8> {
    match setting {
        moved if spilled(moved).is_some() => vec![if tail { NEVER } else { KEEP }],
        _ if tail => vec![RELEASE],
        1 => vec![KEEP],
        released if awaited(released).is_some() => vec![KEEP],
        NEVER => vec![KEEP, RELEASE, 1, 2, 3],
        n => (KEEP..n).collect(),
    }
}
