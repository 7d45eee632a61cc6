//! The way down: raises settings, cheapest bytes first, until the peak is within a budget.
//!
//! Moves are taken in batches whose bytes come to what the peak is over, so that the number of
//! simulations hardly grows with the number of values; a batch that does not help is halved.

use crate::problem::{NodeId, Tier, ValueId};
use crate::search::Search;
use crate::simulate::setting::{KEEP, NEVER, RELEASE, awaited, spill, spilled};
use crate::simulate::{Candidate, Held};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Settings raised past this number become [`NEVER`].
const DEEPEST: u8 = 6;
/// Batches that may be tried on the way to one budget, beside a few for each step of the program;
/// and moves that may fail.
const TRIALS: usize = 120;
const FAILURES: usize = 24;
/// Values looked at when the cost of a recomputation is estimated.
const DEPTH: u32 = 48;

/// Drops a value for longer, and may keep what it will be recomputed from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Move {
    /// Bytes by seconds.
    score: f64,
    value: ValueId,
    k: usize,
    gap: usize,
    setting: u8,
    bytes: u64,
    /// Gaps of the producer's inputs that are to be held, and their settings.
    keeps: Vec<(usize, u8)>,
}

impl Eq for Move {}

impl Ord for Move {
    fn cmp(&self, other: &Move) -> Ordering {
        let score = self.score.total_cmp(&other.score);
        let key = |m: &Move| (m.gap, m.setting, m.keeps.len());
        score.then_with(|| key(other).cmp(&key(self)))
    }
}

impl PartialOrd for Move {
    fn partial_cmp(&self, other: &Move) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Search<'_> {
    /// Raises settings until the peak is within the budget; `None` if it cannot.
    pub(crate) fn lower(&mut self, mut found: Candidate, budget: u64) -> Option<Candidate> {
        self.simulator.run(&found.settings, &found.due).ok()?;
        let mut excess = self.excess(budget);
        let mut known = Known::default();
        let mut trials = TRIALS + self.program.steps.len() / 4;
        while found.outcome.peak > budget {
            self.simulator.watch(&found);
            let mut batch = self.batch(&found, found.outcome.peak - budget, &known);
            loop {
                if batch.is_empty() || trials == 0 || known.useless.len() > FAILURES || self.spent()
                {
                    return None;
                }
                trials -= 1;
                let mut settings = found.settings.clone();
                for m in &batch {
                    m.apply(&mut settings);
                }
                let next = self.try_settings(settings, &found.due);
                let next = next.map(|next| (self.excess(budget), next));
                match next.filter(|&(now, _)| now < excess) {
                    Some((now, next)) if expected(&batch, &found, &next) => {
                        (excess, found) = (now, next);
                        break;
                    }
                    // Put aside, to be taken when nothing promises more than it gave.
                    Some((_, next)) if batch.len() == 1 => {
                        known.learn(&batch[0], &found, &next);
                        break;
                    }
                    None if batch.len() == 1 => {
                        known.useless.insert(batch[0].key());
                        break;
                    }
                    _ => batch.truncate(batch.len() / 2),
                }
            }
        }
        Some(found)
    }

    /// The best moves at the watched run, as many as come to `need` bytes. The cost of each is
    /// estimated with those before it in place.
    fn batch(&self, found: &Candidate, need: u64, known: &Known) -> Vec<Move> {
        let mut settings = found.settings.clone();
        let mut heap: BinaryHeap<Move> = BinaryHeap::new();
        for held in &self.simulator.held {
            heap.extend(self.moves(&settings, *held).map(|m| known.tell(m)));
        }
        let (mut batch, mut bytes): (Vec<Move>, u64) = (Vec::new(), 0);
        while let Some(best) = heap.pop() {
            let taken = batch.iter().any(|m: &Move| m.gap == best.gap);
            if taken || known.useless.contains(&best.key()) {
                continue;
            }
            let held = Held {
                value: best.value,
                k: best.k,
            };
            let mut now = self.moves(&settings, held).map(|m| known.tell(m));
            let Some(now) = now.find(|m| m.key() == best.key()) else {
                continue;
            };
            if !batch.is_empty() && heap.peek().is_some_and(|next| next.score > now.score) {
                if now.score < best.score {
                    heap.push(now);
                }
                continue;
            }
            now.apply(&mut settings);
            bytes += now.bytes;
            batch.push(now);
            if bytes >= need {
                break;
            }
        }
        batch
    }

