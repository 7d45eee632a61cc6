//! Which settings are allowed, and the ones to start from.
//!
//! There is no mark on a node that says forward or backward. The *turn* is where most values are
//! waiting for a use; it is where the forward part of a training step ends. A *cut* is a place in
//! the forward part that one value alone crosses, or nearly: everything later in the forward part
//! is computed from it. Recomputing all that lies between cuts is checkpointing per block.

use crate::policy::Policy;
use crate::problem::{NodeId, Pin, Problem, Tier, ValueId};
use crate::program::Program;
use crate::simulate::setting::{KEEP, LATEST, NEVER, RELEASE, spill};
use crate::simulate::{Candidate, Simulator, Stuck};

/// For each gap the least and the most that its setting may be.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) low: Vec<u8>,
    pub(crate) high: Vec<u8>,
    /// For each gap the tiers to which the value may be moved in it, whatever `high` says.
    pub(crate) tiers: Vec<[bool; 2]>,
}

/// Values of less than this share of the largest are not worth moving.
const SMALL: u64 = 4096;

impl Limits {
    pub(crate) fn new(problem: &Problem, program: &Program, policy: Policy) -> Limits {
        let mut low = vec![KEEP; program.settings()];
        let mut high = vec![KEEP; program.gaps()];
        high.resize(program.settings(), LATEST);
        for v in ValueId::below(problem.values.len()) {
            let first = program.gap(v);
            let tail = first + program.uses(v).len();
            (low[tail], high[tail]) = (NEVER, NEVER);
            if !program.repeatable[v.index()] {
                continue;
            }
            match problem.values[v.index()].pin {
                Pin::Keep => {}
                Pin::Recompute => {
                    if let Some(k) = widest(problem, program, v) {
                        (low[first + k], high[first + k]) = (1, NEVER);
                    }
                }
                Pin::Free | Pin::PreferKeep | Pin::PreferRecompute => {
                    if policy != Policy::Keep {
                        high[first..tail].fill(NEVER);
                    }
                }
            }
        }
        let tiers = vec![[false; 2]; program.gaps()];
        let mut limits = Limits { low, high, tiers };
        if program.tiers.any() {
            limits.move_values(problem, program);
        }
        if policy == Policy::Recompute {
            let cuts = cuts(program);
            let start = blocks(program, &limits, &cuts);
            for ((low, high), start) in limits.low.iter_mut().zip(&limits.high).zip(start) {
                *low = (*low).max(start).min(*high);
            }
        }
        limits
    }

    /// Settings that keep as much as the limits let them, and what they come to. Limits that cannot be met
    /// are lowered (what a pin asks to recompute may be impossible to). The error is a value that is
    /// needed and lost. Answers how many runs were simulated, too.
    pub(crate) fn relax(&mut self, program: &Program) -> Result<(Candidate, u64), ValueId> {
        let mut simulator = Simulator::new(program);
        loop {
            match simulator.find(self.low.clone(), &[]) {
                Ok(kept) => return Ok((kept, simulator.work)),
                Err(Stuck::Gap(gap)) => (self.low[gap], self.high[gap]) = (KEEP, KEEP),
                Err(Stuck::Lost(value)) => return Err(value),
                Err(Stuck::Long | Stuck::Over) => {
                    let low = &self.low;
                    let dropped: Vec<usize> = (0..low.len()).filter(|&gap| low[gap] == 1).collect();
                    // Where all is kept each node runs once, which is not too long; and fixed homes that
                    // are too many for their tier are nobody's to change.
                    if dropped.is_empty() {
                        let first = program.cells.list.first();
                        return Err(first.map_or(ValueId::new(0), |cell| cell.0));
                    }
                    for gap in dropped {
                        (self.low[gap], self.high[gap]) = (KEEP, KEEP);
                    }
                }
            }
        }
    }

    /// Allows to move what may be moved, and settles the homes that are given.
    fn move_values(&mut self, problem: &Problem, program: &Program) {
        let largest = program.size.iter().copied().max().unwrap_or(0);
        let writable = |tier| program.tiers.link(tier).is_some_and(|link| link.writable);
        let there = |tier| program.tiers.link(tier).is_some();
        for v in ValueId::below(problem.values.len()) {
            let free = problem.values[v.index()].pin == Pin::Free;
            if free && !program.is_cell(v) && program.size[v.index()] * SMALL >= largest {
                self.allow(program, v, Tier::ALL.map(writable));
            }
        }
        for &(v, home) in &program.cells.list {
            let written = program.cells.rewritten[v.index()];
            let may = |tier| if written { writable(tier) } else { there(tier) };
            let may = Tier::ALL.map(|tier| may(tier) && home.is_none_or(|home| home == tier));
            self.allow(program, v, may);
            let first = program.gap(v);
            self.tiers[first] = may;
            let at_home = home.map_or(KEEP, spill);
            (self.low[first], self.high[first]) = (at_home, at_home);
        }
    }

    /// Allows to move a value to some tiers in all its gaps, and for an update.
    fn allow(&mut self, program: &Program, v: ValueId, may: [bool; 2]) {
        let (first, uses) = (program.gap(v), program.uses(v).len());
        self.tiers[first..first + uses].fill(may);
        if program.pending[v.index()] > 0 {
            self.tiers[first + uses] = may;
        }
    }
}

