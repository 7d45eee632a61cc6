//! The least seconds that a small problem takes within a budget: exact, by best-first search.
//!
//! The order of first runs is program order. A state is how many first runs are behind and which
//! values are live. Holding more is never worse, since freeing costs nothing; so values are freed
//! only where a run would not fit otherwise, and only as many as it needs.

use highwater_plan::*;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// A set of values.
type Set = u64;

fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..64).filter(move |v| set >> v & 1 == 1)
}

fn set(values: impl Iterator<Item = ValueId>) -> Set {
    values.fold(0, |set, v| set | 1 << v.index())
}

struct Run {
    inputs: Set,
    outputs: Set,
    /// Which outputs may take over which inputs.
    in_place: Vec<(ValueId, ValueId)>,
    scratch: u64,
    seconds: f64,
    again: bool,
}

/// A problem of at most 64 values, without cells and guards.
pub(crate) struct Exact {
    runs: Vec<Run>,
    size: Vec<u64>,
    producer: Vec<Option<usize>>,
    /// By first runs behind: the values made so far that a later first run reads, or the end wants.
    needed: Vec<Set>,
    /// By first runs behind: those, and all from which they can be made again.
    useful: Vec<Set>,
    /// By first runs behind: seconds of those to come.
    rest: Vec<f64>,
}

impl Exact {
    pub(crate) fn new(problem: &Problem) -> Exact {
        let plain = |n: &Node| n.reads.is_empty() && n.writes.is_empty() && !n.done;
        assert!(problem.nodes.iter().all(plain) && problem.values.len() <= 64);
        let runs: Vec<Run> = problem.nodes.iter().map(|n| run(problem, n)).collect();
        let mut producer = vec![None; problem.values.len()];
        for (r, run) in runs.iter().enumerate() {
            members(run.outputs).for_each(|v| producer[v] = Some(r));
        }
        let wanted = arena(problem, ValueId::below(problem.values.len()))
            .filter(|&v| problem.values[v.index()].wanted);
        let wanted = set(wanted);
        let made = |p: usize| runs[..p].iter().fold(0, |set, run| set | run.outputs);
        let read = |p: usize| runs[p..].iter().fold(wanted, |set, run| set | run.inputs);
        let needed: Vec<Set> = (0..=runs.len()).map(|p| made(p) & read(p)).collect();
        let sources = |&needed: &Set| {
            let fed = |all: Set| {
                let producers = members(all).filter_map(|v| producer[v]);
                producers.fold(all, |set, r| set | runs[r].inputs)
            };
            (0..runs.len()).fold(needed, |all, _| fed(all))
        };
        let rest = |p: usize| runs[p..].iter().map(|r| r.seconds).sum();
        Exact {
            useful: needed.iter().map(sources).collect(),
            rest: (0..=runs.len()).map(rest).collect(),
            size: problem.values.iter().map(|v| footprint(v.bytes)).collect(),
            needed,
            producer,
            runs,
        }
    }

    /// Bytes of the largest single run: no plan can do with less.
    pub(crate) fn least_bytes(&self) -> u64 {
        let bytes = |r: &Run| {
            let taken = matchings(r);
            let saved = taken.iter().map(|&t| self.bytes(t)).max().unwrap_or(0);
            self.bytes(r.inputs | r.outputs) + r.scratch - saved
        };
        self.runs.iter().map(bytes).max().unwrap_or(0)
    }

    /// The least seconds of any plan whose live bytes never exceed a budget, if there is one.
    pub(crate) fn seconds(&self, budget: u64) -> Option<f64> {
        let mut open = BinaryHeap::new();
        let mut best = BTreeMap::from([((0, 0), 0.0)]);
        open.push(Reverse((self.rest[0].to_bits(), 0, 0, 0.0f64.to_bits())));
        while let Some(Reverse((_, p, live, spent))) = open.pop() {
            let spent = f64::from_bits(spent);
            if best[&(p, live)] < spent {
                continue;
            }
            if p == self.runs.len() && self.needed[p] & !live == 0 {
                return Some(spent);
            }
            for (next, seconds) in self.moves((p, live), budget) {
                let sum = spent + seconds;
                if best.get(&next).is_none_or(|&known| sum < known) {
                    best.insert(next, sum);
                    let bound = sum + self.bound(next);
                    open.push(Reverse((bound.to_bits(), next.0, next.1, sum.to_bits())));
                }
            }
        }
        None
    }

