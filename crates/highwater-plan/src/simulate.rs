//! Settings in, exact peak and seconds out.
//!
//! A *setting* says what happens to a value in one gap (see [`crate::program`]):
//! - `KEEP`: held;
//! - n: dropped at once, and held again from its n-th recomputation inside the gap; in a tail,
//!   dropped at once, and once it is recomputed held until n recomputations have read it;
//! - `released(n)`: held until n recomputations have read it, then as 1 (in a tail, then as `NEVER`);
//! - `NEVER`: dropped, and each recomputation is transient;
//! - `spill(tier)`: dropped, and fetched from a copy on a tier that is made once.
//!
//! A cell whose first gap is kept has its home in memory: it is there throughout. Otherwise its home is
//! the tier of that gap: it is fetched when it is needed, and copied back when it goes after it was
//! overwritten. An update that is still to read a value holds it, unless it is spilled.
//!
//! The program is walked once. Before a node runs, what is missing of its inputs is recomputed
//! on demand, earliest producer first, each input pinned as soon as it is there (any other order
//! is exponential on residual networks). After each run everything goes that is neither held nor
//! pinned; an output takes over the buffer of an input that goes, where the node allows it.
//!
//! A recomputation that reads a version of a cell that an update has replaced puts that update
//! off, and the walk starts again; so updates follow the replays of their readers.

use crate::archive::Found;
use crate::check::footprint_on;
use crate::problem::{NodeId, Tier, ValueId};
use crate::program::{Lock, Program};

/// Keep the value through the gap.
pub(crate) const KEEP: u8 = 0;
/// Hold the value until a recomputation reads it.
pub(crate) const RELEASE: u8 = released(1);
/// Never hold the value in the gap.
pub(crate) const NEVER: u8 = 255;

/// Move the value to a tier for the gap, at once.
pub(crate) const fn spill(tier: Tier) -> u8 {
    match tier {
        Tier::Host => SPILLS[0],
        Tier::Disk => SPILLS[1],
    }
}

/// The settings that move.
pub(crate) const SPILLS: [u8; 2] = [190, 191];

/// The tier that a setting moves to.
pub(crate) const fn spilled(setting: u8) -> Option<Tier> {
    match setting {
        190 => Some(Tier::Host),
        191 => Some(Tier::Disk),
        _ => None,
    }
}

/// What moving a byte counts for, in seconds, by [`Tier`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Price {
    pub(crate) read: [f64; 2],
    pub(crate) write: [f64; 2],
}

/// Readers that a released value may wait for at most.
pub(crate) const READERS: u8 = 63;

/// Hold the value until so many recomputations, 1 at least, have read it.
pub(crate) const fn released(readers: u8) -> u8 {
    NEVER - if readers < READERS { readers } else { READERS }
}

/// How many recomputations a setting waits for, if it is one that releases.
pub(crate) const fn awaited(setting: u8) -> Option<u8> {
    match NEVER - setting {
        readers @ 1..=READERS => Some(readers),
        _ => None,
    }
}

/// Setting of a node: what it lacks is made again latest producer first.
pub(crate) const LATEST: u8 = 1;

/// How often a walk may start again because updates had to be put off.
const ROUNDS: u32 = 12;
/// Runs for each node of the program beyond which a plan is not worth having.
pub(crate) const LONGEST: u32 = 5;

/// Is told what happens, in order.
pub(crate) trait Recorder {
    fn run(&mut self, _node: NodeId, _fresh: &[Fresh]) {}
    fn free(&mut self, _value: ValueId) {}
    fn fetch(&mut self, _value: ValueId, _tier: Tier) {}
    fn evict(&mut self, _value: ValueId, _tier: Tier) {}
    fn restart(&mut self) {}
}

impl Recorder for () {}

/// An output that a run must place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fresh {
    pub(crate) value: ValueId,
    /// The input whose buffer it takes over.
    pub(crate) takes: Option<ValueId>,
}

/// What a simulation found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) peak: u64,
    /// The first run, counted from 0, that reaches the peak; `u32::MAX` if the start does.
    pub(crate) peak_run: u32,
    /// Of runs, and what transfers count for.
    pub(crate) seconds: f64,
    /// Of runs.
    pub(crate) compute: f64,
    /// Bytes fetched and evicted, by [`Tier`].
    pub(crate) read: [u64; 2],
    pub(crate) written: [u64; 2],
}

impl Outcome {
    fn new(bytes: u64) -> Outcome {
        Outcome {
            peak: bytes,
            peak_run: u32::MAX,
            seconds: 0.0,
            compute: 0.0,
            read: [0; 2],
            written: [0; 2],
        }
    }
}

