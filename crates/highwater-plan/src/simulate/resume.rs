//! Walks that begin where they differ from one that was done before.
//!
//! A search tries many settings that differ little from those it stands at, the *anchor*. Up to the first
//! step that a difference can be seen in, their walks are the anchor's: what that is before some of its
//! steps is marked on the way, and a walk begins at the last mark before it differs.

use super::{Simulator, State};
use crate::problem::ValueId;
use crate::program::Program;
use crate::simulate::outcome::Outcome;

/// Marks of a walk, about.
const MARKS: usize = 12;
/// Walks of fewer steps are not worth it.
const SHORT: usize = 64;

/// What a walk is before a step.
#[derive(Debug, Default)]
struct Mark {
    step: u32,
    values: Vec<State>,
    due: Vec<u32>,
    queue: Vec<u32>,
    updated: Vec<bool>,
    late: bool,
    bytes: u64,
    below: [u64; 2],
    outcome: Outcome,
    high: Vec<u64>,
    replays: Vec<u32>,
}

/// Settings, and marks of their walk.
#[derive(Debug)]
pub(super) struct Anchor {
    settings: Vec<u8>,
    due: Vec<u32>,
    /// By step.
    marks: Vec<Mark>,
    /// Marks that are no longer of use, but their memory is.
    spare: Vec<Mark>,
    /// Steps between two marks; 0 where there are none.
    stride: u32,
    /// Per setting: the step before which it does not matter; of use once there are settings.
    first: Vec<u32>,
    /// The last step before which the walk at hand is the anchor's, or may be marked.
    until: u32,
}

impl Anchor {
    pub(super) fn new(steps: usize) -> Anchor {
        let stride = if steps < SHORT { 0 } else { steps / MARKS };
        Anchor {
            settings: Vec::new(),
            due: Vec::new(),
            marks: Vec::new(),
            spare: Vec::new(),
            stride: stride as u32,
            first: Vec::new(),
            until: 0,
        }
    }

    /// The first step that a difference from the anchor can be seen in: `u32::MAX` if there is none.
    fn differs(&self, settings: &[u8], due: &[u32]) -> u32 {
        if self.settings.len() != settings.len() || self.due != due {
            return 0;
        }
        let chunks = self.settings.chunks(32).zip(settings.chunks(32));
        let different = chunks
            .zip(self.first.chunks(32))
            .filter(|((a, b), _)| a != b);
        let steps = different.flat_map(|((a, b), first)| {
            let each = a.iter().zip(b).zip(first);
            each.filter(|((a, b), _)| a != b).map(|(_, &step)| step)
        });
        steps.min().unwrap_or(u32::MAX)
    }

    /// The walk at hand is another one.
    pub(super) fn leave(&mut self) {
        self.until = 0;
    }

    pub(super) fn forget(&mut self) {
        self.settings.clear();
        self.spare.append(&mut self.marks);
    }

    /// Whether a walk that is the anchor's is to be marked before a step.
    pub(super) fn lacks(&self, step: u32) -> bool {
        step <= self.until
            && step > 0
            && step.is_multiple_of(self.stride)
            && self.marks.last().is_none_or(|mark| mark.step < step)
    }
}

