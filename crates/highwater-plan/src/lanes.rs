//! Lanes and waits: what must have completed before each instruction starts, so that every order of the
//! lanes is right; and the figures that follow from the list.

use crate::check::footprint_on;
use crate::pack::{Buffer, Effort, pack};
use crate::plan::{Action, Instruction, Lane, Plan};
use crate::problem::{Effect, Home, NodeId, Problem, Tier, ValueId};
use crate::timeline::timeline;

const LANES: usize = 5;

/// An instruction in the making.
#[derive(Debug)]
pub(crate) struct Line {
    action: Action,
    lane: Lane,
}

impl Line {
    pub(crate) fn new(action: Action) -> Line {
        let lane = match &action {
            Action::Run { .. } | Action::Free { .. } | Action::Guard { .. } => Lane::Compute,
            Action::Evict { tier, .. } => match tier {
                Tier::Host => Lane::DeviceToHost,
                Tier::Disk => Lane::Write,
            },
            Action::Fetch { tier, .. } => match tier {
                Tier::Host => Lane::HostToDevice,
                Tier::Disk => Lane::Read,
            },
        };
        Line { action, lane }
    }
}

/// Adds waits, places on tiers and figures to a list.
pub(crate) fn finish(problem: &Problem, mut lines: Vec<Line>, mut plan: Plan) -> Plan {
    give_places(problem, &mut lines, &mut plan);
    let mut writer = Writer::new(problem);
    for line in lines {
        writer.push(line);
    }
    plan.instructions = writer.instructions;
    plan.live_bytes = writer.most;
    plan.peak_instruction = writer.peak;
    (plan.recomputed_nodes, plan.recompute_seconds) =
        (writer.recomputed_nodes, writer.recompute_seconds);
    plan.seconds = writer.seconds;
    if plan.moved_bytes() > 0 {
        plan.seconds = timeline(problem, &plan).seconds;
    }
    plan
}

/// Gives what is evicted, other than cells, a place on its tier, and counts what is moved.
fn give_places(problem: &Problem, lines: &mut [Line], plan: &mut Plan) {
    for tier in Tier::ALL {
        let mut copies: Vec<(usize, Buffer)> = Vec::new();
        let mut copy_of: Vec<Option<usize>> = vec![None; problem.values.len()];
        for (i, line) in lines.iter().enumerate() {
            let time = i as u32;
            match line.action {
                Action::Evict { value, tier: t, .. } if t == tier => {
                    let bytes = problem.values[value as usize].bytes;
                    plan.traffic_mut(tier).written_bytes += bytes;
                    if !matches!(problem.values[value as usize].home, Home::Cell(_)) {
                        copy_of[value as usize] = Some(copies.len());
                        let bytes = footprint_on(tier, bytes);
                        let (from, to, fixed) = (time, time, None);
                        copies.push((
                            i,
                            Buffer {
                                bytes,
                                from,
                                to,
                                fixed,
                            },
                        ));
                    }
                }
                Action::Fetch { value, tier: t, .. } if t == tier => {
                    plan.traffic_mut(tier).read_bytes += problem.values[value as usize].bytes;
                    if let Some(copy) = copy_of[value as usize] {
                        copies[copy].1.to = time;
                    }
                }
                _ => {}
            }
        }
        let buffers: Vec<Buffer> = copies.iter().map(|copy| copy.1).collect();
        let packing = pack(&buffers, Effort::Quick, 1);
        for (&(i, _), &offset) in copies.iter().zip(&packing.offsets) {
            if let Action::Evict { place, .. } = &mut lines[i].action {
                *place = Some(offset);
            }
        }
        plan.traffic_mut(tier).spill_bytes = packing.height;
    }
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
    /// The fetch that brought it.
    fetch: Option<u32>,
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
    seconds: f64,
    recomputed_nodes: u32,
    recompute_seconds: f64,
}

