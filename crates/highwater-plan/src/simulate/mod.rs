//! Settings in, exact peak and seconds out: what they mean stands in [`crate::simulate::setting`].
//!
//! The program is walked once. Before a node runs, what is missing of its inputs is recomputed
//! on demand, earliest producer first, each input pinned as soon as it is there (any other order
//! is exponential on residual networks). After each run everything goes that is neither held nor
//! pinned; an output takes over the buffer of an input that goes, where the node allows it.
//!
//! A recomputation that reads a version of a cell that an update has replaced puts that update
//! off, and the walk starts again; so updates follow the replays of their readers.

mod history;
mod hold;
mod left;
mod mend;
mod outcome;
mod resume;
pub(crate) mod setting;
mod state;

use crate::problem::{NodeId, ValueId, footprint_on};
use crate::program::Program;
use crate::simulate::setting::{LATEST, spilled};
use history::History;
use left::Left;
#[allow(unused_imports)]
pub(crate) use mend::LONG;
use mend::Mend;
pub(crate) use outcome::{Candidate, Fresh, Outcome, Price, Recorder, Stuck, faster};
use resume::Anchor;
pub(crate) use state::Held;
use state::{Frame, State};

/// How often a walk may start again because updates had to be put off.
const ROUNDS: u32 = 12;
/// Runs for each node of the program beyond which a plan is not worth having.
pub(crate) const LONGEST: u32 = 5;

/// The state of a walk, kept between simulations to spare allocations.
#[derive(Debug)]
pub(crate) struct Simulator<'a> {
    program: &'a Program,
    values: Vec<State>,
    /// What `values` is before the first run.
    before: Vec<State>,
    frames: Vec<Frame>,
    fresh: Vec<Fresh>,
    settings: Vec<u8>,
    /// The earliest place of each update, as far as known.
    pub(crate) due: Vec<u32>,
    /// Updates by their earliest place, the first one last.
    queue: Vec<u32>,
    /// What `queue` is while no update is put off.
    early: Vec<u32>,
    updated: Vec<bool>,
    late: bool,
    bytes: u64,
    runs: u32,
    outcome: Outcome,
    /// Most bytes at each step; its recomputations and the updates before it count with it.
    pub(crate) high: Vec<u64>,
    /// Recomputations in each gap.
    pub(crate) replays: Vec<u32>,
    /// What was held at the watched run and not used by it.
    pub(crate) held: Vec<Held>,
    watch: u32,
    /// Whether the latest walk was done to its end.
    whole: bool,
    /// What the latest walk that was asked for by [`Simulator::run`] came to.
    left: Left,
    /// What walks may begin from.
    anchor: Anchor,
    /// What walks of long programs are mended from.
    history: History,
    mend: Mend,
    /// What moving a byte counts for.
    price: Price,
    /// Whether values may be moved.
    moves: bool,
    /// Bytes of all that was ever put on each tier.
    below: [u64; 2],
    /// Bytes at which it gives up.
    most: u64,
    /// Runs simulated so far, over all simulations.
    pub(crate) work: u64,
}

