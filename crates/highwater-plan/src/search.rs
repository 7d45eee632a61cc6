//! Looks for settings: greedy descent from several starts, then polish, all by exact simulation.
//!
//! Every state on the way is offered to an archive that keeps the best seconds for each peak. The
//! work is limited by the number of runs simulated, never by a clock, so the result is a function of
//! the problem.

use crate::problem::ValueId;
use crate::program::Program;
use crate::settings::{Limits, all, between, cuts};
use crate::simulate::{KEEP, NEVER, Outcome, RELEASE, Simulator, Stuck};
use std::collections::BTreeMap;

/// Settings raised past this number become [`NEVER`].
const DEEPEST: u8 = 6;
/// Runs that may be simulated, per step of the program.
const WORK: u64 = 40_000;

/// Settings and what they come to.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) settings: Vec<u8>,
    pub(crate) outcome: Outcome,
}

/// For each peak the fastest settings found; slower ones with a higher peak are dropped.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    best: BTreeMap<u64, Found>,
}

impl Archive {
    fn offer(&mut self, settings: &[u8], outcome: Outcome) {
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
        self.best.insert(
            outcome.peak,
            Found {
                settings: settings.to_vec(),
                outcome,
            },
        );
    }

    /// The fastest with a peak of at most `bytes`.
    pub(crate) fn within(&self, bytes: u64) -> Option<&Found> {
        self.best
            .range(..=bytes)
            .next_back()
            .map(|(_, found)| found)
    }

    /// All, least peak first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Found> {
        self.best.values()
    }
}

/// A search under way.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    program: &'a Program,
    limits: Limits,
    pub(crate) simulator: Simulator<'a>,
    pub(crate) archive: Archive,
    stop: u64,
}