fn index(lane: Lane) -> usize {
    match lane {
        Lane::Compute | Lane::Communicate => 0,
        Lane::HostToDevice => 1,
        Lane::DeviceToHost => 2,
        Lane::Read => 3,
        Lane::Write => 4,
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
                    fetch: None,
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
            seconds: 0.0,
            recomputed_nodes: 0,
            recompute_seconds: 0.0,
        }
    }

    fn size(&self, v: ValueId) -> u64 {
        self.problem
            .footprint(self.problem.values[v as usize].bytes)
    }

    fn push(&mut self, Line { action, lane }: Line) {
        let i = self.instructions.len() as u32;
        let lane_index = index(lane);
        let mut known = Waits::new(self, lane_index);
        match &action {
            Action::Run {
                node,
                outputs,
                scratch,
            } => {
                self.needs(*node, &mut known);
                let n = &self.problem.nodes[*node as usize];
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
                known.after(self.last[0]);
                let (made, read) = self.copies[*value as usize][*tier as usize];
                known.after(made);
                known.after(read);
                if let Some(place) = *place {
                    let bytes = footprint_on(*tier, self.problem.values[*value as usize].bytes);
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
                known.after(self.last[0]);
                known.after(self.copies[*value as usize][*tier as usize].0);
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

    /// Waits for the fetches of a node's inputs.
    fn needs(&self, node: NodeId, known: &mut Waits) {
        for &v in &self.problem.nodes[node as usize].inputs {
            self.brought(v, known);
        }
    }

    /// Waits for the fetch that brought a value, if one did.
    fn brought(&self, v: ValueId, known: &mut Waits) {
        known.after(self.there[v as usize].and_then(|place| place.fetch));
    }

    /// Waits for evictions from a range of the arena.
    fn clear(&self, offset: u64, bytes: u64, known: &mut Waits) {
        for range in self.leaving.iter().filter(|r| r.meets(offset, bytes)) {
            known.after(Some(range.until));
        }
    }

    /// Follows what an instruction does to the arena, and counts what is alive.
    fn carry_out(&mut self, i: u32, action: &Action, at: (usize, Clock)) {
        let mut scratch = 0;
        match action {
            Action::Run { node, outputs, .. } => {
                self.fill(*node, outputs);
                scratch = self.problem.nodes[*node as usize].scratch_bytes;
                self.ran(*node, self.problem.run_seconds(*node, outputs));
            }
            Action::Guard { node } => self.ran(*node, self.problem.nodes[*node as usize].seconds),
            Action::Fetch {
                value,
                tier,
                offset,
            } => {
                self.bytes += self.size(*value);
                self.there[*value as usize] = Some(Place {
                    offset: *offset,
                    fetch: Some(i),
                });
                self.copies[*value as usize][*tier as usize].1 = Some(i);
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
            let left = self.there[*value as usize].take();
            if let (Some(left), Action::Evict { tier, place, .. }) = (left, action) {
                self.evict(i, *value, left, (*tier, *place, at.0));
            }
        }
    }

    /// Places what a run fills.
    fn fill(&mut self, node: NodeId, outputs: &[Option<u64>]) {
        let n = &self.problem.nodes[node as usize];
        for (o, (&v, offset)) in (0..).zip(n.outputs.iter().zip(outputs)) {
            let Some(offset) = *offset else { continue };
            let size = self.size(v);
            let takes = n.in_place.iter().filter(|pair| pair.1 == o);
            let mut takes = takes.map(|pair| n.inputs[pair.0 as usize]);
            let over = |u: &ValueId| {
                size > 0 && self.there[*u as usize].is_some_and(|place| place.offset == offset)
            };
            match takes.find(over) {
                Some(input) => self.there[input as usize] = None,
                None => self.bytes += size,
            }
            self.there[v as usize] = Some(Place {
                offset,
                fetch: None,
            });
        }
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
        self.copies[value as usize][tier as usize] = (Some(i), None);
        if let Some(from) = place {
            let bytes = footprint_on(tier, self.problem.values[value as usize].bytes);
            self.spilled
                .retain(|(t, r)| *t != tier || !r.meets(from, bytes));
            self.spilled.push((tier, range(from, bytes)));
        }
    }

    /// The entry of a value's copy that is no cell's.
    fn spilled_at(&self, value: ValueId, tier: Tier) -> Option<usize> {
        let made = self.copies[value as usize][tier as usize].0?;
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
        self.seconds += seconds;
        if std::mem::replace(&mut self.ran[node as usize], true) {
            self.recomputed_nodes += 1;
            self.recompute_seconds += seconds;
        }
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
