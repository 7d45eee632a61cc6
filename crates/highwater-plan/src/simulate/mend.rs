//! Walks of long programs that differ little from one that is known step by step, the *history*.
//!
//! What a step does depends on the settings that it looks at, on what the values that it touches are before it,
//! and on which updates have run. So only those steps are done again that see a setting that differs, or touch a
//! value that an earlier one left otherwise than in the history. In between, the bytes are those of the history,
//! moved by a constant. The steps that are done again are few, however long the program is.
//!
//! Without tiers: what is put there, and what comes home at the end, is counted by whole walks alone.

use super::history::History;
use super::{ROUNDS, Simulator, State};
use crate::problem::{NodeId, ValueId};
use crate::simulate::outcome::{Outcome, Stuck};
use std::collections::BTreeSet;

/// Programs of fewer steps are walked from one of some marks on ([`super::resume`]).
pub(crate) const LONG: usize = 1_500;
/// A walk that differs in more settings than one of so many steps is done as a whole.
const FEW: usize = 16;
/// Steps whose bytes are looked through in the time of a simulated run.
const LOOKS: u64 = 40;

/// A walk under way, or mended.
#[derive(Debug, Default)]
pub(super) struct Mend {
    /// Whether steps are done apart from each other.
    pub(super) on: bool,
    pub(super) step: u32,
    /// Where updates stand in this round.
    due: Vec<u32>,
    queue: Vec<(u32, u32)>,
    /// Numbers the walks, and the steps that were done.
    walk: u32,
    tick: u32,
    /// Per value: the latest walk in which it was left otherwise than in the history, as it is in
    /// `Simulator::values` then.
    other: Vec<u32>,
    /// Per value: the latest step that took it up.
    taken_up: Vec<u32>,
    /// What the step at hand took up.
    touched: Vec<ValueId>,
    /// Steps that are to be done.
    dirty: BTreeSet<u32>,
    /// Steps that were done, and what they came to.
    done: Vec<Done>,
    states: Vec<(ValueId, State)>,
    /// Gaps with a recomputation.
    pub(super) again: Vec<u32>,
    /// Whether the latest walk came to its end, and may become the history.
    pub(super) whole: bool,
    /// Programs of fewer steps are not mended.
    least: usize,
}

impl Mend {
    pub(super) fn new() -> Mend {
        Mend {
            least: LONG,
            ..Mend::default()
        }
    }
}

/// A step that was done again.
#[derive(Debug, Clone, Copy)]
struct Done {
    step: u32,
    runs: u32,
    seconds: f64,
    high: u64,
    /// Bytes after it.
    bytes: u64,
    /// Where its values and recomputations end in the lists of all.
    states: usize,
    again: usize,
}