    /// As [`Exact::seconds`], with no bound and freeing values one by one at any time: slower, and
    /// simple enough to be believed.
    pub(crate) fn plain_seconds(&self, budget: u64) -> Option<f64> {
        let mut open = BinaryHeap::from([Reverse((0.0f64.to_bits(), 0, 0))]);
        let mut seen = BTreeSet::new();
        while let Some(Reverse((spent, p, live))) = open.pop() {
            if !seen.insert((p, live)) {
                continue;
            }
            if p == self.runs.len() && self.needed[p] & !live == 0 {
                return Some(f64::from_bits(spent));
            }
            open.extend(members(live).map(|v| Reverse((spent, p, live & !(1 << v)))));
            for (r, run) in self.runs.iter().enumerate().take(p + 1) {
                let ready = run.inputs & !live == 0 && (r == p || run.again);
                for taken in matchings(run).into_iter().filter(|_| ready) {
                    let all = (live | run.outputs) & !taken;
                    if self.bytes(all) + run.scratch <= budget {
                        let spent = (f64::from_bits(spent) + run.seconds).to_bits();
                        open.push(Reverse((spent, p + usize::from(r == p), all)));
                    }
                }
            }
        }
        None
    }

    fn bytes(&self, values: Set) -> u64 {
        members(values).map(|v| self.size[v]).sum()
    }

    /// Seconds that are still to be spent at least: on first runs, and once on each run that what is
    /// missing takes.
    fn bound(&self, (p, live): (usize, Set)) -> f64 {
        let (mut missing, mut sum) = (self.needed[p] & !live, self.rest[p]);
        let mut seen = 0u64;
        while missing != 0 {
            let v = missing.trailing_zeros();
            missing &= missing - 1;
            let Some(r) = self.producer[v as usize].filter(|r| seen >> r & 1 == 0) else {
                continue;
            };
            seen |= 1 << r;
            sum += self.runs[r].seconds;
            missing |= self.runs[r].inputs & !live;
        }
        sum
    }

    /// The states that one more run leads to, and its seconds.
    fn moves(&self, (p, live): (usize, Set), budget: u64) -> Vec<((usize, Set), f64)> {
        let mut moves = Vec::new();
        for (r, run) in self.runs.iter().enumerate().take(p + 1) {
            let helps = r == p || run.again && run.outputs & self.useful[p] & !live != 0;
            if !helps || run.inputs & !live != 0 {
                continue;
            }
            let next = p + usize::from(r == p);
            let all = live | run.outputs;
            for taken in matchings(run) {
                let bytes = self.bytes(all & !taken) + run.scratch;
                let mut others: Vec<usize> = members(live & !run.inputs & !run.outputs).collect();
                others.sort_by_key(|&v| Reverse(self.size[v]));
                self.frees(&others, bytes.saturating_sub(budget), 0, &mut |freed| {
                    let live = all & !taken & !freed & self.useful[next];
                    moves.push(((next, live), run.seconds));
                });
            }
        }
        moves
    }

    /// All sets of values of which none can be left out if that many bytes are to be freed; the
    /// values stand largest first.
    fn frees(&self, values: &[usize], excess: u64, freed: Set, found: &mut impl FnMut(Set)) {
        if excess == 0 {
            return found(freed);
        }
        for (k, &v) in values.iter().enumerate() {
            let left = excess.saturating_sub(self.size[v]);
            self.frees(&values[k + 1..], left, freed | 1 << v, found);
        }
    }
}

/// The sets of inputs that outputs can take over at once, the empty set first. An output that is
/// still there may take one over too: it is freed just before.
fn matchings(run: &Run) -> Vec<Set> {
    let mut found: Vec<(Set, Set)> = vec![(0, 0)];
    for &(i, o) in &run.in_place {
        let (i, o) = (i.index(), o.index());
        for k in 0..found.len() {
            let (from, to) = found[k];
            if from >> i & 1 == 0 && to >> o & 1 == 0 {
                found.push((from | 1 << i, to | 1 << o));
            }
        }
    }
    found.into_iter().map(|(from, _)| from).collect()
}

fn arena(
    problem: &Problem,
    values: impl Iterator<Item = ValueId>,
) -> impl Iterator<Item = ValueId> {
    values.filter(|&v| problem.values[v.index()].home == Home::Arena)
}

fn run(problem: &Problem, n: &Node) -> Run {
    let inputs = set(arena(problem, n.inputs.iter().copied()));
    let outputs = set(arena(problem, n.outputs.iter().copied()));
    let pair = |&(i, o): &(u32, u32)| (n.inputs[i as usize], n.outputs[o as usize]);
    let allowed = |&(i, o): &(ValueId, ValueId)| {
        let (from, to) = (&problem.values[i.index()], &problem.values[o.index()]);
        let once = n.inputs.iter().filter(|&&v| v == i).count() == 1;
        from.bytes == to.bytes
            && from.bytes > 0
            && inputs >> i.index() & 1 == 1
            && outputs >> o.index() & 1 == 1
            && !from.wanted
            && once
    };
    Run {
        inputs,
        outputs,
        in_place: n.in_place.iter().map(pair).filter(allowed).collect(),
        scratch: footprint(n.scratch_bytes),
        seconds: n.seconds,
        again: n.effect == Effect::Repeatable,
    }
}
