//! From settings to a plan: the simulated runs, frees and transfers, with offsets, and transfers moved
//! to where they overlap with runs.

mod crossing;
mod lanes;
mod places;
mod schedule;
mod timeline;

pub(crate) use schedule::Schedule;
pub use timeline::{Timeline, timeline};

use crate::emit::lanes::finish;
use crate::emit::schedule::{Transfer, Work, schedule};
use crate::pack::{Buffer, Effort, pack};
use crate::plan::{Action, Plan};
use crate::problem::{BLOCK, Home, NodeId, Problem, Tier, ValueId, footprint_on};
use crate::program::Program;
use crate::simulate::setting::spilled;
use crate::simulate::{Candidate, Fresh, Recorder, Simulator, Stuck};

/// How much of what memory is left may be filled by what was fetched early, most first.
const AHEAD: [f64; 3] = [1.0, 0.5, 0.2];

/// What a simulation did, in order.
#[derive(Debug, Default)]
struct Trace {
    events: Vec<Event>,
    fresh: Vec<Fresh>,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// A run, and how many outputs it places.
    Run(NodeId, u32),
    Free(ValueId),
    Fetch(ValueId, Tier),
    Evict(ValueId, Tier),
}

impl Recorder for Trace {
    fn run(&mut self, node: NodeId, fresh: &[Fresh]) {
        self.events.push(Event::Run(node, fresh.len() as u32));
        self.fresh.extend_from_slice(fresh);
    }

    fn free(&mut self, value: ValueId) {
        self.events.push(Event::Free(value));
    }

    fn fetch(&mut self, value: ValueId, tier: Tier) {
        self.events.push(Event::Fetch(value, tier));
    }

    fn evict(&mut self, value: ValueId, tier: Tier) {
        self.events.push(Event::Evict(value, tier));
    }

    fn restart(&mut self) {
        self.events.clear();
        self.fresh.clear();
    }
}

/// Settings carried out, before anything has a place.
#[derive(Debug)]
pub(crate) struct Carried {
    trace: Trace,
    work: Work,
    homes: Vec<(ValueId, Option<Tier>)>,
    /// Bytes of the cells at home in memory.
    pub(crate) home_bytes: u64,
    seconds: f64,
}

impl Carried {
    /// Carries out settings.
    pub(crate) fn new(
        problem: &Problem,
        program: &Program,
        simulator: &mut Simulator,
        found: &Candidate,
    ) -> Result<Carried, Stuck> {
        let mut trace = Trace::default();
        let outcome = simulator.record(&found.settings, &found.due, &mut trace)?;
        let home = |&(v, _): &(ValueId, _)| (v, spilled(found.settings[program.gap(v)]));
        let homes: Vec<(ValueId, Option<Tier>)> = program.cells.list.iter().map(home).collect();
        let memory = homes.iter().filter(|home| home.1.is_none());
        Ok(Carried {
            work: work(problem, program, &trace),
            home_bytes: memory.map(|&(v, _)| program.size[v.index()]).sum(),
            trace,
            homes,
            seconds: outcome.compute,
        })
    }

    /// The schedule of least predicted seconds within so many bytes of arena.
    pub(crate) fn scheduled(&self, problem: &Problem, budget: u64) -> Schedule {
        if self.work.fetches.is_empty() && self.work.evicts.is_empty() {
            return Schedule {
                seconds: self.seconds,
                ..Schedule::default()
            };
        }
        let peak = self.work.live.iter().copied().max().unwrap_or(0);
        let room = budget.saturating_sub(self.work.live.iter().copied().min().unwrap_or(0));
        let tried = AHEAD.iter().map(|share| {
            let ahead = (room as f64 * share) as u64;
            schedule(&self.work, &problem.tiers, budget.max(peak), ahead)
        });
        let best = tried.min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        best.unwrap_or_default()
    }

    /// The schedule that keeps no byte a run longer than it must: each transfer is waited for.
    pub(crate) fn waiting(&self) -> Schedule {
        Schedule {
            issue: self.work.fetches.iter().map(|fetch| fetch.run).collect(),
            close: self.work.evicts.iter().map(|evict| evict.run + 1).collect(),
            seconds: f64::INFINITY,
        }
    }

