//! A start for one budget: the step is walked once, and whenever a run does not fit, values go that
//! cost least to make again for their bytes and for the time that these stay free.
//!
//! This is dynamic tensor rematerialisation (Kirisame et al., 2021) by somebody who knows the future.
//! It weighs all that a moment holds against all that has gone before, where the descent raises one
//! setting after the other; so it gets through where the descent gets stuck. What it did is then
//! read as settings, for the simulator to judge.

mod ranked;
mod worth;

use crate::csr::Csr;
use crate::problem::{NodeId, ValueId};
use crate::program::Program;
use crate::search::evict::ranked::Rank;
use crate::search::settings::Limits;
use crate::simulate::setting::{KEEP, NEVER, READERS, released};
use crate::simulate::{LONG, LONGEST};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Work for each node of the program after which a walk is given up, in about the time of a simulated
/// run.
const WORK: u64 = 150;
/// Looks at a node or value that take the time of a simulated run.
const LOOKS: u64 = 8;
/// Values looked through, one behind the other, for when a value is needed.
const DEPTH: u32 = 400;
/// Never needed again.
const UNNEEDED: u32 = u32::MAX;

/// How much the time until a value is needed speaks against its room. None is best everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// In proportion.
    Time,
    /// As its square root does.
    Root,
    /// Not at all; and what no step uses any more is written over, though it be needed again.
    Bytes,
}

impl Rule {
    pub(crate) const ALL: [Rule; 3] = [Rule::Time, Rule::Root, Rule::Bytes];
}

/// What all walks over a program share.
#[derive(Debug)]
pub(crate) struct Walks<'a> {
    program: &'a Program,
    limits: &'a Limits,
    /// Per value: the nodes that read it.
    readers: Csr<ValueId, NodeId>,
    /// Per step: the seconds of all before it.
    clock: Vec<f64>,
}

impl<'a> Walks<'a> {
    pub(crate) fn new(program: &'a Program, limits: &'a Limits) -> Walks<'a> {
        let mut readers = vec![Vec::new(); program.size.len()];
        let (mut clock, mut seconds) = (Vec::with_capacity(program.steps.len()), 0.0);
        for &n in &program.steps {
            clock.push(seconds);
            seconds += program.seconds.get(n.index()).copied().unwrap_or(0.0);
            for &v in program.inputs.row(n) {
                readers[v.index()].push(n);
            }
        }
        Walks {
            program,
            limits,
            readers: readers.into_iter().collect(),
            clock,
        }
    }

    /// The settings of a walk under a budget, if it gets through.
    pub(crate) fn walk(&self, budget: u64, rule: Rule) -> Option<Vec<u8>> {
        let mut walk = Walk::new(self, budget, rule);
        walk.steps()?;
        Some(walk.settings)
    }
}

/// A value, from its making or its latest use on.
#[derive(Debug, Clone, Copy, Default)]
struct Life {
    present: bool,
    pins: u32,
    /// Updates that have yet to read it.
    pending: u32,
    /// Flat index of its gap.
    gap: usize,
    /// Whether it has gone, and how often it was made again since.
    gone: bool,
    again: u8,
    /// Recomputations that have read it since it was made; before it first went; at most, later.
    reads: u8,
    first: u8,
    most: u8,
    /// What making it again takes, if that is known; of one that has gone, something if the cost of
    /// another rests on it.
    cost: Option<Cost>,
    /// When it is needed, if that is known.
    need: Option<u32>,
    /// Its place among those that are held.
    at: u32,
    /// Its latest entry among the ranked ones.
    ticket: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// Seconds by bytes.
    dear: f64,
    /// The last step at which it may be made again.
    until: u32,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    node: NodeId,
    next: usize,
    /// The value that it runs for again.
    target: Option<ValueId>,
}

struct Walk<'a> {
    all: &'a Walks<'a>,
    program: &'a Program,
    budget: u64,
    rule: Rule,
    settings: Vec<u8>,
    values: Vec<Life>,
    ran: Vec<bool>,
    /// Per node: the latest search that came by.
    seen: Vec<u32>,
    search: u32,
    /// Values that are there and take room, and what they are worth.
    held: Vec<ValueId>,
    worth: Vec<(f64, ValueId)>,
    /// In long programs: the same by what they were worth at least, the least first, each with its ticket.
    ranked: BinaryHeap<Reverse<Rank>>,
    step: u32,
    /// Whether it is the step's own node that runs, not an update.
    uses: bool,
    bytes: u64,
    runs: u32,
    looks: u64,
}

