//! Looks for settings: greedy descent from several starts, then polish, all by exact simulation.
//!
//! Every state on the way is offered to an archive that keeps the best seconds for each peak. The
//! work is limited by the number of runs simulated, never by a clock, so the result is a function of
//! the problem. Where it has parts that need nothing of each other, each has an archive of its own, and
//! they go on side by side: on any number of threads they come to the same.

mod archive;
mod bounds;
mod evict;
mod levels;
mod lower;
mod polish;
mod settings;
mod shake;
mod tried;

pub(crate) use archive::Archive;
pub(crate) use settings::Limits;

use crate::abreast::abreast;
use crate::problem::NodeId;
use crate::program::Program;
use crate::search::bounds::Bounds;
use crate::search::evict::{Rule, Walks};
use crate::search::settings::{Cuts, all, away, blocks, cuts};
use crate::search::tried::{Trial, Tried};
use crate::simulate::setting::{KEEP, NEVER};
use crate::simulate::{Candidate, Price, Simulator, Stuck};

/// Problems of at most so many steps are shaken, and how many runs that may simulate.
const SMALL: usize = 64;
const SHAKING: u64 = 2_000_000;

/// Rungs at which walks by one rule may fail; and how much slower than the best there is what they
/// come to may be, to be polished.
const FAILURES: u32 = 2;
const NEAR: f64 = 0.02;

/// Budgets polished between two rungs; and in how many parts all those are.
const BETWEEN: u64 = 4;
const PARTS: usize = 4;
/// Walks by one rule are in so many parts.
const HALVES: usize = 2;

/// How many budgets the search tries to do well at.
const RUNGS: u32 = 28;
/// Each rung is this much of the way from the one above down to the least that could work.
const RATIO: f64 = 0.88;

/// Runs that may be simulated, per step of the program, where only what costs nothing is dropped.
const SAVING: u64 = 32;

/// A search under way.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    pub(crate) program: &'a Program,
    pub(crate) limits: &'a Limits,
    pub(crate) simulator: Simulator<'a>,
    pub(crate) archive: Archive<'a>,
    pub(crate) tried: Tried,
    stop: u64,
    /// Whether what a value is recomputed from may be kept for that, on the way down.
    pub(crate) sources: bool,
}