impl Simulator<'_> {
    /// Says that settings like these will be tried.
    pub(crate) fn anchor(&mut self, settings: &[u8], due: &[u32]) {
        if self.stand(settings, due).is_some() {
            return;
        }
        let anchor = &mut self.anchor;
        if anchor.stride == 0 {
            return;
        }
        if anchor.first.is_empty() {
            anchor.first = first(self.program);
        }
        let same = anchor.differs(settings, due);
        let stay = anchor.marks.partition_point(|mark| mark.step <= same);
        anchor.spare.extend(anchor.marks.drain(stay..));
        anchor.settings.clear();
        anchor.settings.extend_from_slice(settings);
        anchor.due.clear();
        anchor.due.extend_from_slice(due);
    }

    /// Begins a walk of the settings at hand where it is known; answers the step, if there is any.
    pub(super) fn resume(&mut self, due: &[u32]) -> Option<u32> {
        let anchor = &mut self.anchor;
        anchor.until = 0;
        if anchor.stride == 0 {
            return None;
        }
        anchor.until = anchor.differs(&self.settings, due);
        // Where it would have been given up before, or watched, it is not begun.
        let known = |mark: &Mark| {
            mark.step <= anchor.until
                && mark.outcome.peak <= self.most
                && mark.outcome.runs <= self.watch
        };
        let mark = &anchor.marks[anchor.marks.partition_point(known).checked_sub(1)?];
        self.values.clone_from(&mark.values);
        self.due.clone_from(&mark.due);
        self.queue.clone_from(&mark.queue);
        self.updated.clone_from(&mark.updated);
        self.replays.clone_from(&mark.replays);
        let (known, rest) = self.high.split_at_mut(mark.high.len());
        known.copy_from_slice(&mark.high);
        rest.fill(0);
        self.held.clear();
        self.frames.clear();
        (self.late, self.bytes, self.below) = (mark.late, mark.bytes, mark.below);
        (self.outcome, self.runs) = (mark.outcome, mark.outcome.runs);
        Some(mark.step)
    }

    /// Marks the anchor's walk before a step.
    pub(super) fn mark(&mut self, step: u32) {
        let mut mark = self.anchor.spare.pop().unwrap_or_default();
        mark.step = step;
        mark.values.clone_from(&self.values);
        mark.due.clone_from(&self.due);
        mark.queue.clone_from(&self.queue);
        mark.updated.clone_from(&self.updated);
        mark.replays.clone_from(&self.replays);
        mark.high.clear();
        mark.high.extend_from_slice(&self.high[..step as usize]);
        (mark.late, mark.bytes, mark.below) = (self.late, self.bytes, self.below);
        mark.outcome = self.outcome;
        self.anchor.marks.push(mark);
    }
}