/// Why settings cannot be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// A value is missing and cannot be made again; had the gap with this flat index been kept, it
    /// would not have been asked for.
    Gap(usize),
    /// A value is missing, whatever the settings.
    Lost(ValueId),
    /// Too many instructions.
    Long,
    /// More bytes than were allowed.
    Over,
}

/// A value held at a watched moment, and its gap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) value: ValueId,
    pub(crate) k: usize,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    node: NodeId,
    next: u32,
    /// The value that it is run for, if it is a recomputation.
    target: Option<ValueId>,
}

/// What a value is in the middle of a walk.
#[derive(Debug, Clone, Copy)]
struct State {
    /// Flat index of its current gap.
    gap: u32,
    /// Runs under way that use it.
    pins: u32,
    /// Updates that have yet to read it.
    pending: u32,
    /// Recomputations in its current gap.
    count: u8,
    /// Recomputations that have read it since it was last made, or since its gap began.
    read: u8,
    present: bool,
    hold: bool,
    /// Whether its setting is one that moves it.
    spill: bool,
    /// Where there is a copy of it.
    copy: Option<Tier>,
}

impl State {
    /// Whether nothing keeps it.
    fn idle(self) -> bool {
        let pending = self.pending > 0 && !self.spill;
        self.present && !self.hold && self.pins == 0 && !pending
    }
}

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
    /// What moving a byte counts for.
    pub(crate) price: Price,
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
            before: (0..).zip(&program.pending).map(state).collect(),
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
            most: u64::MAX,
            work: 0,
        }
    }

    /// Simulates settings. No update runs before its place in `due`, which may be empty; where
    /// updates had to be put off in the end is then in [`Simulator::due`]. To start from there
    /// again spares the rounds.
    pub(crate) fn run(&mut self, settings: &[u8], due: &[u32]) -> Result<Outcome, Stuck> {
        self.watch = u32::MAX;
        self.walk(settings, due, &mut ())
    }

    /// Simulates settings as [`Simulator::find`] does, but ends as soon as the peak is over a budget.
    pub(crate) fn within(
        &mut self,
        settings: Vec<u8>,
        due: &[u32],
        budget: u64,
    ) -> Result<Found, Stuck> {
        self.most = budget;
        let found = self.find(settings, due);
        self.most = u64::MAX;
        found
    }

    /// Simulates settings as [`Simulator::run`] does; answers all that is worth keeping of them.
    pub(crate) fn find(&mut self, settings: Vec<u8>, due: &[u32]) -> Result<Found, Stuck> {
        let outcome = self.run(&settings, due)?;
        let due = self.due.clone();
        Ok(Found {
            settings,
            due,
            outcome,
        })
    }

    /// Simulates settings and leaves in `held` what is held at a run and not used by it.
    pub(crate) fn watch(&mut self, settings: &[u8], due: &[u32], run: u32) {
        self.watch = run;
        let _ = self.walk(settings, due, &mut ());
    }

    /// Simulates settings and reports every run and free.
    pub(crate) fn record(
        &mut self,
        settings: &[u8],
        due: &[u32],
        recorder: &mut impl Recorder,
    ) -> Result<Outcome, Stuck> {
        self.watch = u32::MAX;
        self.walk(settings, due, recorder)
    }

    fn walk(
        &mut self,
        settings: &[u8],
        due: &[u32],
        recorder: &mut impl Recorder,
    ) -> Result<Outcome, Stuck> {
        self.late = !due.is_empty();
        self.due.clear();
        self.due.extend(self.program.updates.iter().map(|u| u.due));
        for (own, &due) in self.due.iter_mut().zip(due) {
            *own = due.max(*own);
        }
        self.settings.clear();
        self.settings.extend_from_slice(settings);
        for _ in 0..ROUNDS {
            recorder.restart();
            self.reset(recorder);
            let end = self.steps(recorder);
            self.work += u64::from(self.runs);
            end?;
            if !self.late {
                return Ok(self.outcome);
            }
        }
        Err(Stuck::Long)
    }

    fn reset(&mut self, recorder: &mut impl Recorder) {
        let program = self.program;
        for u in 0..program.updates.len() {
            let after = program.updates[u]
                .after
                .iter()
                .map(|&b| self.due[b as usize])
                .max();
            self.due[u] = self.due[u].max(after.unwrap_or(0));
        }
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
            .map(|&v| program.size[v as usize])
            .sum();
        self.below = [0; 2];
        for &(v, _) in &program.cells.list {
            let home = spilled(self.settings[program.gap(v)]);
            let state = &mut self.values[v as usize];
            if let Some(tier) = home {
                (state.spill, state.copy) = (true, Some(tier));
                self.below[tier as usize] += footprint_on(tier, program.size[v as usize]);
            } else {
                // Nothing ever lets go of it.
                (state.present, state.pins) = (true, 1);
                self.bytes += program.size[v as usize];
            }
        }
        self.outcome = Outcome::new(self.bytes);
        for &v in &program.initial {
            self.values[v as usize].present = true;
            self.enter(v);
        }
        for &v in &program.initial {
            self.release(v, recorder);
        }
    }

    fn steps(&mut self, recorder: &mut impl Recorder) -> Result<(), Stuck> {
        self.check_room()?;
        let steps = self.program.steps.len() as u32;
        for step in 0..=steps {
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
        for v in 0..self.values.len() as ValueId {
            self.values[v as usize].hold = false;
            self.release(v, recorder);
        }
        self.check_room()
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
        let limit = 4_000.max(LONGEST * program.nodes() as u32);
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
            if self.outcome.peak > self.most {
                return Err(Stuck::Over);
            }
            if self.runs > limit {
                return Err(Stuck::Long);
            }
            self.frames.pop();
            if let (Some(parent), Some(v)) = (self.frames.last_mut(), frame.target) {
                self.values[v as usize].pins += 1;
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
        let state = &mut self.values[v as usize];
        let copy = state.copy;
        if state.present || copy.is_some() {
            if !state.present
                && let Some(tier) = copy
            {
                self.fetch(v, tier, recorder);
            }
            self.values[v as usize].pins += 1;
            if let Some(frame) = self.frames.last_mut() {
                frame.next += 1;
            }
            return Ok(());
        }
        let producer = self.program.producer[v as usize];
        let Some(node) = producer.filter(|_| self.program.repeatable[v as usize]) else {
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
                self.values[v as usize].pending -= 1;
            }
        } else {
            for &v in program.used.row(step) {
                let state = &mut self.values[v as usize];
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
        let (mut bytes, mut seconds) = (0, program.seconds[node as usize]);
        for &value in program.outputs.row(node) {
            let present = self.values[value as usize].present;
            match program.saved(node, value) {
                Some(saved) if present || !self.asked(frame, value) => seconds -= saved,
                _ if present => {}
                _ => {
                    let takes = self.taken(node, value);
                    if takes.is_none() {
                        bytes += program.size[value as usize];
                    }
                    self.fresh.push(Fresh { value, takes });
                }
            }
        }
        if self.runs == self.watch {
            self.snapshot();
        }
        let live = self.bytes + bytes + program.scratch[node as usize];
        if live > self.outcome.peak {
            (self.outcome.peak, self.outcome.peak_run) = (live, self.runs);
        }
        self.high[step as usize] = self.high[step as usize].max(live);
        self.bytes += bytes;
        self.runs += 1;
        self.outcome.seconds += seconds;
        self.outcome.compute += seconds;
        for &v in program.cells.rewrites.row(node) {
            self.values[v as usize].copy = None;
        }
        for i in 0..self.fresh.len() {
            let Fresh { value, takes } = self.fresh[i];
            if let Some(input) = takes {
                self.values[input as usize].present = false;
            }
            let state = &mut self.values[value as usize];
            state.present = true;
            if frame.target.is_some() {
                self.replays[state.gap as usize] += 1;
                (state.count, state.read) = (state.count.saturating_add(1), 0);
            }
            self.enter(value);
        }
        recorder.run(node, &self.fresh);
    }

    /// The input whose buffer an output takes over: one that goes with this run.
    fn taken(&self, node: NodeId, output: ValueId) -> Option<ValueId> {
        let goes = |&&(i, o): &&(ValueId, ValueId)| {
            let state = self.values[i as usize];
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
    fn settle(&mut self, frame: Frame, recorder: &mut impl Recorder) {
        let program = self.program;
        if frame.node >= program.end() {
            return;
        }
        for &v in program.inputs.row(frame.node) {
            self.values[v as usize].pins -= 1;
            self.release(v, recorder);
        }
        for &v in program.outputs.row(frame.node) {
            self.release(v, recorder);
        }
    }

    fn release(&mut self, v: ValueId, recorder: &mut impl Recorder) {
        let state = &mut self.values[v as usize];
        if !state.idle() {
            return;
        }
        state.present = false;
        let bytes = self.program.size[v as usize];
        self.bytes -= bytes;
        match self.due_copy(v) {
            Some(tier) => {
                self.values[v as usize].copy = Some(tier);
                self.outcome.written[tier as usize] += bytes;
                self.outcome.seconds += self.price.write[tier as usize] * bytes as f64;
                recorder.evict(v, tier);
            }
            None => recorder.free(v),
        }
    }

    /// Where a value that goes is to be copied first: a cell that was overwritten goes home, a value
    /// that is needed again and moved for that has no copy yet.
    fn due_copy(&mut self, v: ValueId) -> Option<Tier> {
        let program = self.program;
        let state = self.values[v as usize];
        if state.copy.is_some() {
            return None;
        }
        if program.is_cell(v) {
            return spilled(self.settings[program.gap(v)]);
        }
        let needed = state.pending > 0 || !program.tail(state.gap as usize);
        let tier = spilled(self.settings[state.gap as usize]).filter(|_| needed)?;
        self.below[tier as usize] += footprint_on(tier, program.size[v as usize]);
        Some(tier)
    }

    fn fetch(&mut self, v: ValueId, tier: Tier, recorder: &mut impl Recorder) {
        let bytes = self.program.size[v as usize];
        let state = &mut self.values[v as usize];
        state.present = true;
        self.replays[state.gap as usize] += 1;
        self.bytes += bytes;
        self.outcome.read[tier as usize] += bytes;
        self.outcome.seconds += self.price.read[tier as usize] * bytes as f64;
        recorder.fetch(v, tier);
    }

    /// Gives up where more is put on a tier than there is room for.
    fn check_room(&self) -> Result<(), Stuck> {
        let room = |tier| self.program.tiers.link(tier).map_or(0, |link| link.bytes);
        let over = |&tier: &Tier| self.below[tier as usize] > room(tier);
        match Tier::ALL.iter().find(|tier| over(tier)) {
            Some(_) => Err(Stuck::Over),
            None => Ok(()),
        }
    }

    /// Decides whether a value is held from here on.
    fn enter(&mut self, v: ValueId) {
        let state = self.values[v as usize];
        let gap = state.gap as usize;
        let hold = self.holds(gap, state.count);
        let spill = spilled(self.settings[gap]).is_some();
        let state = &mut self.values[v as usize];
        (state.hold, state.spill) = (hold, spill);
    }

    /// Whether a value is held after so many recomputations in a gap.
    fn holds(&self, gap: usize, count: u8) -> bool {
        match self.settings[gap] {
            KEEP => true,
            NEVER => false,
            moved if spilled(moved).is_some() => false,
            released if awaited(released).is_some() => count == 0 || !self.program.tail(gap),
            n => count >= if self.program.tail(gap) { 1 } else { n },
        }
    }

    /// Lets go of a value that has been read by as many recomputations as it waits for.
    fn read_again(&mut self, v: ValueId) {
        let state = &mut self.values[v as usize];
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
            let state = &mut self.values[v as usize];
            (state.hold, state.count) = (false, state.count.max(1));
        }
    }

    /// Whether a run is to fill an output that it may leave out.
    fn asked(&self, frame: Frame, v: ValueId) -> bool {
        let again = u8::from(frame.target.is_some());
        let state = self.values[v as usize];
        let count = state.count.saturating_add(again);
        let gap = state.gap as usize;
        let kept = self.holds(gap, count) || spilled(self.settings[gap]).is_some();
        frame.target == Some(v) || state.pending > 0 || kept
    }

    /// Checks that a node may run again at a step, and puts off updates where it may not yet.
    fn unlocked(&mut self, node: NodeId, step: u32) -> Result<(), Stuck> {
        for &lock in self.program.locks.row(node) {
            let stale = match lock {
                Lock::Gone => true,
                Lock::Step(writer) => step > writer,
                Lock::Update(u) if self.updated[u as usize] => {
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
    fn blame(&self, missing: ValueId) -> Stuck {
        let chain = self.frames.iter().filter_map(|f| f.target).chain([missing]);
        let mut gaps = chain.map(|v| self.values[v as usize].gap as usize);
        let dropped = gaps.find(|&gap| !self.program.tail(gap) && self.settings[gap] != KEEP);
        dropped.map_or(Stuck::Lost(missing), Stuck::Gap)
    }

    fn snapshot(&mut self) {
        for v in 0..self.values.len() as ValueId {
            let state = self.values[v as usize];
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

/// Updates by their earliest place, the first one last.
fn early(program: &Program) -> Vec<u32> {
    let mut queue: Vec<u32> = (0..program.updates.len() as u32).collect();
    queue.sort_by_key(|&u| std::cmp::Reverse((program.updates[u as usize].due, u)));
    queue
}