impl<'a> Search<'a> {
    /// A search whose only find is what is kept as far as the limits let it.
    pub(crate) fn new(
        program: &'a Program,
        limits: &'a Limits,
        kept: &Candidate,
        price: Price,
    ) -> Search<'a> {
        let mut search = Search::at(program, limits, price);
        search.try_settings(kept.settings.clone(), &kept.due);
        search
    }

    /// A search that has found nothing.
    fn at(program: &'a Program, limits: &'a Limits, price: Price) -> Search<'a> {
        let mut simulator = Simulator::new(program);
        simulator.set_price(price);
        Search {
            program,
            limits,
            simulator,
            archive: Archive::default(),
            tried: Tried::default(),
            stop: 0,
            sources: false,
        }
    }

    /// The peak of what was found first.
    fn top(&self) -> u64 {
        let first = self.archive.all().last();
        first.map_or(0, |found| found.outcome.peak)
    }

    /// What costs next to nothing to make again is dropped, by few simulations: the smallest on the way
    /// down that is at most so much slower, as a share.
    pub(crate) fn save(&mut self, slower: f64) -> Option<Candidate> {
        let mut found = self.archive.all().last()?.clone();
        let (top, least) = (found.outcome.peak, least(self.program));
        let most = found.outcome.seconds * (1.0 + slower);
        self.allow(SAVING * self.program.steps.len() as u64);
        let mut step = top.saturating_sub(least) / 64;
        while step > 0 && found.outcome.seconds <= most && !self.spent() {
            let budget = top.saturating_sub(step).max(least);
            match self.lower(found, budget) {
                Some(lower) => found = lower,
                None => break,
            }
            step *= 2;
        }
        let mut all = self.archive.all();
        all.find(|found| found.outcome.seconds <= most).cloned()
    }

    /// Searches. The budgets to do well at are rungs, largest first.
    ///
    /// Every start goes down the ladder of rungs, and each state on the way is polished at its rung;
    /// so is what walks under a rung come to. Then the best at each rung is taken to the next, and
    /// polished there. Small problems are shaken as well.
    pub(crate) fn explore(&mut self) {
        let rungs = &*rungs(self.top(), least(self.program));
        let steps = self.program.steps.len();
        let cuts = cuts(self.program);
        let bounds = Bounds::new(self.program, &cuts);
        let (share, again) = (bounds.share, bounds.again);
        let starts = self.starts(&cuts);
        let part = share / 4 / (starts.len() * rungs.len()) as u64;
        self.stop = u64::MAX;
        let starts = starts.into_iter().filter_map(|start| self.repair(start));
        let ways = starts.flat_map(|found| [false, true].map(|sources| (found.clone(), sources)));
        let ways = ways.collect();
        self.in_parts(ways, |search, (found, sources)| {
            search.sources = sources;
            search.descend(found, rungs, (part, bounds.reach * part));
        });
        self.sources = true;
        // Walks know of no tiers.
        if self.program.tiers.any() {
            self.beneath(rungs, part);
        } else {
            let (walks, work) = (
                Walks::new(self.program, self.limits),
                share / 4 / rungs.len() as u64,
            );
            let ways = Rule::ALL.into_iter().flat_map(|rule| {
                let rungs = bounds.walks(rungs, rule);
                let parts = rungs.chunks(rungs.len().div_ceil(HALVES).max(1));
                let parts = parts.map(|part| (rule, part.to_vec()));
                parts.collect::<Vec<_>>()
            });
            self.in_parts(ways.collect(), |search, (rule, rungs)| {
                search.walks(&walks, rule, &rungs, work);
            });
        }
        for pair in rungs.windows(2) {
            self.allow(again / 4 / rungs.len() as u64);
            if let Some(found) = self.archive.within(pair[0]).cloned()
                && let Some(found) = self.lower(found, pair[1])
            {
                self.refine(found, pair[1]);
            }
        }
        let all: Vec<u64> = std::iter::once(self.top())
            .chain(rungs.iter().copied())
            .collect();
        let between: Vec<u64> = between(&all).collect();
        let part = between.len().div_ceil(PARTS);
        self.in_parts(between.chunks(part).collect(), |search, rungs| {
            for &rung in rungs {
                search.allow(again / 4 / between.len() as u64);
                if let Some(found) = search.archive.within(rung).cloned() {
                    search.refine(found, rung);
                }
            }
        });
        if steps <= SMALL {
            self.allow(SHAKING.min(24 * share));
            self.shake(rungs);
        }
    }

    /// Searches low rungs as if moving cost nothing: what fits should not depend on what it costs.
    fn beneath(&mut self, rungs: &[u64], work: u64) {
        let rungs = &rungs[rungs.len() * 3 / 4..];
        let price = self.set_price(Price::default());
        let archive = std::mem::take(&mut self.archive);
        let aways = [KEEP, 1, NEVER].map(|rest| away(self.limits, rest));
        for start in std::iter::once(self.limits.low.clone()).chain(aways) {
            self.stop = u64::MAX;
            if let Some(found) = self.repair(start) {
                self.descend(found, rungs, (work, 0));
            }
        }
        self.set_price(price);
        let small = std::mem::replace(&mut self.archive, archive);
        for found in small.all() {
            self.try_settings(found.settings.clone(), &found.due);
        }
    }

    /// Parts of a search, side by side. Each knows what was found before all of them; what they find is
    /// taken in their order.
    fn in_parts<T: Send>(&mut self, items: Vec<T>, search: impl Fn(&mut Search, T) + Sync) {
        let (program, limits, price) = (self.program, self.limits, *self.simulator.price());
        let mut known = std::mem::take(&mut self.archive);
        let found = abreast(program.nodes(), items, |item| {
            let mut part = Search::at(program, limits, price);
            part.archive = Archive::beside(&known);
            search(&mut part, item);
            let found: Vec<Candidate> = part.archive.all().cloned().collect();
            (found, part.simulator.work)
        });
        for (found, work) in found {
            self.simulator.work += work;
            for found in &found {
                known.offer(found);
            }
        }
        self.archive = known;
    }

    /// Takes what walks by a rule come to under each rung, until they fail.
    fn walks(&mut self, walks: &Walks, rule: Rule, rungs: &[u64], work: u64) {
        let mut failures = 0;
        for &rung in rungs {
            self.allow(work);
            let Some(settings) = walks.walk(rung, rule) else {
                failures += 1;
                if failures == FAILURES {
                    return;
                }
                continue;
            };
            if let Some(found) = self.repair(settings)
                && let Some(found) = self.lower(found, rung)
                && self.promising(&found, rung)
            {
                self.polish(found, rung);
            }
        }
    }

    /// Whether settings are not much slower than the best for a budget.
    fn promising(&self, found: &Candidate, budget: u64) -> bool {
        let best = self.archive.within(budget);
        best.is_none_or(|best| found.outcome.seconds < best.outcome.seconds * (1.0 + NEAR))
    }

    /// Allows so many more runs.
    fn allow(&mut self, work: u64) {
        self.stop = self.simulator.work + work;
    }

    /// Settings to start from: all kept; all but cuts dropped; where that is cheap to try, all dropped.
    fn starts(&self, cuts: &Cuts) -> Vec<Vec<u8>> {
        let mut starts = vec![self.limits.low.clone()];
        if cuts.values.len() >= 2 {
            starts.push(blocks(self.program, self.limits, cuts));
        }
        if self.program.steps.len() <= SMALL {
            starts.push(all(self.limits, 1));
            starts.push(all(self.limits, NEVER));
        }
        starts
    }

    /// Whether a gap may have any setting; a tail may not be kept, but released.
    pub(crate) fn free(&self, gap: usize) -> bool {
        self.limits.low[gap] == KEEP && self.limits.high[gap] != KEEP
    }

    pub(crate) fn spent(&self) -> bool {
        self.simulator.work >= self.stop
    }

    /// Simulates settings, with updates no earlier than in `due`.
    pub(crate) fn try_settings(&mut self, settings: Vec<u8>, due: &[u32]) -> Option<Candidate> {
        self.attempt(settings, due, u64::MAX, f64::INFINITY)
    }

    /// Simulates settings under a budget, if nothing is known that keeps them from it or from taking less
    /// than some seconds.
    pub(crate) fn attempt(
        &mut self,
        settings: Vec<u8>,
        due: &[u32],
        budget: u64,
        than: f64,
    ) -> Option<Candidate> {
        let trial = Trial::new(&settings, due, budget, than);
        if let Some(runs) = self.tried.in_vain(&trial) {
            self.simulator.work += runs;
            return None;
        }
        let work = self.simulator.work;
        let found = self.simulator.within(settings, due, budget);
        self.tried.note(&trial, &found, self.simulator.work - work);
        let found = found.ok()?;
        self.archive.offer(&found);
        Some(found)
    }

    /// Sets what moving a byte counts for, and forgets what came of settings at another price.
    fn set_price(&mut self, price: Price) -> Price {
        self.tried = Tried::default();
        self.simulator.set_price(price)
    }

    /// Keeps what must be kept for settings to be possible.
    pub(crate) fn repair(&mut self, mut settings: Vec<u8>) -> Option<Candidate> {
        loop {
            match self.simulator.find(settings.clone(), &[]) {
                Ok(found) => {
                    self.archive.offer(&found);
                    return Some(found);
                }
                Err(Stuck::Gap(gap)) if self.limits.low[gap] == KEEP && !self.spent() => {
                    settings[gap] = KEEP;
                }
                Err(_) => return None,
            }
        }
    }

    /// Lowers the peak from rung to rung, as far as it goes, and polishes at each, with so much work; to get to
    /// a rung may take some more.
    fn descend(&mut self, mut found: Candidate, rungs: &[u64], (work, more): (u64, u64)) {
        for &rung in rungs {
            self.allow(work + more);
            if found.outcome.peak > rung {
                match self.lower(found, rung) {
                    Some(lower) => found = lower,
                    None => return,
                }
            }
            if more > 0 {
                self.allow(work);
            }
            self.polish(found.clone(), rung);
        }
    }
}

/// Budgets evenly between the rungs, largest first.
fn between(rungs: &[u64]) -> impl Iterator<Item = u64> {
    let pairs = rungs.windows(2);
    pairs.flat_map(|pair| {
        let (high, low) = (pair[0], pair[1]);
        (1..=BETWEEN).map(move |i| high - high.saturating_sub(low) / (BETWEEN + 1) * i)
    })
}

/// Bytes below which no plan can be: what the largest single run reads.
pub(crate) fn least(program: &Program) -> u64 {
    let bytes = |n: NodeId| {
        let values = program.inputs.row(n);
        let sum: u64 = values.iter().map(|&v| program.size[v.index()]).sum();
        sum + program.scratch.get(n.index()).copied().unwrap_or(0)
    };
    program.steps.iter().map(|&n| bytes(n)).max().unwrap_or(0)
}

/// Budgets from just below `top` down to `least`, closer and closer.
fn rungs(top: u64, least: u64) -> Vec<u64> {
    let span = top.saturating_sub(least) as f64;
    let rung = |i| least + (span * RATIO.powi(i)) as u64;
    let mut rungs: Vec<u64> = (1..=RUNGS as i32).map(rung).collect();
    rungs.push(least);
    rungs.dedup();
    rungs
}
