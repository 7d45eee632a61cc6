//! Lanes and waits: what must have completed before each instruction starts, so that every order of the
//! lanes is right; and the figures that follow from the list.

use crate::emit::crossing::Crossing;
use crate::emit::places::give_places;
use crate::emit::timeline::timeline;
use crate::plan::{Action, Instruction, Plan};
use crate::problem::{Effect, Home, LANES, Lane, NodeId, Problem, Tier, ValueId, footprint_on};

/// Adds lanes, waits, places on tiers and figures to a list.
pub(crate) fn finish(problem: &Problem, mut lines: Vec<Action>, mut plan: Plan) -> Plan {
    give_places(problem, &mut lines, &mut plan);
    let mut writer = Writer::new(problem);
    // Values are freed by the lane of the run that they go with.
    let mut running = Lane::Compute;
    for action in lines {
        let lane = match &action {
            Action::Run { node, .. } | Action::Guard { node } => {
                running = problem.nodes[node.index()].lane;
                running
            }
            Action::Free { .. } => running,
            Action::Evict { tier, .. } => match tier {
                Tier::Host => Lane::DeviceToHost,
                Tier::Disk => Lane::Write,
            },
            Action::Fetch { tier, .. } => match tier {
                Tier::Host => Lane::HostToDevice,
                Tier::Disk => Lane::Read,
            },
        };
        writer.push(action, lane);
    }
    plan.live_bytes = writer.most;
    plan.peak_instruction = writer.peak;
    (plan.recomputed_nodes, plan.recompute_seconds) =
        (writer.recomputed_nodes, writer.recompute_seconds);
    plan.seconds = writer.seconds();
    plan.instructions = writer.instructions;
    if plan.moved_bytes() > 0 {
        plan.seconds = timeline(problem, &plan).seconds;
    }
    plan
}

/// A range of the arena or of a tier, and the instruction that has to be over before it is used again.
#[derive(Debug, Clone, Copy)]
struct Range {
    from: u64,
    to: u64,
    until: u32,
    /// The lane of that instruction.
    lane: usize,
}

impl Range {
    fn meets(&self, from: u64, bytes: u64) -> bool {
        self.from < from + bytes && from < self.to
    }

    /// Whether its instruction is known to be over.
    fn is_over(&self, clock: Clock, place: &[u32]) -> bool {
        clock[self.lane] >= place[self.until as usize]
    }
}

/// Where a value is in the arena.
#[derive(Debug, Clone, Copy)]
struct Place {
    offset: u64,
    /// The instruction that filled it; `None` if it is there from the start.
    since: Option<u32>,
}

/// Numbers of instructions, counted from 1, that are over in each lane.
type Clock = [u32; LANES];

struct Writer<'a> {
    problem: &'a Problem,
    instructions: Vec<Instruction>,
    /// Per instruction: its place in its lane, counted from 1.
    place: Vec<u32>,
    /// Per instruction: what is over when it starts.
    clocks: Vec<Clock>,
    /// Per lane: its latest instruction.
    last: [Option<u32>; LANES],
    count: [u32; LANES],
    /// Where values are in the arena.
    there: Vec<Option<Place>>,
    /// Evictions that may be under way.
    leaving: Vec<Range>,
    /// Per value and tier: what made its copy, and the latest fetch of it.
    copies: Vec<[(Option<u32>, Option<u32>); 2]>,
    /// Copies of values that are not cells.
    spilled: Vec<(Tier, Range)>,
    bytes: u64,
    most: u64,
    peak: u32,
    ran: Vec<bool>,
    /// Per node: the seconds of its first run. They are added up in the order of nodes, so that plans that
    /// run the same come to the same.
    first: Vec<f64>,
    /// What orders runs of several lanes, if there are any.
    crossing: Option<Crossing>,
    recomputed_nodes: u32,
    recompute_seconds: f64,
}

fn index(lane: Lane) -> usize {
    match lane {
        Lane::Compute => 0,
        Lane::HostToDevice => 1,
        Lane::DeviceToHost => 2,
        Lane::Read => 3,
        Lane::Write => 4,
        Lane::Communicate => 5,
    }
}