    /// The plan, with transfers where a schedule says.
    pub(crate) fn plan(
        &self,
        problem: &Problem,
        program: &Program,
        schedule: &Schedule,
        effort: Effort,
    ) -> Plan {
        let layout = Layout::new(problem, program, &self.trace, schedule);
        let align = problem.tiers.disk.map_or(1, |_| BLOCK);
        let packing = pack(&layout.buffers, effort, align);
        let offset = |buffer: u32| packing.offsets[buffer as usize];
        let mut lines: Vec<Action> = Vec::with_capacity(self.trace.events.len());
        let (mut fresh, mut scratch) = (
            self.trace.fresh.iter().zip(&layout.placed),
            layout.scratch.iter(),
        );
        let fetch = |index: usize| {
            let Transfer { value, tier, .. } = self.work.fetches[index];
            let offset = offset(layout.fetched[index]);
            Action::Fetch {
                value,
                tier,
                offset,
            }
        };
        let (mut issued, mut run) = (0, 0);
        for &event in &self.trace.events {
            match event {
                Event::Fetch(..) => {}
                Event::Free(value) => lines.push(Action::Free { value }),
                Event::Evict(value, tier) => lines.push(Action::Evict {
                    value,
                    tier,
                    place: None,
                }),
                Event::Run(node, count) => {
                    run += 1;
                    while schedule.issue.get(issued).is_some_and(|&at| at <= run) {
                        lines.push(fetch(issued));
                        issued += 1;
                    }
                    let n = &problem.nodes[node.index()];
                    let mut outputs = vec![None; n.outputs.len()];
                    for (f, &buffer) in fresh.by_ref().take(count as usize) {
                        let at = n.outputs.iter().position(|&v| v == f.value);
                        let at = at.expect("a run places outputs of its own node");
                        outputs[at] = Some(offset(buffer));
                    }
                    if program.guard[node.index()] {
                        lines.push(Action::Guard { node });
                        continue;
                    }
                    let scratch = (n.scratch_bytes > 0).then(|| {
                        let buffer = scratch.next().expect("each run with scratch has a buffer");
                        offset(*buffer)
                    });
                    lines.push(Action::Run {
                        node,
                        outputs,
                        scratch,
                    });
                }
            }
        }
        lines.extend((issued..self.work.fetches.len()).map(fetch));
        let last = layout.last.iter();
        let mut plan = self.with_homes(problem);
        plan.arena_bytes = packing.height;
        plan.residents = last.map(|&(v, b)| (v, offset(b))).collect();
        finish(problem, lines, plan)
    }

    /// A plan that does nothing, with cells at home.
    fn with_homes(&self, problem: &Problem) -> Plan {
        let mut plan = Plan {
            homes: self.homes.clone(),
            home_bytes: self.home_bytes,
            ..Plan::default()
        };
        for &(v, tier) in &self.homes {
            if let Some(tier) = tier {
                let bytes = problem.values[v.index()].bytes;
                plan.traffic_mut(tier).home_bytes += footprint_on(tier, bytes);
            }
        }
        plan
    }
}

/// Carries out settings and packs the result, with `budget` bytes for arena and homes.
pub(crate) fn emit(
    problem: &Problem,
    program: &Program,
    simulator: &mut Simulator,
    found: &Candidate,
    (budget, effort): (u64, Effort),
) -> Result<Plan, Stuck> {
    let carried = Carried::new(problem, program, simulator, found)?;
    let budget = budget.saturating_sub(carried.home_bytes);
    let schedule = carried.scheduled(problem, budget);
    Ok(carried.plan(problem, program, &schedule, effort))
}