/// Per setting: the step before which it does not matter. Of a gap the one that it begins in, of a node its
/// own; what a cell's home is, and what updates fill, may matter from the start.
fn first(program: &Program) -> Vec<u32> {
    let mut first = vec![0; program.settings()];
    for v in ValueId::below(program.size.len()) {
        for k in 0..=program.uses(v).len() {
            first[program.gap(v) + k] = program.span(v, k).0;
        }
    }
    for (step, &node) in (0..).zip(&program.steps) {
        first[program.order(node)] = step;
    }
    first
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::dice::Dice;
    use crate::problem::{CellId, Effect, Home, Link, Node, Pin, Problem, Value};
    use crate::simulate::Held;
    use crate::simulate::outcome::{Candidate, Price, Stuck};
    use crate::simulate::setting::{KEEP, LATEST, NEVER, SPILLS, released};

    /// A forward part with skips, a backward part that reads it, and updates of cells that both read.
    pub(in crate::simulate) fn problem(dice: &mut Dice, tiers: bool) -> Problem {
        let depth = 30 + dice.below(40);
        let mut problem = Problem::default();
        let mut value = |home| {
            let bytes = 1 << dice.below(12);
            problem.values.push(Value {
                bytes,
                home,
                pin: Pin::Free,
                wanted: false,
            });
            ValueId::new(problem.values.len() - 1)
        };
        let mut nodes: Vec<Node> = Vec::new();
        let mut forward = vec![value(Home::External)];
        for _ in 0..depth {
            forward.push(value(Home::Arena));
        }
        let mut gradients = vec![value(Home::External)];
        for _ in 0..depth {
            gradients.push(value(Home::Arena));
        }
        let weights: Vec<ValueId> = (0..depth).map(|_| value(Home::Arena)).collect();
        for i in 0..depth {
            let skip = forward[dice.below(i + 1)];
            let mut node = Node::new(
                &[forward[i], skip],
                &[forward[i + 1]],
                1.0 + dice.below(9) as f64,
            );
            node.inputs.dedup();
            node.reads = vec![(CellId::new(i), 0)];
            node.scratch_bytes = dice.below(512) as u64;
            nodes.push(node);
        }
        for (j, i) in (0..depth).rev().enumerate() {
            let other = forward[1 + dice.below(i + 1)];
            let mut node = Node::new(
                &[gradients[j], forward[i + 1], other],
                &[gradients[j + 1], weights[i]],
                1.0,
            );
            node.inputs.dedup();
            node.reads = vec![(CellId::new(i), 0)];
            nodes.push(node);
            if dice.below(2) == 0 {
                let mut update = Node::new(&[weights[i]], &[], 1.0);
                (update.effect, update.writes) = (Effect::Once, vec![(CellId::new(i), 0)]);
                nodes.push(update);
            }
        }
        problem.nodes = nodes;
        if tiers {
            problem.tiers.host = Some(Link {
                bytes: 1 << 14,
                read: 1e-3,
                write: 2e-3,
                read_while_writing: 1e-3,
                write_while_reading: 2e-3,
                lost: 0.0,
                writable: true,
            });
        }
        problem
    }

    /// All that is asked of a walk.
    pub(in crate::simulate) type Seen = (
        Result<Candidate, Stuck>,
        u64,
        Vec<u64>,
        Vec<u32>,
        Vec<(ValueId, usize)>,
    );

    pub(in crate::simulate) fn seen(
        simulator: &mut Simulator<'_>,
        settings: &[u8],
        due: &[u32],
        most: u64,
    ) -> Seen {
        let before = simulator.work;
        let found = simulator.within(settings.to_vec(), due, most);
        let work = simulator.work - before;
        let (high, replays) = match found {
            Ok(_) => (simulator.high.clone(), simulator.replays.clone()),
            Err(_) => (Vec::new(), Vec::new()),
        };
        if let Ok(found) = &found {
            simulator.watch(found);
        }
        let held = simulator
            .held
            .iter()
            .map(|&Held { value, k }| (value, k))
            .collect();
        (found, work, high, replays, held)
    }

    /// Settings that differ in one to three from others.
    pub(in crate::simulate) fn random_settings(
        dice: &mut Dice,
        program: &Program,
        base: &[u8],
        tiers: bool,
    ) -> Vec<u8> {
        let mut settings = base.to_vec();
        for _ in 0..=dice.below(3) {
            let at = dice.below(settings.len());
            settings[at] = match dice.below(7) {
                _ if at >= program.gaps() => LATEST,
                0 => KEEP,
                1 => 1,
                2 => released(1),
                3 if tiers => SPILLS[0],
                _ => NEVER,
            };
        }
        settings
    }

    #[test]
    fn walks_that_begin_in_the_middle_come_to_the_same() {
        let dice = &mut Dice::new();
        let (mut begun, mut done) = (0, 0);
        for round in 0..40 {
            let tiers = round % 2 == 1;
            let problem = problem(dice, tiers);
            let program = Program::new(&problem).expect("a sound problem");
            let mut simulator = Simulator::new(&program);
            let price = Price {
                read: [1e-3; 2],
                write: [1e-3; 2],
            };
            simulator.set_price(price);
            let mut base = vec![KEEP; program.settings()];
            let mut due: Vec<u32> = Vec::new();
            for _ in 0..200 {
                let settings = random_settings(dice, &program, &base, tiers);
                let most = if dice.below(3) == 0 {
                    2_000 + dice.below(60_000) as u64
                } else {
                    u64::MAX
                };
                let mut fresh = Simulator::new(&program);
                fresh.set_price(price);
                let expected = seen(&mut fresh, &settings, &due, most);
                assert_eq!(seen(&mut simulator, &settings, &due, most), expected);
                begun += u32::from(!simulator.anchor.marks.is_empty());
                if let (Ok(found), true) = (expected.0, dice.below(2) == 0) {
                    done += 1;
                    (base, due) = (settings, found.due);
                    simulator.anchor(&base, &due);
                }
            }
        }
        assert!(begun > 2_000 && done > 500, "{begun} {done}");
    }
}