impl<'a> Simulator<'a> {
    pub(crate) fn new(program: &'a Program) -> Simulator<'a> {
        let state = |(v, &pending): (ValueId, &u32)| State {
            gap: program.gap(v) as u32,
            pins: 0,
            pending,
            count: 0,
            read: 0,
            present: false,
            hold: false,
            spill: false,
            copy: None,
        };
        Simulator {
            program,
            values: Vec::new(),
            before: ValueId::numbered(&program.pending).map(state).collect(),
            frames: Vec::new(),
            fresh: Vec::new(),
            settings: Vec::new(),
            due: Vec::new(),
            queue: Vec::new(),
            early: early(program),
            updated: vec![false; program.updates.len()],
            late: false,
            bytes: 0,
            runs: 0,
            outcome: Outcome::new(0),
            price: Price::default(),
            moves: program.tiers.any(),
            below: [0; 2],
            high: vec![0; program.steps.len() + 1],
            replays: vec![0; program.gaps()],
            held: Vec::new(),
            watch: u32::MAX,
            whole: false,
            left: Left::default(),
            anchor: Anchor::new(program.steps.len()),
            history: History::default(),
            mend: Mend::new(),
            most: u64::MAX,
            work: 0,
        }
    }

    /// Simulates settings. No update runs before its place in `due`, which may be empty; where
    /// updates had to be put off in the end is then in [`Simulator::due`]. To start from there
    /// again spares the rounds.
    pub(crate) fn run(&mut self, settings: &[u8], due: &[u32]) -> Result<Outcome, Stuck> {
        if let Some(outcome) = self.stand(settings, due) {
            return outcome;
        }
        self.anchor(settings, due);
        if let Some(outcome) = self.recall(settings, due) {
            self.work += u64::from(outcome.runs);
            return Ok(outcome);
        }
        let outcome = self.walk(settings, due, &mut ())?;
        self.keep();
        Ok(outcome)
    }

    /// Simulates settings as [`Simulator::find`] does, but ends as soon as the peak is over a budget.
    pub(crate) fn within(
        &mut self,
        settings: Vec<u8>,
        due: &[u32],
        budget: u64,
    ) -> Result<Candidate, Stuck> {
        self.most = budget;
        let found = self.find(settings, due);
        self.most = u64::MAX;
        found
    }

    /// Simulates settings as [`Simulator::run`] does; answers all that is worth keeping of them.
    pub(crate) fn find(&mut self, settings: Vec<u8>, due: &[u32]) -> Result<Candidate, Stuck> {
        let outcome = match self.mended(&settings, due) {
            Some(outcome) => outcome?,
            None => self.walk(&settings, due, &mut ())?,
        };
        let due = self.due.clone();
        Ok(Candidate {
            settings,
            due,
            outcome,
        })
    }

    /// Simulates settings and reports every run and free.
    pub(crate) fn record(
        &mut self,
        settings: &[u8],
        due: &[u32],
        recorder: &mut impl Recorder,
    ) -> Result<Outcome, Stuck> {
        self.walk(settings, due, recorder)
    }

    fn walk(
        &mut self,
        settings: &[u8],
        due: &[u32],
        recorder: &mut impl Recorder,
    ) -> Result<Outcome, Stuck> {
        self.begin(settings, due);
        for round in 0..ROUNDS {
            recorder.restart();
            let from = if round == 0 && !recorder.is_told() {
                self.resume(due)
            } else {
                self.anchor.leave();
                None
            };
            if from.is_none() {
                self.reset(recorder);
            }
            let end = self.steps(from.unwrap_or(0), recorder);
            self.work += u64::from(self.runs);
            end?;
            if !self.late {
                self.whole = true;
                return Ok(self.outcome);
            }
        }
        Err(Stuck::Long)
    }

    /// Begins a walk of settings, with no update before its place in `due`.
    fn begin(&mut self, settings: &[u8], due: &[u32]) {
        (self.whole, self.mend.whole) = (false, false);
        self.late = !due.is_empty();
        self.due.clear();
        self.due.extend(self.program.updates.iter().map(|u| u.due));
        for (own, &due) in self.due.iter_mut().zip(due) {
            *own = due.max(*own);
        }
        self.settings.clear();
        self.settings.extend_from_slice(settings);
    }

    /// Puts updates off that follow others which were.
    fn follow(&mut self) {
        for (u, update) in self.program.updates.iter().enumerate() {
            let after = update.after.iter().map(|&b| self.due[b as usize]).max();
            self.due[u] = self.due[u].max(after.unwrap_or(0));
        }
    }

    fn reset(&mut self, recorder: &mut impl Recorder) {
        let program = self.program;
        self.follow();
        self.queue.clone_from(&self.early);
        if self.late {
            let due = &self.due;
            self.queue
                .sort_by_key(|&u| std::cmp::Reverse((due[u as usize], u)));
        }
        self.values.clone_from(&self.before);
        self.updated.fill(false);
        self.high.fill(0);
        self.replays.fill(0);
        self.held.clear();
        self.frames.clear();
        (self.late, self.runs) = (false, 0);
        self.bytes = program
            .initial
            .iter()
            .map(|&v| program.size[v.index()])
            .sum();
        self.below = [0; 2];
        for &(v, _) in &program.cells.list {
            let home = spilled(self.settings[program.gap(v)]);
            let state = &mut self.values[v.index()];
            if let Some(tier) = home {
                (state.spill, state.copy) = (true, Some(tier));
                self.below[tier as usize] += footprint_on(tier, program.size[v.index()]);
            } else {
                // Nothing ever lets go of it.
                (state.present, state.pins) = (true, 1);
                self.bytes += program.size[v.index()];
            }
        }
        self.outcome = Outcome::new(self.bytes);
        for &v in &program.initial {
            self.values[v.index()].present = true;
            self.enter(v);
        }
        for &v in &program.initial {
            self.release(v, recorder);
        }
    }

    /// From a step on.
    fn steps(&mut self, from: u32, recorder: &mut impl Recorder) -> Result<(), Stuck> {
        if from == 0 {
            self.check_room()?;
        }
        let steps = self.program.steps.len() as u32;
        for step in from..=steps {
            if self.anchor.lacks(step) {
                self.mark(step);
            }
            while let Some(&u) = self.queue.last() {
                if self.due[u as usize] > step {
                    break;
                }
                self.queue.pop();
                self.demand(
                    self.program.updates[u as usize].node,
                    step,
                    Some(u),
                    recorder,
                )?;
                self.updated[u as usize] = true;
            }
            if step < steps {
                self.demand(self.program.steps[step as usize], step, None, recorder)?;
            }
        }
        for v in ValueId::below(self.values.len()) {
            self.values[v.index()].hold = false;
            self.release(v, recorder);
        }
        self.check_room()
    }

    /// Runs beyond which a plan is not worth having.
    fn limit(&self) -> u32 {
        4_000.max(LONGEST * self.program.nodes() as u32)
    }

    /// Runs a node for the first time, after all that it needs.
    fn demand(
        &mut self,
        node: NodeId,
        step: u32,
        update: Option<u32>,
        recorder: &mut impl Recorder,
    ) -> Result<(), Stuck> {
        let program = self.program;
        let limit = self.limit();
        self.frames.push(Frame {
            node,
            next: 0,
            target: None,
        });
        while let Some(frame) = self.frames.last_mut() {
            let inputs = program.inputs.row(frame.node);
            let next = match self.settings[program.order(frame.node)] {
                LATEST => inputs.iter().nth_back(frame.next as usize),
                _ => inputs.get(frame.next as usize),
            };
            if let Some(&v) = next {
                self.want(v, recorder)?;
                continue;
            }
            let frame = *frame;
            self.note_use(frame, step, update.is_some())?;
            self.execute(frame, step, recorder);
            // What comes after the run that is watched is not looked at.
            if self.outcome.peak > self.most || self.runs > self.watch {
                return Err(Stuck::Over);
            }
            if self.runs > limit {
                return Err(Stuck::Long);
            }
            self.frames.pop();
            if let (Some(parent), Some(v)) = (self.frames.last_mut(), frame.target) {
                self.values[v.index()].pins += 1;
                parent.next += 1;
            }
            self.settle(frame, recorder);
        }
        if update.is_none() {
            for &v in program.used.row(step) {
                self.release(v, recorder);
            }
        }
        Ok(())
    }

    /// Pins an input of the frame at hand, fetches it, or starts to make it again.
    fn want(&mut self, v: ValueId, recorder: &mut impl Recorder) -> Result<(), Stuck> {
        self.touch(v);
        let state = &mut self.values[v.index()];
        let copy = state.copy;
        if state.present || copy.is_some() {
            if !state.present
                && let Some(tier) = copy
            {
                self.fetch(v, tier, recorder);
            }
            self.values[v.index()].pins += 1;
            if let Some(frame) = self.frames.last_mut() {
                frame.next += 1;
            }
            return Ok(());
        }
        let producer = self.program.producer[v.index()];
        let Some(node) = producer.filter(|_| self.program.repeatable[v.index()]) else {
            return Err(self.blame(v));
        };
        self.frames.push(Frame {
            node,
            next: 0,
            target: Some(v),
        });
        Ok(())
    }

    /// Notes that a frame is about to read its inputs.
    fn note_use(&mut self, frame: Frame, step: u32, update: bool) -> Result<(), Stuck> {
        let program = self.program;
        let inputs = program.inputs.row(frame.node);
        if frame.target.is_some() {
            self.unlocked(frame.node, step)?;
            for &v in inputs {
                self.read_again(v);
            }
        } else if update {
            for &v in inputs {
                self.values[v.index()].pending -= 1;
            }
        } else {
            for &v in program.used.row(step) {
                self.touch(v);
                let state = &mut self.values[v.index()];
                state.gap += 1;
                (state.count, state.read) = (0, 0);
                self.enter(v);
            }
        }
        Ok(())
    }

    /// Runs the node of a frame whose inputs are all there.
    fn execute(&mut self, frame: Frame, step: u32, recorder: &mut impl Recorder) {
        let (program, node) = (self.program, frame.node);
        if node >= program.end() {
            return;
        }
        self.fresh.clear();
        let (mut bytes, mut seconds) = (0, program.seconds[node.index()]);
        for &value in program.outputs.row(node) {
            self.touch(value);
            let present = self.values[value.index()].present;
            match program.saved(node, value) {
                Some(saved) if present || !self.asked(frame, value) => seconds -= saved,
                _ if present => {}
                _ => {
                    let takes = self.taken(node, value);
                    if takes.is_none() {
                        bytes += program.size[value.index()];
                    }
                    self.fresh.push(Fresh { value, takes });
                }
            }
        }
        if self.runs == self.watch {
            self.snapshot();
        }
        let live = self.bytes + bytes + program.scratch[node.index()];
        if live > self.outcome.peak {
            (self.outcome.peak, self.outcome.peak_run) = (live, self.runs);
        }
        self.high[step as usize] = self.high[step as usize].max(live);
        self.bytes += bytes;
        self.runs += 1;
        self.outcome.runs = self.runs;
        self.outcome.seconds += seconds;
        self.outcome.compute += seconds;
        for &v in program.cells.rewrites.row(node) {
            self.values[v.index()].copy = None;
        }
        for i in 0..self.fresh.len() {
            let Fresh { value, takes } = self.fresh[i];
            if let Some(input) = takes {
                self.values[input.index()].present = false;
            }
            let state = &mut self.values[value.index()];
            state.present = true;
            if frame.target.is_some() {
                if self.mend.on {
                    self.mend.again.push(state.gap);
                } else {
                    self.replays[state.gap as usize] += 1;
                }
                (state.count, state.read) = (state.count.saturating_add(1), 0);
            }
            self.enter(value);
        }
        recorder.run(node, &self.fresh);
    }
}

/// Updates by their earliest place, the first one last.
fn early(program: &Program) -> Vec<u32> {
    let mut queue: Vec<u32> = (0..program.updates.len() as u32).collect();
    queue.sort_by_key(|&u| std::cmp::Reverse((program.updates[u as usize].due, u)));
    queue
}