impl<'a> Walk<'a> {
    fn new(all: &'a Walks<'a>, budget: u64, rule: Rule) -> Walk<'a> {
        let program = all.program;
        let life = |(v, &pending): (ValueId, &u32)| Life {
            pending,
            gap: program.gap(v),
            ..Life::default()
        };
        let mut walk = Walk {
            all,
            program,
            budget,
            rule,
            settings: vec![KEEP; program.settings()],
            values: ValueId::numbered(&program.pending).map(life).collect(),
            ran: vec![false; program.seconds.len() + 1],
            seen: vec![0; program.seconds.len() + 1],
            search: 0,
            held: Vec::new(),
            worth: Vec::new(),
            ranked: BinaryHeap::new(),
            step: 0,
            uses: true,
            bytes: 0,
            runs: 0,
            looks: 0,
        };
        for &v in &program.initial {
            walk.appear(v);
        }
        walk
    }

    fn steps(&mut self) -> Option<()> {
        let program = self.program;
        let mut updates: Vec<usize> = (0..program.updates.len()).collect();
        updates.sort_by_key(|&u| program.updates[u].due);
        let mut updates = updates.into_iter().peekable();
        let last = program.steps.len() as u32;
        for step in 0..=last {
            self.step = step.min(last - 1);
            while let Some(u) = updates.next_if(|&u| program.updates[u].due <= step) {
                let node = program.updates[u].node;
                self.uses = false;
                self.demand(node)?;
                self.uses = true;
                for &v in program.inputs.row(node) {
                    self.values[v.index()].pending -= 1;
                    self.rank(v);
                    self.tidy(v);
                }
            }
            if let Some(&node) = program.steps.get(step as usize) {
                self.demand(node)?;
            }
        }
        for v in ValueId::below(self.values.len()) {
            self.close(v);
        }
        Some(())
    }

    /// Runs a node for the first time, after all that it needs.
    fn demand(&mut self, node: NodeId) -> Option<()> {
        let program = self.program;
        let frame = |node, target| Frame {
            node,
            next: 0,
            target,
        };
        let mut frames = vec![frame(node, None)];
        while let Some(top) = frames.last_mut() {
            let inputs = program.inputs.row(top.node);
            if let Some(&v) = inputs.get(top.next) {
                let life = &mut self.values[v.index()];
                if life.present {
                    life.pins += 1;
                    top.next += 1;
                    continue;
                }
                let again = program.repeatable[v.index()];
                let producer = program.producer[v.index()].filter(|_| again)?;
                if self.locked(producer, self.step) {
                    return None;
                }
                frames.push(frame(producer, Some(v)));
                continue;
            }
            let top = *top;
            frames.pop();
            self.read(top);
            self.execute(top)?;
            for &v in inputs {
                let life = &mut self.values[v.index()];
                life.pins -= 1;
                self.tidy(v);
            }
            for &v in program.outputs.row(top.node) {
                if top.target != Some(v) {
                    self.tidy(v);
                }
            }
            self.runs += 1;
            self.looks += LOOKS;
            let nodes = program.nodes() as u32;
            if self.runs > LONGEST * nodes || self.looks > WORK * LOOKS * u64::from(nodes) {
                return None;
            }
        }
        Some(())
    }

    /// Notes that a node reads its inputs. What an update reads is no use.
    fn read(&mut self, frame: Frame) {
        for &v in self.program.inputs.row(frame.node) {
            let life = &mut self.values[v.index()];
            if frame.target.is_some() {
                life.reads = life.reads.saturating_add(1);
            } else if self.uses && self.program.next_use(life.gap) == self.step {
                self.close(v);
                let life = &mut self.values[v.index()];
                life.gap += 1;
                (life.gone, life.again, life.need) = (false, 0, None);
                (life.reads, life.first, life.most) = (0, 0, 0);
                self.rank(v);
            }
        }
    }

    /// Writes down what the gap of a value came to.
    fn close(&mut self, v: ValueId) {
        let life = self.values[v.index()];
        let at = life.gap;
        let tail = self.program.tail(at);
        let first = if life.gone { life.first } else { life.reads };
        self.settings[at] = match (first, life.most.max(life.reads).min(READERS)) {
            _ if !tail && !life.gone => KEEP,
            (1.., _) => released(first),
            (0, most @ 2..) if tail => most,
            _ if tail => NEVER,
            _ => life.again.clamp(1, READERS),
        };
        if !tail {
            let (low, high) = (self.all.limits.low[at], self.all.limits.high[at]);
            self.settings[at] = self.settings[at].max(low).min(high);
        }
    }

    /// Makes room for the outputs of a node, and fills them. Those that it may leave out are left
    /// out if there is no room, or if it runs for another.
    fn execute(&mut self, frame: Frame) -> Option<()> {
        let (program, node) = (self.program, frame.node);
        if node >= program.end() {
            return Some(());
        }
        let outputs = program.outputs.row(node).iter().copied();
        let missing = outputs.filter(|&v| !self.values[v.index()].present);
        let must = |v: &ValueId| program.saved(node, *v).is_none() || frame.target == Some(*v);
        let (must, may): (Vec<ValueId>, Vec<ValueId>) = missing.partition(must);
        let size =
            |list: &[ValueId]| -> u64 { list.iter().map(|&v| program.size[v.index()]).sum() };
        let room = |taken: &[(ValueId, ValueId)]| {
            let over: u64 = taken.iter().map(|t| program.size[t.1.index()]).sum();
            size(&must) + program.scratch[node.index()] - over
        };
        let mut taken = self.taken(node, &must, false);
        let mut needed = room(&taken);
        let all = frame.target.is_none() && self.make_room(needed + size(&may)).is_some();
        if !all && self.make_room(needed).is_none() {
            taken = self.taken(node, &must, true);
            needed = room(&taken);
            self.make_room(needed)?;
        }
        for &(input, _) in &taken {
            self.vanish(input);
        }
        let (made, left_out) = if all {
            (may, Vec::new())
        } else {
            (Vec::new(), may)
        };
        for v in must.into_iter().chain(made) {
            let life = &mut self.values[v.index()];
            if frame.target.is_some() {
                life.again = life.again.saturating_add(1);
            }
            self.appear(v);
        }
        for v in left_out {
            self.values[v.index()].gone = true;
            self.forget(v);
        }
        self.ran[node.index()] = true;
        Some(())
    }

    /// Pairs of an input that goes with this run, or is made to, and an output that takes its buffer
    /// over.
    fn taken(&mut self, node: NodeId, fresh: &[ValueId], any: bool) -> Vec<(ValueId, ValueId)> {
        let mut taken: Vec<(ValueId, ValueId)> = Vec::new();
        for &(i, o) in self.program.in_place.row(node) {
            let life = self.values[i.index()];
            let free = taken.iter().all(|t| t.0 != i && t.1 != o) && fresh.contains(&o);
            let fixed = self.all.limits.high[life.gap] == KEEP || life.pins > 1 || life.pending > 0;
            let greedy = self.rule == Rule::Bytes && self.program.tail(life.gap);
            if free && !fixed && (any || greedy || self.over(i)) {
                taken.push((i, o));
            }
        }
        taken
    }

    fn appear(&mut self, v: ValueId) {
        let life = &mut self.values[v.index()];
        (life.present, life.at) = (true, self.held.len() as u32);
        self.bytes += self.program.size[v.index()];
        if self.program.size[v.index()] > 0 {
            self.held.push(v);
            self.rank(v);
        }
        self.forget(v);
    }

    fn vanish(&mut self, v: ValueId) {
        let life = &mut self.values[v.index()];
        let reads = std::mem::take(&mut life.reads);
        if life.gone {
            life.most = life.most.max(reads);
        } else {
            (life.gone, life.first) = (true, reads);
        }
        life.present = false;
        self.bytes -= self.program.size[v.index()];
        let at = life.at as usize;
        if self.held.get(at) == Some(&v) {
            self.held.swap_remove(at);
            if let Some(&moved) = self.held.get(at) {
                self.values[moved.index()].at = at as u32;
            }
        }
        self.forget(v);
    }

    /// Lets go of a value that nobody needs any more.
    fn tidy(&mut self, v: ValueId) {
        let life = self.values[v.index()];
        if life.present && life.pins == 0 && life.pending == 0 && self.over(v) {
            self.vanish(v);
        }
    }

    /// Whether a value's uses are over, and nothing that has gone will be made from it again.
    fn over(&mut self, v: ValueId) -> bool {
        self.program.tail(self.values[v.index()].gap) && self.need(v, DEPTH) == UNNEEDED
    }
}