    /// What may be done about a value that is held: drop it, and perhaps keep its sources.
    fn moves(&self, settings: &[u8], held: Held) -> impl Iterator<Item = Move> + use<> {
        let drop = self.drop(settings, held);
        let with_sources = drop
            .as_ref()
            .filter(|m| self.sources && settings[m.gap] == KEEP)
            .and_then(|m| self.with_sources(settings, m));
        drop.into_iter()
            .chain(with_sources)
            .chain(self.departures(settings, held))
    }

    /// Moves to a tier of a value that is held.
    fn departures(&self, settings: &[u8], held: Held) -> impl Iterator<Item = Move> + use<> {
        let moves = Tier::ALL.map(|tier| self.departure(settings, held, tier));
        moves.into_iter().flatten()
    }

    fn departure(&self, settings: &[u8], held: Held, tier: Tier) -> Option<Move> {
        let (program, v) = (self.program, held.value);
        let (first, here) = (program.gap(v), program.gap(v) + held.k);
        let bytes = program.size[v.index()];
        if bytes == 0
            || !self.limits.tiers[here][tier as usize]
            || spilled(settings[here]).is_some()
        {
            return None;
        }
        let price = self.simulator.price();
        let (read, write) = (price.read[tier as usize], price.write[tier as usize]);
        let tail = held.k == program.uses(v).len();
        let (mut gap, mut keeps, mut cost) = (here, Vec::new(), read);
        if !program.is_cell(v) {
            cost += write;
            // What is moved already is not written again.
        } else if settings[first] == KEEP {
            gap = first;
            if program.cells.rewritten[v.index()] {
                cost += write;
            }
            if here != first {
                keeps.push((here, spill(tier)));
                cost += read;
            }
            // Moments that are updated last have the least time to be moved in.
            let steps = program.steps.len() as f64;
            let late = f64::from(program.updated_at[v.index()]) / steps;
            cost *= 1.0 + 0.1 * late;
        } else if spilled(settings[first]) != Some(tier) {
            return None;
        }
        if tail && program.pending[v.index()] == 0 && here != first {
            keeps.clear();
        }
        Some(Move {
            score: score(bytes, cost * bytes as f64),
            value: v,
            k: held.k,
            gap,
            setting: spill(tier),
            bytes,
            keeps,
        })
    }

    fn drop(&self, settings: &[u8], held: Held) -> Option<Move> {
        let (program, v) = (self.program, held.value);
        let gap = program.gap(v) + held.k;
        let setting = match settings[gap] {
            NEVER => return None,
            moved if spilled(moved).is_some() => return None,
            _ if held.k == program.uses(v).len() => NEVER,
            released if awaited(released).is_some() => 1,
            n if n >= DEEPEST => NEVER,
            n => n + 1,
        };
        let bytes = program.size[v.index()];
        if setting > self.limits.high[gap] || bytes == 0 {
            return None;
        }
        let (_, at) = program.span(v, held.k);
        let seconds = self.cost(settings, v, at, &mut { DEPTH });
        let saved = if settings[gap] == KEEP {
            self.spared(v, held.k)
        } else {
            0.0
        };
        Some(Move {
            score: score(bytes, seconds - saved),
            value: v,
            k: held.k,
            gap,
            setting,
            bytes,
            keeps: Vec::new(),
        })
    }