/// The gap of a value pinned to be recomputed in which it is dropped: the widest in which the
/// program leaves the pinned nodes, before a use by a node that is not pinned.
fn widest(problem: &Problem, program: &Program, v: ValueId) -> Option<usize> {
    let pinned = |step: u32| {
        let node: NodeId = program.steps[step as usize];
        problem.nodes.get(node.index()).is_some_and(|n| {
            n.outputs
                .iter()
                .any(|&o| problem.values[o.index()].pin == Pin::Recompute)
        })
    };
    let leaves = |&k: &usize| {
        let (from, to) = program.span(v, k);
        !pinned(to) && (from + 1..to).any(|step| !pinned(step))
    };
    let width = |&k: &usize| {
        let (from, to) = program.span(v, k);
        (to - from, k)
    };
    (0..program.uses(v).len()).filter(leaves).max_by_key(width)
}

/// The step at which most values, tiny ones aside, wait long for a use.
fn turn(program: &Program) -> u32 {
    let mut change = vec![0i64; program.steps.len() + 1];
    let long = program.steps.len() as u32 / 16;
    let sizes = ValueId::numbered(&program.size).filter(|(v, _)| !program.is_cell(*v));
    let largest = sizes.map(|(_, &size)| size).max().unwrap_or(0);
    let counts = |&v: &ValueId| program.size[v.index()] > largest / 100 && !program.is_cell(v);
    for v in ValueId::below(program.size.len()).filter(counts) {
        for k in 0..program.uses(v).len() {
            let (from, to) = program.span(v, k);
            if to > from + long {
                change[from as usize] += 1;
                change[to as usize] -= 1;
            }
        }
    }
    let (mut waiting, mut best) = (0, (i64::MIN, 0));
    for (step, change) in (0..).zip(change) {
        waiting += change;
        if waiting > best.0 {
            best = (waiting, step);
        }
    }
    best.1
}

/// The turn, and the values that carry all later forward computation, in order.
#[derive(Debug, Clone)]
pub(crate) struct Cuts {
    turn: u32,
    pub(crate) values: Vec<ValueId>,
}

/// Finds the cuts.
pub(crate) fn cuts(program: &Program) -> Cuts {
    let turn = turn(program);
    let mut born: Vec<Vec<ValueId>> = vec![Vec::new(); turn as usize + 1];
    for v in ValueId::below(program.size.len()) {
        let filled = program.filled[v.index()];
        if program.repeatable[v.index()] && program.size[v.index()] > 0 && filled <= turn {
            born[filled as usize].push(v);
        }
    }
    let last = |v: ValueId| {
        program
            .uses(v)
            .iter()
            .copied()
            .rfind(|&u| u <= turn)
            .unwrap_or(0)
    };
    let mut crossing: Vec<ValueId> = Vec::new();
    let mut values = Vec::new();
    for (step, born) in (0..=turn).zip(born) {
        crossing.extend(born);
        crossing.retain(|&v| last(v) > step);
        let sum: u64 = crossing.iter().map(|&v| program.size[v.index()]).sum();
        let largest = crossing
            .iter()
            .copied()
            .max_by_key(|&v| program.size[v.index()]);
        if let Some(v) = largest.filter(|&v| program.size[v.index()] * 8 >= sum * 7)
            && values.last() != Some(&v)
        {
            values.push(v);
        }
    }
    Cuts { turn, values }
}

/// Settings that keep the cuts and recompute, once, all else before the last cut that waits at the
/// turn.
pub(crate) fn blocks(program: &Program, limits: &Limits, cuts: &Cuts) -> Vec<u8> {
    let mut settings = limits.low.clone();
    let mut kept = vec![false; program.size.len()];
    for &v in &cuts.values {
        kept[v.index()] = true;
    }
    let last = cuts
        .values
        .last()
        .map_or(cuts.turn, |&v| program.filled[v.index()]);
    for v in ValueId::below(program.size.len()) {
        let (first, uses) = (program.gap(v), program.uses(v));
        let across = uses.iter().position(|&u| u > cuts.turn);
        let across = across.filter(|_| program.filled[v.index()] < last);
        match across {
            Some(k) if !kept[v.index()] && limits.high[first + k] != KEEP => {
                settings[first + k] = settings[first + k].max(1);
            }
            None if kept[v.index()] => settings[first + uses.len()] = RELEASE,
            _ => {}
        }
    }
    settings
}

/// Settings that move all that may be moved, as far away as it may be; `setting` for the rest.
pub(crate) fn away(limits: &Limits, setting: u8) -> Vec<u8> {
    let mut settings = all(limits, setting);
    for (setting, may) in settings.iter_mut().zip(&limits.tiers) {
        let farthest = Tier::ALL.into_iter().rfind(|&tier| may[tier as usize]);
        *setting = farthest.map_or(*setting, spill);
    }
    settings
}

/// Settings that drop everything that may be dropped; what a node lacks is made again latest producer
/// first.
pub(crate) fn all(limits: &Limits, setting: u8) -> Vec<u8> {
    let bounds = limits.low.iter().zip(&limits.high);
    bounds
        .map(|(&low, &high)| setting.clamp(low, high))
        .collect()
}