impl Simulator<'_> {
    /// Whether walks are mended.
    fn mends(&self) -> bool {
        self.program.steps.len() >= self.mend.least && !self.moves
    }

    /// Takes up a value as it is before the step at hand.
    #[inline]
    pub(super) fn touch(&mut self, v: ValueId) {
        if self.mend.on {
            self.take_up(v);
        }
    }

    fn take_up(&mut self, v: ValueId) {
        let mend = &mut self.mend;
        if std::mem::replace(&mut mend.taken_up[v.index()], mend.tick) == mend.tick {
            return;
        }
        mend.touched.push(v);
        if mend.other[v.index()] != mend.walk {
            self.values[v.index()] = self.history.before(v, mend.step);
        }
    }

    /// Whether an update has run before the step at hand, or the one at hand.
    pub(super) fn has_updated(&self, update: u32) -> bool {
        let early = self.mend.on && self.mend.due[update as usize] < self.mend.step;
        early || self.updated[update as usize]
    }

    /// Makes the walk of some settings the history, and leaves what it came to; `None` if walks are not mended.
    pub(super) fn stand(&mut self, settings: &[u8], due: &[u32]) -> Option<Result<Outcome, Stuck>> {
        if !self.mends() {
            return None;
        }
        Some(self.stand_at(settings, due))
    }

    fn stand_at(&mut self, settings: &[u8], due: &[u32]) -> Result<Outcome, Stuck> {
        if !self.history.is_of(settings, due) {
            let is_latest = self.mend.whole && self.settings == settings && self.due == due;
            if is_latest || self.mended(settings, due).transpose()?.is_some() {
                self.commit();
            } else {
                self.write(settings, due)?;
            }
        }
        self.mend.whole = false;
        self.high.clone_from(&self.history.high);
        self.replays.clone_from(&self.history.replays);
        Ok(self.history.outcome)
    }

    /// The walk of settings that differ little from those of the history; `None` if they do not.
    pub(super) fn mended(
        &mut self,
        settings: &[u8],
        due: &[u32],
    ) -> Option<Result<Outcome, Stuck>> {
        if !self.mends() || self.history.settings.len() != settings.len() || self.history.due != due
        {
            return None;
        }
        let seen = self.seen(settings)?;
        self.settings.clear();
        self.settings.extend_from_slice(settings);
        self.due.clear();
        self.due.extend_from_slice(due);
        self.mend.queue.clone_from(&self.history.queue);
        self.updated.fill(false);
        self.work += self.program.steps.len() as u64 / LOOKS;
        self.mend.on = true;
        let mended = self.rounds(&seen);
        self.mend.on = false;
        self.mend.whole = mended.is_ok();
        Some(mended)
    }

    /// The steps that see a setting that differs from the history's.
    fn seen(&self, settings: &[u8]) -> Option<Vec<u32>> {
        let (program, history) = (self.program, &self.history);
        let mut differences = Vec::new();
        let chunks = history.settings.chunks(64).zip(settings.chunks(64));
        for (i, (known, new)) in chunks.enumerate().filter(|(_, (known, new))| known != new) {
            let each = known.iter().zip(new).enumerate();
            let different = each.filter(|(_, (known, new))| known != new);
            differences.extend(different.map(|(k, _)| 64 * i + k));
        }
        if differences.len() > program.steps.len() / FEW {
            return None;
        }
        let mut seen = Vec::new();
        for at in differences {
            if at < program.gaps() {
                seen.extend(history.steps_of_gap(at)?);
                continue;
            }
            let node = NodeId::new(at - program.gaps());
            // Wherever a node runs it touches its outputs, if it has any; and its inputs.
            let values = program.outputs.row(node).iter();
            let values = values.chain(program.inputs.row(node)).take(1);
            seen.extend(values.flat_map(|&v| history.steps_of(v)));
        }
        Some(seen)
    }

    /// Mends until no update has to be put off.
    fn rounds(&mut self, seen: &[u32]) -> Result<Outcome, Stuck> {
        for _ in 0..ROUNDS {
            let mend = &mut self.mend;
            mend.due.clone_from(&self.due);
            mend.dirty.clear();
            mend.dirty.extend(seen);
            let moved = mend.due.iter().zip(&self.history.due);
            for (&to, &from) in moved.filter(|(to, from)| to != from) {
                mend.dirty.extend([to, from]);
            }
            self.late = false;
            let outcome = self.round()?;
            if !self.late {
                return Ok(outcome);
            }
            self.follow();
            self.mend.queue.clear();
            self.mend
                .queue
                .extend((0..).zip(&self.due).map(|(u, &due)| (due, u)));
            self.mend.queue.sort_unstable();
        }
        Err(Stuck::Long)
    }

    /// Does the steps that have to be done, in order.
    fn round(&mut self) -> Result<Outcome, Stuck> {
        self.mend.walk += 1;
        self.mend.done.clear();
        self.mend.states.clear();
        self.mend.again.clear();
        let mut outcome = self.history.outcome;
        let (mut shift, mut runs) = (0, 0);
        while let Some(step) = self.mend.dirty.pop_first() {
            let at = step as usize;
            let done = self.slot(step, self.history.bytes[at].wrapping_add(shift))?;
            shift = done.bytes.wrapping_sub(self.history.bytes[at + 1]);
            outcome.runs = outcome.runs + done.runs - self.history.runs[at];
            outcome.seconds += done.seconds - self.history.slots[at].seconds;
            runs += done.runs;
            if runs > self.limit() {
                return Err(Stuck::Long);
            }
            self.spread(step);
        }
        outcome.compute = outcome.seconds;
        outcome.peak = self.raise();
        if outcome.runs > self.limit() {
            return Err(Stuck::Long);
        }
        if outcome.peak > self.most {
            return Err(Stuck::Over);
        }
        Ok(outcome)
    }

    /// Does a step, after the updates that stand before it.
    fn slot(&mut self, step: u32, bytes: u64) -> Result<Done, Stuck> {
        let program = self.program;
        self.mend.tick += 1;
        self.mend.step = step;
        self.mend.touched.clear();
        self.frames.clear();
        self.bytes = bytes;
        self.high[step as usize] = 0;
        (self.runs, self.outcome) = (0, Outcome::new(0));
        let queue = std::mem::take(&mut self.mend.queue);
        let mut end = Ok(());
        for &(_, u) in History::updates(&queue, step) {
            end = end.and_then(|()| {
                self.demand(program.updates[u as usize].node, step, Some(u), &mut ())
            });
            self.updated[u as usize] = true;
        }
        if let Some(&node) = program.steps.get(step as usize) {
            end = end.and_then(|()| self.demand(node, step, None, &mut ()));
        }
        for &(_, u) in History::updates(&queue, step) {
            self.updated[u as usize] = false;
        }
        self.mend.queue = queue;
        self.work += u64::from(self.runs);
        end?;
        let mend = &mut self.mend;
        let values = &self.values;
        let states = mend.touched.iter().map(|&v| (v, values[v.index()]));
        mend.states.extend(states);
        let done = Done {
            step,
            runs: self.runs,
            seconds: self.outcome.seconds,
            high: self.high[step as usize],
            bytes: self.bytes,
            states: mend.states.len(),
            again: mend.again.len(),
        };
        mend.done.push(done);
        Ok(done)
    }

    /// Compares what a step left with the history: what touches a value that is otherwise has to be done again.
    fn spread(&mut self, step: u32) {
        let (mend, history) = (&mut self.mend, &self.history);
        let known = &history.slots[step as usize].touched;
        let missed = known
            .iter()
            .filter(|v| mend.taken_up[v.index()] != mend.tick);
        for &v in mend.touched.iter().chain(missed) {
            let is_other = mend.other[v.index()] == mend.walk;
            let is_new = mend.taken_up[v.index()] == mend.tick;
            let now = if is_new || is_other {
                self.values[v.index()]
            } else {
                history.before(v, step)
            };
            if now == history.after(v, step) {
                mend.other[v.index()] = mend.walk - 1;
                continue;
            }
            self.values[v.index()] = now;
            mend.other[v.index()] = mend.walk;
            mend.dirty.extend(history.next(v, step));
        }
    }

    /// Leaves the most bytes of each step in `high`; answers the most of all.
    fn raise(&mut self) -> u64 {
        let history = &self.history;
        let (mut from, mut shift) = (0, 0_u64);
        let last = self.history.high.len();
        let ends = self.mend.done.iter().map(Some).chain([None]);
        for done in ends {
            let to = done.map_or(last, |done| done.step as usize);
            let known = history.high[from..to].iter().zip(&history.runs[from..to]);
            for (high, (&known, &runs)) in self.high[from..to].iter_mut().zip(known) {
                *high = if runs == 0 {
                    0
                } else {
                    known.wrapping_add(shift)
                };
            }
            if let Some(done) = done {
                self.high[to] = done.high;
                shift = done.bytes.wrapping_sub(history.bytes[to + 1]);
                from = to + 1;
            }
        }
        let most = self.high.iter().copied().max().unwrap_or(0);
        most.max(history.bytes[0])
    }

    /// Makes the latest walk the history.
    fn commit(&mut self) {
        let (mend, history) = (&mut self.mend, &mut self.history);
        history.settings.clone_from(&self.settings);
        history.due.clone_from(&self.due);
        history.queue.clone_from(&mend.queue);
        history.high.clone_from(&self.high);
        let (mut shift, mut from) = (0, 0);
        let (mut states, mut again) = (0, 0);
        for done in &mend.done {
            let at = done.step as usize;
            let stretch = &mut history.bytes[from..=at];
            stretch
                .iter_mut()
                .for_each(|bytes| *bytes = bytes.wrapping_add(shift));
            shift = done.bytes.wrapping_sub(history.bytes[at + 1]);
            from = at + 1;
            let (touched, replayed) = (
                &mend.states[states..done.states],
                &mend.again[again..done.again],
            );
            (states, again) = (done.states, done.again);
            history.rewrite(done.step, touched, replayed);
            history.runs[at] = done.runs;
            history.slots[at].seconds = done.seconds;
        }
        let stretch = &mut history.bytes[from..];
        stretch
            .iter_mut()
            .for_each(|bytes| *bytes = bytes.wrapping_add(shift));
        self.sum_up();
    }

    /// Adds up what the steps of the history came to, in their order: so that it does not depend on how the
    /// history came about.
    fn sum_up(&mut self) {
        let history = &mut self.history;
        let mut outcome = Outcome::new(history.bytes[0]);
        outcome.runs = history.runs.iter().sum();
        outcome.seconds = history.slots.iter().map(|slot| slot.seconds).sum();
        let most = history.high.iter().copied().max().unwrap_or(0);
        outcome.peak = outcome.peak.max(most);
        outcome.compute = outcome.seconds;
        history.outcome = outcome;
    }

    /// Does all steps, and writes the history.
    fn write(&mut self, settings: &[u8], due: &[u32]) -> Result<(), Stuck> {
        let program = self.program;
        self.begin(settings, due);
        self.mend.taken_up.resize(self.before.len(), 0);
        self.mend.other.resize(self.before.len(), 0);
        for _ in 0..ROUNDS {
            self.reset(&mut ());
            self.history.begin(program, &self.values, self.bytes);
            self.mend.due.clone_from(&self.due);
            self.mend.queue.clear();
            self.mend
                .queue
                .extend((0..).zip(&self.due).map(|(u, &due)| (due, u)));
            self.mend.queue.sort_unstable();
            // Every value is what it was left as.
            self.mend.walk += 1;
            self.mend.other.fill(self.mend.walk);
            self.mend.on = true;
            let end = self.write_steps();
            self.mend.on = false;
            end?;
            if !self.late {
                let history = &mut self.history;
                history.settings.clone_from(&self.settings);
                history.due.clone_from(&self.due);
                history.queue.clone_from(&self.mend.queue);
                history.high.clone_from(&self.high);
                self.sum_up();
                return Ok(());
            }
        }
        Err(Stuck::Long)
    }

    fn write_steps(&mut self) -> Result<(), Stuck> {
        let mut runs = 0;
        for step in 0..=self.program.steps.len() as u32 {
            self.mend.done.clear();
            self.mend.states.clear();
            self.mend.again.clear();
            let done = self.slot(step, self.history.bytes[step as usize])?;
            self.history
                .rewrite(step, &self.mend.states, &self.mend.again);
            self.history.runs[step as usize] = done.runs;
            self.history.slots[step as usize].seconds = done.seconds;
            self.history.bytes.push(done.bytes);
            runs += done.runs;
            if runs > self.limit() {
                return Err(Stuck::Long);
            }
        }
        Ok(())
    }

    /// Leaves in `held` what is held at the peak of the history and not used by its run.
    pub(super) fn watch_history(&mut self) {
        self.held.clear();
        let peak = self.history.outcome.peak;
        let Some(step) = self.history.high.iter().position(|&high| high == peak) else {
            return;
        };
        let work = self.work;
        self.mend.due.clone_from(&self.history.due);
        self.mend.queue.clone_from(&self.history.queue);
        self.settings.clone_from(&self.history.settings);
        self.mend.walk += 1;
        self.mend.on = true;
        self.updated.fill(false);
        // Once to find the run, once to look at it.
        if self.slot(step as u32, self.history.bytes[step]).is_ok() {
            self.watch = self.outcome.peak_run;
            let _ = self.slot(step as u32, self.history.bytes[step]);
        }
        self.watch = u32::MAX;
        self.mend.on = false;
        self.mend.whole = false;
        self.work = work + self.program.steps.len() as u64 / LOOKS;
    }
}