/// What a schedule is made from. Values that leave and come back do so in the order of the trace.
fn work(problem: &Problem, program: &Program, trace: &Trace) -> Work {
    let mut work = Work::default();
    let (mut run, mut bytes): (u32, u64) = (0, 0);
    for &v in &program.initial {
        bytes += program.size[v.index()];
    }
    // Per value: the run after which it last left, and the eviction that copied it.
    let mut left: Vec<u32> = vec![0; problem.values.len()];
    let mut copied: Vec<Option<usize>> = vec![None; problem.values.len()];
    let mut fresh = trace.fresh.iter();
    for &event in &trace.events {
        match event {
            Event::Run(node, count) => {
                run += 1;
                let n = &problem.nodes[node.index()];
                let mut filled = vec![None; n.outputs.len()];
                for f in fresh.by_ref().take(count as usize) {
                    if let Some(at) = n.outputs.iter().position(|&v| v == f.value) {
                        filled[at] = Some(0);
                    }
                    match f.takes {
                        Some(input) => left[input.index()] = run,
                        None => bytes += program.size[f.value.index()],
                    }
                }
                work.seconds.push(problem.run_seconds(node, &filled));
                work.live.push(bytes + program.scratch[node.index()]);
            }
            Event::Free(v) => {
                bytes -= program.size[v.index()];
                left[v.index()] = run;
            }
            Event::Fetch(value, tier) => {
                bytes += program.size[value.index()];
                work.fetches.push(Transfer {
                    value,
                    tier,
                    bytes: program.size[value.index()],
                    run: run + 1,
                    earliest: left[value.index()] + 1,
                    after: copied[value.index()],
                });
            }
            Event::Evict(value, tier) => {
                bytes -= program.size[value.index()];
                left[value.index()] = run;
                copied[value.index()] = Some(work.evicts.len());
                work.evicts.push(Transfer {
                    value,
                    tier,
                    bytes: program.size[value.index()],
                    run,
                    earliest: 0,
                    after: None,
                });
            }
        }
    }
    // What is fetched after the last run is there at the end: as if one more needed it.
    work.seconds.push(0.0);
    work.live.push(bytes);
    work
}

/// The buffers behind a trace.
struct Layout {
    buffers: Vec<Buffer>,
    /// The buffer of each placed output, in order.
    placed: Vec<u32>,
    /// The buffer of each scratch, in order.
    scratch: Vec<u32>,
    /// The buffer of each fetch, in order.
    fetched: Vec<u32>,
    /// Values that are there at the end, and their buffers.
    last: Vec<(ValueId, u32)>,
}

impl Layout {
    /// Time counts runs; what is there from the start lives from the first on.
    fn new(problem: &Problem, program: &Program, trace: &Trace, schedule: &Schedule) -> Layout {
        let mut layout = Layout {
            buffers: Vec::new(),
            placed: Vec::new(),
            scratch: Vec::new(),
            fetched: Vec::new(),
            last: Vec::new(),
        };
        let mut buffer_of: Vec<Option<u32>> = vec![None; problem.values.len()];
        for &v in &program.initial {
            if let Home::Resident { offset } = problem.values[v.index()].home {
                buffer_of[v.index()] = Some(layout.add(program.size[v.index()], 0, Some(offset)));
            }
        }
        let mut time = 0;
        let mut fresh = trace.fresh.iter();
        let mut close = schedule.close.iter();
        for &event in &trace.events {
            match event {
                Event::Free(v) | Event::Evict(v, _) => {
                    let buffer = buffer_of[v.index()]
                        .take()
                        .expect("only what is there goes");
                    let kept = match event {
                        Event::Evict(..) => close.next().map_or(time, |&run| run - 1),
                        _ => time,
                    };
                    layout.buffers[buffer as usize].to = time.max(kept);
                }
                Event::Fetch(v, _) => {
                    let at = schedule.issue[layout.fetched.len()];
                    let buffer = layout.add(program.size[v.index()], at, None);
                    buffer_of[v.index()] = Some(buffer);
                    layout.fetched.push(buffer);
                }
                Event::Run(node, count) => {
                    time += 1;
                    for f in fresh.by_ref().take(count as usize) {
                        let taken = f.takes.and_then(|v| buffer_of[v.index()].take());
                        let size = program.size[f.value.index()];
                        let buffer = taken.unwrap_or_else(|| layout.add(size, time, None));
                        buffer_of[f.value.index()] = Some(buffer);
                        layout.placed.push(buffer);
                    }
                    let scratch = program.scratch[node.index()];
                    if scratch > 0 {
                        let buffer = layout.add(scratch, time, None);
                        layout.scratch.push(buffer);
                    }
                }
            }
        }
        for (v, buffer) in ValueId::numbered(&buffer_of) {
            if let Some(buffer) = *buffer {
                layout.buffers[buffer as usize].to = time + 1;
                layout.last.push((v, buffer));
            }
        }
        layout
    }

    fn add(&mut self, bytes: u64, time: u32, fixed: Option<u64>) -> u32 {
        self.buffers.push(Buffer {
            bytes,
            from: time,
            to: time,
            fixed,
        });
        self.buffers.len() as u32 - 1
    }
}