    /// The same move, with what the value will be recomputed from held until then.
    fn with_sources(&self, settings: &[u8], m: &Move) -> Option<Move> {
        let program = self.program;
        let node = program.producer[m.value.index()]?;
        let (_, at) = program.span(m.value, m.k);
        let keeps = self.sources(settings, node, at);
        let sizes = keeps.iter().map(|&(w, _, _)| program.size[w.index()]);
        let bytes = m.bytes.checked_sub(sizes.sum())?;
        let seconds = program.alone(node, m.value) - self.spared(m.value, m.k);
        let keeps = keeps.into_iter().map(|(_, gap, setting)| (gap, setting));
        let keeps: Vec<(usize, u8)> = keeps.collect();
        (bytes > 0 && !keeps.is_empty()).then(|| Move {
            score: score(bytes, seconds),
            bytes,
            keeps,
            ..m.clone()
        })
    }

    /// Seconds that a first run spares by leaving a value out, if this gap follows that run.
    fn spared(&self, v: ValueId, k: usize) -> f64 {
        let node = self.program.producer[v.index()].filter(|_| k == 0);
        node.and_then(|node| self.program.saved(node, v))
            .unwrap_or(0.0)
    }

    /// The inputs of a node that will be missing at a step, and how to have them then.
    fn sources(&self, settings: &[u8], node: NodeId, at: u32) -> Vec<(ValueId, usize, u8)> {
        let mut list = Vec::new();
        for &w in self.program.inputs.row(node) {
            let uses = self.program.uses(w);
            let k = uses.partition_point(|&u| u < at);
            let gap = self.program.gap(w) + k;
            let tail = k == uses.len();
            let may = tail || self.limits.low[gap] == KEEP;
            if may && settings[gap] == NEVER && self.program.repeatable[w.index()] {
                let hold = if tail { RELEASE } else { KEEP };
                list.push((w, gap, hold));
            }
        }
        list
    }

    /// Estimated seconds to make a value again for a step: its producer, and what will be missing
    /// of its inputs then.
    fn cost(&self, settings: &[u8], v: ValueId, at: u32, left: &mut u32) -> f64 {
        let Some(node) = self.program.producer[v.index()] else {
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
            if setting == NEVER && self.program.repeatable[w.index()] {
                *left -= 1;
                cost += self.cost(settings, w, at, left);
            }
        }
        cost
    }

    /// Bytes over the budget, summed over steps, of the latest simulation. Per step and not per
    /// run, so that recomputing as such is no fault.
    fn excess(&self, budget: u64) -> u64 {
        let high = self.simulator.high.iter();
        high.map(|&h| h.saturating_sub(budget)).sum()
    }
}

/// Bytes by seconds.
fn score(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / (seconds + 1e-12)
}

/// What was seen of single moves on the way to a budget.
#[derive(Debug, Default)]
struct Known {
    /// Moves that do not lower the peak.
    useless: BTreeSet<Key>,
    /// Moves that cost more than was estimated, and their true scores.
    scores: BTreeMap<Key, f64>,
}

impl Known {
    /// A move with its true score, where that is known.
    fn tell(&self, m: Move) -> Move {
        let score = self
            .scores
            .get(&m.key())
            .map_or(m.score, |s| s.min(m.score));
        Move { score, ..m }
    }

    fn learn(&mut self, m: &Move, from: &Candidate, to: &Candidate) {
        let cost = to.outcome.seconds - from.outcome.seconds;
        self.scores.insert(m.key(), score(m.bytes, cost));
    }
}

/// Whether moves cost what was estimated, or what is known of them.
fn expected(batch: &[Move], from: &Candidate, to: &Candidate) -> bool {
    let cost = to.outcome.seconds - from.outcome.seconds;
    let estimated: f64 = batch.iter().map(|m| m.bytes as f64 / m.score).sum();
    cost <= estimated * 1.25 + from.outcome.seconds * 1e-6
}

/// Gap, setting, and whether sources are kept.
type Key = (usize, u8, bool);

impl Move {
    fn apply(&self, settings: &mut [u8]) {
        settings[self.gap] = self.setting;
        for &(gap, setting) in &self.keeps {
            settings[gap] = setting;
        }
    }

    fn key(&self) -> Key {
        (self.gap, self.setting, self.keeps.is_empty())
    }
}