#[cfg(test)]
mod tests {
    use super::super::resume::tests::{problem, random_settings, seen};
    use crate::dice::Dice;
    use crate::program::Program;
    use crate::simulate::Simulator;
    use crate::simulate::setting::KEEP;

    #[test]
    fn mended_walks_come_to_what_whole_ones_do() {
        let dice = &mut Dice::new();
        let (mut mended, mut stood) = (0, 0);
        for _ in 0..60 {
            let problem = problem(dice, false);
            let program = Program::new(&problem).expect("a sound problem");
            let mut simulator = Simulator::new(&program);
            simulator.mend.least = 0;
            let mut base = vec![KEEP; program.settings()];
            let mut due: Vec<u32> = Vec::new();
            for _ in 0..200 {
                let settings = random_settings(dice, &program, &base, false);
                let most = if dice.below(3) == 0 {
                    2_000 + dice.below(60_000) as u64
                } else {
                    u64::MAX
                };
                let mut fresh = Simulator::new(&program);
                let (expected, now) = (
                    seen(&mut fresh, &settings, &due, most),
                    seen(&mut simulator, &settings, &due, most),
                );
                assert_eq!(now.0.is_ok(), expected.0.is_ok());
                let (Ok(expected_found), Ok(found)) = (&expected.0, &now.0) else {
                    continue;
                };
                let (outcome, right) = (found.outcome, expected_found.outcome);
                assert_eq!((outcome.runs, outcome.peak), (right.runs, right.peak));
                assert!((outcome.seconds - right.seconds).abs() < 1e-9);
                assert_eq!(found.due, expected_found.due);
                assert_eq!((&now.2, &now.4), (&expected.2, &expected.4));
                // Recomputations are counted where it stands.
                assert_eq!(simulator.replays, expected.3);
                mended += u32::from(simulator.history.settings == settings);
                if dice.below(2) == 0 {
                    stood += 1;
                    (base, due) = (settings, found.due.clone());
                    simulator.anchor(&base, &due);
                } else {
                    simulator.run(&base, &due).expect("it was run before");
                }
            }
        }
        assert!(mended > 2_000 && stood > 500, "{mended} {stood}");
    }
}