impl<'a> Writer<'a> {
    fn new(problem: &'a Problem) -> Writer<'a> {
        let mut bytes = 0;
        let values = problem.values.iter();
        let there = values.map(|v| match v.home {
            Home::Resident { offset } => {
                bytes += problem.footprint(v.bytes);
                Some(Place {
                    offset,
                    since: None,
                })
            }
            _ => None,
        });
        let there = there.collect();
        Writer {
            problem,
            instructions: Vec::new(),
            place: Vec::new(),
            clocks: Vec::new(),
            last: [None; LANES],
            count: [0; LANES],
            there,
            leaving: Vec::new(),
            copies: vec![[(None, None); 2]; problem.values.len()],
            spilled: Vec::new(),
            bytes,
            most: bytes,
            peak: 0,
            ran: problem
                .nodes
                .iter()
                .map(|n| n.done && n.effect == Effect::Repeatable)
                .collect(),
            first: vec![0.0; problem.nodes.len()],
            crossing: problem.has_lanes().then(|| Crossing::new(problem)),
            recomputed_nodes: 0,
            recompute_seconds: 0.0,
        }
    }

    fn size(&self, v: ValueId) -> u64 {
        self.problem.footprint(self.problem.values[v.index()].bytes)
    }

    fn push(&mut self, action: Action, lane: Lane) {
        let i = self.instructions.len() as u32;
        let lane_index = index(lane);
        let mut known = Waits::new(self, lane_index);
        if lane != Lane::Compute {
            known.after(self.last[0]);
        }
        if let Some(crossing) = &mut self.crossing {
            let mut wait = |other| known.after((other != i).then_some(other));
            crossing.follow(self.problem, (i, lane_index), &action, &mut wait);
        }
        match &action {
            Action::Run {
                node,
                outputs,
                scratch,
            } => {
                self.needs(*node, &mut known);
                let n = &self.problem.nodes[node.index()];
                for (&v, offset) in n.outputs.iter().zip(outputs) {
                    match *offset {
                        Some(offset) => self.clear(offset, self.size(v), &mut known),
                        // What is there is filled again.
                        None => self.brought(v, &mut known),
                    }
                }
                if let Some(offset) = *scratch {
                    self.clear(offset, self.problem.footprint(n.scratch_bytes), &mut known);
                }
            }
            Action::Guard { node } => self.needs(*node, &mut known),
            Action::Free { .. } => {}
            Action::Evict { value, tier, place } => {
                let (made, read) = self.copies[value.index()][*tier as usize];
                known.after(made);
                known.after(read);
                if let Some(place) = *place {
                    let bytes = footprint_on(*tier, self.problem.values[value.index()].bytes);
                    let others = self
                        .spilled
                        .iter()
                        .filter(|(t, r)| t == tier && r.meets(place, bytes));
                    for (_, range) in others {
                        known.after(Some(range.until));
                    }
                }
            }
            Action::Fetch {
                value,
                tier,
                offset,
            } => {
                known.after(self.copies[value.index()][*tier as usize].0);
                self.clear(*offset, self.size(*value), &mut known);
            }
        }
        let (waits, clock) = known.least(self);
        self.count[lane_index] += 1;
        self.place.push(self.count[lane_index]);
        self.clocks.push(clock);
        self.last[lane_index] = Some(i);
        if lane == Lane::Compute {
            // Other lanes wait for the latest run, so that what runs know, all know.
            let place = &self.place;
            self.leaving.retain(|r| !r.is_over(clock, place));
        }
        self.carry_out(i, &action, (lane_index, clock));
        self.instructions.push(Instruction {
            lane,
            waits,
            action,
        });
    }

    /// Waits for what filled a node's inputs.
    fn needs(&self, node: NodeId, known: &mut Waits) {
        for &v in &self.problem.nodes[node.index()].inputs {
            self.brought(v, known);
        }
    }

    /// Waits for what filled a value.
    fn brought(&self, v: ValueId, known: &mut Waits) {
        known.after(self.there[v.index()].and_then(|place| place.since));
    }

    /// Waits for evictions from a range of the arena.
    fn clear(&self, offset: u64, bytes: u64, known: &mut Waits) {
        for range in self.leaving.iter().filter(|r| r.meets(offset, bytes)) {
            known.after(Some(range.until));
        }
    }

    /// Follows what an instruction does to the arena, and counts what is alive.
    fn carry_out(&mut self, i: u32, action: &Action, at: (usize, Clock)) {
        let (mut scratch, mut taken) = (0, Vec::new());
        match action {
            Action::Run { node, outputs, .. } => {
                taken = self.fill(i, *node, outputs);
                scratch = self.problem.nodes[node.index()].scratch_bytes;
                self.ran(*node, self.problem.run_seconds(*node, outputs));
            }
            Action::Guard { node } => self.ran(*node, self.problem.nodes[node.index()].seconds),
            Action::Fetch {
                value,
                tier,
                offset,
            } => {
                self.bytes += self.size(*value);
                self.there[value.index()] = Some(Place {
                    offset: *offset,
                    since: Some(i),
                });
                self.copies[value.index()][*tier as usize].1 = Some(i);
                if let Some(copy) = self.spilled_at(*value, *tier) {
                    self.spilled[copy].1.until = i;
                    self.spilled[copy].1.lane = at.0;
                }
            }
            Action::Free { .. } | Action::Evict { .. } => {}
        }
        // What leaves counts to the end of the instruction; an eviction, until it is known to be over.
        let leaving = self
            .leaving
            .iter()
            .filter(|r| !r.is_over(at.1, &self.place));
        let under_way: u64 = leaving.map(|r| r.to - r.from).sum();
        let live = self.bytes + self.problem.footprint(scratch) + under_way;
        if live > self.most || i == 0 {
            (self.most, self.peak) = (live, i);
        }
        if let Action::Free { value } | Action::Evict { value, .. } = action {
            self.bytes -= self.size(*value);
            let left = self.there[value.index()].take();
            match (left, action) {
                (Some(left), Action::Evict { tier, place, .. }) => {
                    self.evict(i, *value, left, (*tier, *place, at.0));
                }
                (Some(left), _) => self.leave(i, at.0, left.offset, self.size(*value)),
                _ => {}
            }
        }
        for (offset, bytes) in taken {
            self.leave(i, at.0, offset, bytes);
        }
        if let Action::Run {
            node,
            scratch: Some(offset),
            ..
        } = action
        {
            let bytes = self.problem.nodes[node.index()].scratch_bytes;
            self.leave(i, at.0, *offset, self.problem.footprint(bytes));
        }
    }

    /// Notes that bytes are free once an instruction of another lane than that of kernels is over.
    fn leave(&mut self, i: u32, lane: usize, from: u64, bytes: u64) {
        if lane > 0 && bytes > 0 {
            self.leaving.push(Range {
                from,
                to: from + bytes,
                until: i,
                lane,
            });
        }
    }

    /// Places what a run fills.
    /// Answers the ranges, and their bytes, that inputs had before.
    fn fill(&mut self, i: u32, node: NodeId, outputs: &[Option<u64>]) -> Vec<(u64, u64)> {
        let mut taken = Vec::new();
        let n = &self.problem.nodes[node.index()];
        for (o, (&v, offset)) in (0..).zip(n.outputs.iter().zip(outputs)) {
            let Some(offset) = *offset else { continue };
            let size = self.size(v);
            let takes = n.in_place.iter().filter(|pair| pair.1 == o);
            let mut takes = takes.map(|pair| n.inputs[pair.0 as usize]);
            // What takes no bytes may lie at any offset.
            let over = |u: &ValueId| {
                let place = self.there[u.index()].filter(|_| size > 0 && self.size(*u) > 0);
                place.is_some_and(|place| place.offset == offset)
            };
            match takes.find(over) {
                Some(input) => {
                    self.there[input.index()] = None;
                    taken.push((offset, size));
                }
                None => self.bytes += size,
            }
            self.there[v.index()] = Some(Place {
                offset,
                since: Some(i),
            });
        }
        taken
    }

    /// Notes that a value is on its way to a tier.
    fn evict(
        &mut self,
        i: u32,
        value: ValueId,
        left: Place,
        (tier, place, lane): (Tier, Option<u64>, usize),
    ) {
        let range = |from, bytes| Range {
            from,
            to: from + bytes,
            until: i,
            lane,
        };
        self.leaving.push(range(left.offset, self.size(value)));
        self.copies[value.index()][tier as usize] = (Some(i), None);
        if let Some(from) = place {
            let bytes = footprint_on(tier, self.problem.values[value.index()].bytes);
            self.spilled
                .retain(|(t, r)| *t != tier || !r.meets(from, bytes));
            self.spilled.push((tier, range(from, bytes)));
        }
    }

    /// The entry of a value's copy that is no cell's.
    fn spilled_at(&self, value: ValueId, tier: Tier) -> Option<usize> {
        let made = self.copies[value.index()][tier as usize].0?;
        let Action::Evict {
            place: Some(place), ..
        } = self.instructions[made as usize].action
        else {
            return None;
        };
        self.spilled
            .iter()
            .position(|&(t, r)| t == tier && r.from == place)
    }

    fn ran(&mut self, node: NodeId, seconds: f64) {
        if std::mem::replace(&mut self.ran[node.index()], true) {
            self.recomputed_nodes += 1;
            self.recompute_seconds += seconds;
        } else {
            self.first[node.index()] = seconds;
        }
    }

    /// Of all runs, one after the other.
    fn seconds(&self) -> f64 {
        self.first.iter().sum::<f64>() + self.recompute_seconds
    }
}

/// What an instruction waits for, as far as it is not known to be over anyway.
struct Waits {
    waits: Vec<u32>,
    clock: Clock,
}

impl Waits {
    fn new(writer: &Writer, lane: usize) -> Waits {
        let mut waits = Waits {
            waits: Vec::new(),
            clock: [0; LANES],
        };
        if let Some(last) = writer.last[lane] {
            waits.learn(writer, last);
        }
        waits
    }

    fn after(&mut self, i: Option<u32>) {
        self.waits.extend(i);
    }

    /// The waits that none of the others implies, and what is over then. Latest first: what comes before
    /// an instruction can be implied by it, not what comes after.
    fn least(mut self, writer: &Writer) -> (Vec<u32>, Clock) {
        let mut all = std::mem::take(&mut self.waits);
        all.sort_unstable_by(|a, b| b.cmp(a));
        for i in all {
            let lane = index(writer.instructions[i as usize].lane);
            if self.clock[lane] < writer.place[i as usize] {
                self.waits.push(i);
                self.learn(writer, i);
            }
        }
        (self.waits, self.clock)
    }

    fn learn(&mut self, writer: &Writer, i: u32) {
        let lane = index(writer.instructions[i as usize].lane);
        let known = writer.clocks[i as usize];
        self.clock
            .iter_mut()
            .zip(known)
            .for_each(|(c, k)| *c = k.max(*c));
        self.clock[lane] = self.clock[lane].max(writer.place[i as usize]);
    }
}