impl<'a> Search<'a> {
    /// A search whose only find is the settings that keep as much as the limits let it. The error
    /// is a value that is needed and lost.
    pub(crate) fn new(program: &'a Program, limits: Limits) -> Result<Search<'a>, ValueId> {
        let mut search = Search {
            program,
            limits,
            simulator: Simulator::new(program),
            archive: Archive::default(),
            stop: 0,
        };
        search.relax()?;
        Ok(search)
    }

    /// Lowers limits that cannot be met (what a pin asks to recompute may be impossible to).
    fn relax(&mut self) -> Result<(), ValueId> {
        loop {
            let settings = self.limits.low.clone();
            match self.simulator.run(&settings) {
                Ok(outcome) => {
                    self.archive.offer(&settings, outcome);
                    return Ok(());
                }
                Err(Stuck::Gap(gap)) => {
                    (self.limits.low[gap], self.limits.high[gap]) = (KEEP, KEEP);
                }
                Err(Stuck::Lost(value)) => return Err(value),
                Err(Stuck::Long) => {
                    for gap in 0..self.limits.low.len() {
                        if self.limits.low[gap] == 1 {
                            (self.limits.low[gap], self.limits.high[gap]) = (KEEP, KEEP);
                        }
                    }
                }
            }
        }
    }

    /// Searches, with `rungs` as the budgets to do well at, largest first.
    pub(crate) fn explore(&mut self, rungs: &[u64]) {
        let share = WORK * self.program.steps.len() as u64;
        let kept = self.limits.low.clone();
        let mut starts = vec![kept];
        let cuts = cuts(self.program);
        for stride in [1, 2, 3, 4, 6] {
            if cuts.values.len() >= stride {
                starts.push(between(self.program, &self.limits, &cuts, stride));
            }
        }
        starts.push(all(&self.limits, 1));
        starts.push(all(&self.limits, NEVER));
        let count = starts.len() as u64;
        for (i, start) in (1..).zip(starts) {
            self.stop = share / 2 * i / count;
            if let Some(found) = self.repair(start) {
                self.descend(found, rungs);
            }
        }
        let count = rungs.len() as u64;
        let base = self.simulator.work;
        let rest = share.saturating_sub(base).max(share / 2);
        for (i, &rung) in (1..).zip(rungs.iter().rev()) {
            self.stop = base + rest * i / count;
            if let Some(found) = self.archive.within(rung).cloned() {
                self.polish(found, rung);
            }
        }
    }

    fn spent(&self) -> bool {
        self.simulator.work >= self.stop
    }

    fn try_settings(&mut self, settings: &[u8]) -> Option<Outcome> {
        let outcome = self.simulator.run(settings).ok()?;
        self.archive.offer(settings, outcome);
        Some(outcome)
    }

    /// Keeps what must be kept for settings to be possible.
    fn repair(&mut self, mut settings: Vec<u8>) -> Option<Found> {
        loop {
            match self.simulator.run(&settings) {
                Ok(outcome) => {
                    self.archive.offer(&settings, outcome);
                    return Some(Found { settings, outcome });
                }
                Err(Stuck::Gap(gap)) if self.limits.low[gap] == KEEP && !self.spent() => {
                    settings[gap] = KEEP;
                }
                Err(_) => return None,
            }
        }
    }

    /// Greedy: lowers the peak from rung to rung, as far as it goes.
    fn descend(&mut self, mut found: Found, rungs: &[u64]) {
        for &rung in rungs {
            if found.outcome.peak <= rung {
                continue;
            }
            match self.lower(found, rung) {
                Some(lower) => found = lower,
                None => return,
            }
        }
    }

    /// Raises one setting after the other until the peak is within the budget.
    fn lower(&mut self, mut found: Found, budget: u64) -> Option<Found> {
        let mut excess = self.excess(&found.settings, budget)?;
        let mut tabu: Vec<(usize, u8)> = Vec::new();
        while found.outcome.peak > budget {
            self.simulator
                .watch(&found.settings, found.outcome.peak_run);
            let mut moves = self.candidates(&found.settings, &tabu);
            moves.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let mut taken = false;
            for (_, gap, setting) in moves {
                if self.spent() {
                    return None;
                }
                let old = std::mem::replace(&mut found.settings[gap], setting);
                if let Some(outcome) = self.try_settings(&found.settings) {
                    let now = self.excess_now(budget);
                    if now < excess {
                        (excess, found.outcome, taken) = (now, outcome, true);
                        break;
                    }
                }
                found.settings[gap] = old;
                tabu.push((gap, setting));
            }
            if !taken {
                return None;
            }
        }
        Some(found)
    }

    /// What may be raised at the watched run, with its score: bytes by seconds.
    fn candidates(&self, settings: &[u8], tabu: &[(usize, u8)]) -> Vec<(f64, usize, u8)> {
        let mut moves = Vec::new();
        for held in &self.simulator.held {
            let gap = self.program.gap(held.value) + held.k;
            let setting = match settings[gap] {
                RELEASE if held.k == self.program.uses(held.value).len() => NEVER,
                RELEASE => 1,
                n if n >= DEEPEST => NEVER,
                n => n + 1,
            };
            let size = self.program.size[held.value as usize];
            let fits = setting <= self.limits.high[gap] && size > 0;
            if fits && settings[gap] != NEVER && !tabu.contains(&(gap, setting)) {
                let (_, at) = self.program.span(held.value, held.k);
                let mut left = 48;
                let mut cost = self.cost(settings, held.value, at, &mut left);
                if settings[gap] == KEEP
                    && held.k == 0
                    && let Some(node) = self.program.producer[held.value as usize]
                {
                    cost -= self.program.saved(node, held.value).unwrap_or(0.0);
                }
                moves.push((size as f64 / (cost + 1e-12), gap, setting));
            }
        }
        moves
    }

    /// Estimated seconds to make a value again for a step: its producer, and what will be missing
    /// of its inputs then.
    fn cost(&self, settings: &[u8], v: ValueId, at: u32, left: &mut u32) -> f64 {
        let Some(node) = self.program.producer[v as usize] else {
            return 0.0;
        };
        let mut cost = self.program.alone(node, v);
        for &w in self.program.inputs.row(node) {
            if *left == 0 {
                break;
            }
            let uses = self.program.uses(w);
            let k = uses.partition_point(|&u| u < at);
            let setting = settings[self.program.gap(w) + k];
            if setting == NEVER && self.program.repeatable[w as usize] {
                *left -= 1;
                cost += self.cost(settings, w, at, left);
            }
        }
        cost
    }

    fn excess(&mut self, settings: &[u8], budget: u64) -> Option<u64> {
        self.simulator.run(settings).ok()?;
        Some(self.excess_now(budget))
    }

    /// Bytes over the budget, summed over steps, of the latest simulation. Per step and not per
    /// run, so that recomputing as such is no fault.
    fn excess_now(&self, budget: u64) -> u64 {
        self.simulator
            .high
            .iter()
            .map(|&h| h.saturating_sub(budget))
            .sum()
    }

    /// Lowers settings wherever that saves time and still fits, to a fixed point.
    fn polish(&mut self, mut found: Found, budget: u64) {
        loop {
            if self.simulator.run(&found.settings).is_err() {
                return;
            }
            let mut high = self.simulator.high.clone();
            let mut better = false;
            for (_, v, k) in self.repeated(&found.settings) {
                if self.spent() {
                    return;
                }
                let gap = self.program.gap(v) + k;
                if self.crowded(&high, v, k, budget) && found.settings[gap] == 1 {
                    continue;
                }
                for setting in lower_settings(found.settings[gap], k == self.program.uses(v).len())
                {
                    if setting < self.limits.low[gap] && setting != RELEASE {
                        continue;
                    }
                    let old = std::mem::replace(&mut found.settings[gap], setting);
                    let outcome = self.try_settings(&found.settings);
                    let gain = |o: &Outcome| {
                        o.peak <= budget && o.seconds < found.outcome.seconds * (1.0 - 1e-12)
                    };
                    if let Some(outcome) = outcome.filter(gain) {
                        found.outcome = outcome;
                        high.clone_from(&self.simulator.high);
                        better = true;
                        break;
                    }
                    found.settings[gap] = old;
                }
            }
            if !better {
                return;
            }
        }
    }

    /// Gaps with recomputations in the latest simulation, dearest by byte first.
    fn repeated(&self, settings: &[u8]) -> Vec<(f64, ValueId, usize)> {
        let mut list = Vec::new();
        for v in 0..self.program.size.len() as ValueId {
            let Some(node) = self.program.producer[v as usize] else {
                continue;
            };
            for k in 0..=self.program.uses(v).len() {
                let gap = self.program.gap(v) + k;
                let count = self.simulator.replays[gap];
                if count > 0 && settings[gap] != KEEP {
                    let seconds = self.program.alone(node, v) * f64::from(count);
                    list.push((seconds / (self.program.size[v as usize] + 1) as f64, v, k));
                }
            }
        }
        list.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        list
    }

    /// Whether there is no room for a value somewhere inside its gap.
    fn crowded(&self, high: &[u64], v: ValueId, k: usize, budget: u64) -> bool {
        let (from, to) = self.program.span(v, k);
        let size = self.program.size[v as usize];
        (from + 1..to).any(|step| high[step as usize] + size > budget)
    }
}

/// What to try in place of a setting, most saving first.
fn lower_settings(setting: u8, tail: bool) -> Vec<u8> {
    match setting {
        _ if tail => vec![RELEASE],
        RELEASE | 1 => vec![KEEP],
        NEVER => vec![KEEP, RELEASE, 1, 2, 3],
        n => (KEEP..n).collect(),
    }
}
