//! What stays in the arena between runs, and what goes.

use super::{Frame, Held, Simulator};
use crate::problem::{NodeId, Tier, ValueId, footprint_on};
use crate::program::Lock;
use crate::simulate::outcome::{Recorder, Stuck};
use crate::simulate::setting::{KEEP, NEVER, awaited, spilled};

impl Simulator<'_> {
    /// The input whose buffer an output takes over: one that goes with this run.
    pub(super) fn taken(&self, node: NodeId, output: ValueId) -> Option<ValueId> {
        let goes = |&&(i, o): &&(ValueId, ValueId)| {
            let state = self.values[i.index()];
            // What is to be copied to a tier when it goes needs its bytes until then.
            let copied = state.spill && state.copy.is_none();
            let free = !state.hold && state.pins == 1 && state.pending == 0 && !copied;
            o == output && free && self.fresh.iter().all(|f| f.takes != Some(i))
        };
        self.program
            .in_place
            .row(node)
            .iter()
            .find(goes)
            .map(|&(i, _)| i)
    }

    /// Unpins what a frame used and lets go of what nobody needs.
    pub(super) fn settle(&mut self, frame: Frame, recorder: &mut impl Recorder) {
        let program = self.program;
        if frame.node >= program.end() {
            return;
        }
        for &v in program.inputs.row(frame.node) {
            self.values[v.index()].pins -= 1;
            self.release(v, recorder);
        }
        for &v in program.outputs.row(frame.node) {
            self.release(v, recorder);
        }
    }

    pub(super) fn release(&mut self, v: ValueId, recorder: &mut impl Recorder) {
        let state = &mut self.values[v.index()];
        if !state.idle() {
            return;
        }
        state.present = false;
        let bytes = self.program.size[v.index()];
        self.bytes -= bytes;
        match self.due_copy(v) {
            Some(tier) => {
                self.values[v.index()].copy = Some(tier);
                self.outcome.written[tier as usize] += bytes;
                self.outcome.seconds += self.price.write[tier as usize] * bytes as f64;
                recorder.evict(v, tier);
            }
            None => recorder.free(v),
        }
    }

    /// Where a value that goes is to be copied first: a cell that was overwritten goes home, a value
    /// that is needed again and moved for that has no copy yet.
    pub(super) fn due_copy(&mut self, v: ValueId) -> Option<Tier> {
        let program = self.program;
        let state = self.values[v.index()];
        if state.copy.is_some() {
            return None;
        }
        if program.is_cell(v) {
            return spilled(self.settings[program.gap(v)]);
        }
        let needed = state.pending > 0 || !program.tail(state.gap as usize);
        let tier = spilled(self.settings[state.gap as usize]).filter(|_| needed)?;
        self.below[tier as usize] += footprint_on(tier, program.size[v.index()]);
        Some(tier)
    }

    pub(super) fn fetch(&mut self, v: ValueId, tier: Tier, recorder: &mut impl Recorder) {
        let bytes = self.program.size[v.index()];
        let state = &mut self.values[v.index()];
        state.present = true;
        self.replays[state.gap as usize] += 1;
        self.bytes += bytes;
        self.outcome.read[tier as usize] += bytes;
        self.outcome.seconds += self.price.read[tier as usize] * bytes as f64;
        recorder.fetch(v, tier);
    }

    /// Gives up where more is put on a tier than there is room for.
    pub(super) fn check_room(&self) -> Result<(), Stuck> {
        let room = |tier| self.program.tiers.link(tier).map_or(0, |link| link.bytes);
        let over = |&tier: &Tier| self.below[tier as usize] > room(tier);
        match Tier::ALL.iter().find(|tier| over(tier)) {
            Some(_) => Err(Stuck::Over),
            None => Ok(()),
        }
    }

    /// Decides whether a value is held from here on.
    pub(super) fn enter(&mut self, v: ValueId) {
        let state = self.values[v.index()];
        let gap = state.gap as usize;
        let hold = self.holds(gap, state.count);
        let spill = spilled(self.settings[gap]).is_some();
        let state = &mut self.values[v.index()];
        (state.hold, state.spill) = (hold, spill);
    }

    /// Whether a value is held after so many recomputations in a gap.
    pub(super) fn holds(&self, gap: usize, count: u8) -> bool {
        match self.settings[gap] {
            KEEP => true,
            NEVER => false,
            moved if spilled(moved).is_some() => false,
            released if awaited(released).is_some() => count == 0 || !self.program.tail(gap),
            n => count >= if self.program.tail(gap) { 1 } else { n },
        }
    }

    /// Lets go of a value that has been read by as many recomputations as it waits for.
    pub(super) fn read_again(&mut self, v: ValueId) {
        let state = &mut self.values[v.index()];
        if !state.hold {
            return;
        }
        state.read = state.read.saturating_add(1);
        let state = *state;
        let setting = self.settings[state.gap as usize];
        let released = match awaited(setting) {
            Some(readers) => state.count == 0 && state.read >= readers,
            None => {
                setting != KEEP && state.read >= setting && self.program.tail(state.gap as usize)
            }
        };
        if released {
            let state = &mut self.values[v.index()];
            (state.hold, state.count) = (false, state.count.max(1));
        }
    }

    /// Whether a run is to fill an output that it may leave out.
    pub(super) fn asked(&self, frame: Frame, v: ValueId) -> bool {
        let again = u8::from(frame.target.is_some());
        let state = self.values[v.index()];
        let count = state.count.saturating_add(again);
        let gap = state.gap as usize;
        let kept = self.holds(gap, count) || spilled(self.settings[gap]).is_some();
        frame.target == Some(v) || state.pending > 0 || kept
    }

    /// Checks that a node may run again at a step, and puts off updates where it may not yet.
    pub(super) fn unlocked(&mut self, node: NodeId, step: u32) -> Result<(), Stuck> {
        for &lock in self.program.locks.row(node) {
            let stale = match lock {
                Lock::Gone => true,
                Lock::Step(writer) => step > writer,
                Lock::Update(u) if self.has_updated(u) => {
                    self.due[u as usize] = step + 1;
                    self.late = true;
                    step as usize >= self.program.steps.len()
                }
                Lock::Update(_) => false,
            };
            if stale {
                let target = self.frames.last().and_then(|f| f.target);
                let v = target.expect("only recomputations are checked, and each has a target");
                return Err(self.blame(v));
            }
        }
        Ok(())
    }

    /// The gap on the way to a missing value that could have been kept.
    pub(super) fn blame(&self, missing: ValueId) -> Stuck {
        let chain = self.frames.iter().filter_map(|f| f.target).chain([missing]);
        let mut gaps = chain.map(|v| self.values[v.index()].gap as usize);
        let dropped = gaps.find(|&gap| !self.program.tail(gap) && self.settings[gap] != KEEP);
        dropped.map_or(Stuck::Lost(missing), Stuck::Gap)
    }

    pub(super) fn snapshot(&mut self) {
        for v in ValueId::below(self.values.len()) {
            self.touch(v);
            let state = self.values[v.index()];
            let home = self.program.is_cell(v) && self.settings[self.program.gap(v)] == KEEP;
            let waits = state.hold && state.pending == 0 || self.moves && state.pending > 0;
            let idle = if home {
                state.pins == 1
            } else {
                waits && state.pins == 0
            };
            if state.present && idle {
                let k = state.gap as usize - self.program.gap(v);
                self.held.push(Held { value: v, k });
            }
        }
    }
}
