//! A whole walk, step by step: what each step touched and made of it. A walk of settings that differ little is
//! mended from it ([`super::mend`]).

use super::State;
use crate::problem::ValueId;
use crate::program::Program;
use crate::simulate::outcome::Outcome;

/// What a step and the updates before it came to.
#[derive(Debug, Clone, Default)]
pub(super) struct Slot {
    pub(super) seconds: f64,
    /// Values that were looked at.
    pub(super) touched: Vec<ValueId>,
    /// Gaps with a recomputation, one entry for each.
    pub(super) again: Vec<u32>,
}

/// The walk of some settings. Without settings there was none yet.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) settings: Vec<u8>,
    pub(super) due: Vec<u32>,
    /// Updates by their places.
    pub(super) queue: Vec<(u32, u32)>,
    /// Values before the first step.
    pub(super) start: Vec<State>,
    /// Per value: the steps that touched it, and what it was after them.
    after: Vec<Vec<(u32, State)>>,
    /// By step; the last one stands for the updates after all steps.
    pub(super) slots: Vec<Slot>,
    /// Runs of each.
    pub(super) runs: Vec<u32>,
    /// Bytes before each step, and at the end.
    pub(super) bytes: Vec<u64>,
    pub(super) high: Vec<u64>,
    pub(super) replays: Vec<u32>,
    pub(super) outcome: Outcome,
    /// Per gap: its value.
    owner: Vec<ValueId>,
}

impl History {
    /// Forgets what it knew, and begins with values before the first step.
    pub(super) fn begin(&mut self, program: &Program, start: &[State], bytes: u64) {
        let slots = program.steps.len() + 1;
        self.settings.clear();
        self.start.clear();
        self.start.extend_from_slice(start);
        self.after.iter_mut().for_each(Vec::clear);
        self.after.resize(start.len(), Vec::new());
        self.slots.resize(slots, Slot::default());
        for slot in &mut self.slots {
            slot.touched.clear();
            slot.again.clear();
        }
        self.runs.resize(slots, 0);
        self.bytes.clear();
        self.bytes.push(bytes);
        self.replays.clear();
        self.replays.resize(program.gaps(), 0);
        if self.owner.is_empty() {
            self.owner.resize(program.gaps(), ValueId::new(0));
            for v in ValueId::below(start.len()) {
                let first = program.gap(v);
                self.owner[first..=first + program.uses(v).len()].fill(v);
            }
        }
    }

    /// Whether it is the walk of these settings.
    pub(super) fn is_of(&self, settings: &[u8], due: &[u32]) -> bool {
        self.settings == settings && self.due == due
    }

    /// What a value is before a step.
    pub(super) fn before(&self, v: ValueId, step: u32) -> State {
        let after = &self.after[v.index()];
        let known = after.partition_point(|&(at, _)| at < step);
        let latest = known.checked_sub(1).map(|at| after[at].1);
        latest.unwrap_or_else(|| self.start[v.index()])
    }

    /// What a value is after a step.
    pub(super) fn after(&self, v: ValueId, step: u32) -> State {
        self.before(v, step + 1)
    }

    /// The next step that touched a value.
    pub(super) fn next(&self, v: ValueId, step: u32) -> Option<u32> {
        let after = &self.after[v.index()];
        let at = after.partition_point(|&(at, _)| at <= step);
        after.get(at).map(|&(at, _)| at)
    }

    /// The steps that could see a gap's setting, if they can be told: those that touched its value in the gap.
    pub(super) fn steps_of_gap(&self, gap: usize) -> Option<Vec<u32>> {
        let v = self.owner[gap];
        let start = self.start[v.index()];
        // Its beginning was no step's.
        if start.present && start.gap as usize == gap {
            return None;
        }
        let mut before = start.gap as usize;
        let mut seen = |&(step, state): &(u32, State)| {
            let was = std::mem::replace(&mut before, state.gap as usize);
            (was <= gap && gap <= state.gap as usize).then_some(step)
        };
        Some(self.after[v.index()].iter().filter_map(&mut seen).collect())
    }

    /// The steps that touched a value.
    pub(super) fn steps_of(&self, v: ValueId) -> impl Iterator<Item = u32> + '_ {
        self.after[v.index()].iter().map(|&(step, _)| step)
    }

    /// The updates that stand before a step.
    pub(super) fn updates(queue: &[(u32, u32)], step: u32) -> &[(u32, u32)] {
        let from = queue.partition_point(|&(due, _)| due < step);
        let to = queue.partition_point(|&(due, _)| due <= step);
        &queue[from..to]
    }

    /// Replaces what a step touched and made of it.
    pub(super) fn rewrite(&mut self, step: u32, touched: &[(ValueId, State)], again: &[u32]) {
        let slot = &mut self.slots[step as usize];
        for &v in &slot.touched {
            let after = &mut self.after[v.index()];
            let at = after.partition_point(|&(at, _)| at < step);
            after.remove(at);
        }
        slot.touched.clear();
        for &(v, state) in touched {
            let after = &mut self.after[v.index()];
            let at = after.partition_point(|&(at, _)| at < step);
            after.insert(at, (step, state));
            slot.touched.push(v);
        }
        for &gap in &slot.again {
            self.replays[gap as usize] -= 1;
        }
        slot.again.clear();
        slot.again.extend_from_slice(again);
        for &gap in again {
            self.replays[gap as usize] += 1;
        }
    }
}
