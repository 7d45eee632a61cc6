//! From settings to a plan: the simulated runs and frees, with offsets.

use crate::archive::Found;
use crate::pack::{Buffer, Effort, pack};
use crate::plan::{Action, Instruction, Lane, Plan};
use crate::problem::{Effect, Home, NodeId, Problem, ValueId};
use crate::program::Program;
use crate::simulate::{Fresh, Outcome, Recorder, Simulator, Stuck};

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
}

impl Recorder for Trace {
    fn run(&mut self, node: NodeId, fresh: &[Fresh]) {
        self.events.push(Event::Run(node, fresh.len() as u32));
        self.fresh.extend_from_slice(fresh);
    }

    fn free(&mut self, value: ValueId) {
        self.events.push(Event::Free(value));
    }

    fn restart(&mut self) {
        self.events.clear();
        self.fresh.clear();
    }
}

/// Carries out settings and packs the result.
pub(crate) fn emit(
    problem: &Problem,
    program: &Program,
    simulator: &mut Simulator,
    found: &Found,
    effort: Effort,
) -> Result<Plan, Stuck> {
    let mut trace = Trace::default();
    let outcome = simulator.record(&found.settings, &found.due, &mut trace)?;
    let layout = Layout::new(problem, program, &trace);
    let packing = pack(&layout.buffers, effort);
    let mut writer = Writer::new(problem);
    let mut fresh = trace.fresh.iter().zip(&layout.placed);
    let mut scratch = layout.scratch.iter();
    for &event in &trace.events {
        match event {
            Event::Free(value) => writer.push(Action::Free { value }),
            Event::Run(node, _) if program.guard[node as usize] => {
                writer.push(Action::Guard { node });
            }
            Event::Run(node, count) => {
                let n = &problem.nodes[node as usize];
                let mut outputs = vec![None; n.outputs.len()];
                for (f, &buffer) in fresh.by_ref().take(count as usize) {
                    let at = n.outputs.iter().position(|&v| v == f.value);
                    let at = at.expect("a run places outputs of its own node");
                    outputs[at] = Some(packing.offsets[buffer as usize]);
                }
                let scratch = (n.scratch_bytes > 0).then(|| {
                    let buffer = scratch.next().expect("each run with scratch has a buffer");
                    packing.offsets[*buffer as usize]
                });
                writer.run(node, problem.run_seconds(node, &outputs));
                writer.push(Action::Run {
                    node,
                    outputs,
                    scratch,
                });
            }
        }
    }
    let residents = layout
        .last
        .iter()
        .map(|&(v, b)| (v, packing.offsets[b as usize]))
        .collect();
    Ok(writer.finish(outcome, packing.height, residents))
}

/// The buffers behind a trace.
struct Layout {
    buffers: Vec<Buffer>,
    /// The buffer of each placed output, in order.
    placed: Vec<u32>,
    /// The buffer of each scratch, in order.
    scratch: Vec<u32>,
    /// Values that are there at the end, and their buffers.
    last: Vec<(ValueId, u32)>,
}

impl Layout {
    /// Time counts runs; what is there from the start lives from the first on.
    fn new(problem: &Problem, program: &Program, trace: &Trace) -> Layout {
        let mut layout = Layout {
            buffers: Vec::new(),
            placed: Vec::new(),
            scratch: Vec::new(),
            last: Vec::new(),
        };
        let mut buffer_of: Vec<Option<u32>> = vec![None; problem.values.len()];
        for &v in &program.initial {
            if let Home::Resident { offset } = problem.values[v as usize].home {
                buffer_of[v as usize] = Some(layout.add(program.size[v as usize], 0, Some(offset)));
            }
        }
        let mut time = 0;
        let mut fresh = trace.fresh.iter();
        for &event in &trace.events {
            match event {
                Event::Free(v) => {
                    let buffer = buffer_of[v as usize]
                        .take()
                        .expect("only what is there is freed");
                    layout.buffers[buffer as usize].to = time;
                }
                Event::Run(node, count) => {
                    time += 1;
                    for f in fresh.by_ref().take(count as usize) {
                        let taken = f.takes.and_then(|v| buffer_of[v as usize].take());
                        let size = program.size[f.value as usize];
                        let buffer = taken.unwrap_or_else(|| layout.add(size, time, None));
                        buffer_of[f.value as usize] = Some(buffer);
                        layout.placed.push(buffer);
                    }
                    let scratch = program.scratch[node as usize];
                    if scratch > 0 {
                        let buffer = layout.add(scratch, time, None);
                        layout.scratch.push(buffer);
                    }
                }
            }
        }
        for (v, buffer) in (0..).zip(&buffer_of) {
            if let Some(buffer) = *buffer {
                layout.buffers[buffer as usize].to = time;
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

/// Collects instructions and sums.
struct Writer {
    instructions: Vec<Instruction>,
    ran: Vec<bool>,
    recomputed_nodes: u32,
    recompute_seconds: f64,
}

impl Writer {
    fn new(problem: &Problem) -> Writer {
        Writer {
            instructions: Vec::new(),
            ran: problem
                .nodes
                .iter()
                .map(|n| n.done && n.effect == Effect::Repeatable)
                .collect(),
            recomputed_nodes: 0,
            recompute_seconds: 0.0,
        }
    }

    fn push(&mut self, action: Action) {
        self.instructions.push(Instruction {
            lane: Lane::Compute,
            waits: Vec::new(),
            action,
        });
    }

    fn run(&mut self, node: NodeId, seconds: f64) {
        if std::mem::replace(&mut self.ran[node as usize], true) {
            self.recomputed_nodes += 1;
            self.recompute_seconds += seconds;
        }
    }

    fn finish(self, outcome: Outcome, arena_bytes: u64, residents: Vec<(ValueId, u64)>) -> Plan {
        let runs = self.instructions.iter().enumerate();
        let mut runs = runs.filter(|(_, i)| !matches!(i.action, Action::Free { .. }));
        let peak = runs
            .nth(outcome.peak_run as usize)
            .map_or(0, |(i, _)| i as u32);
        Plan {
            instructions: self.instructions,
            arena_bytes,
            live_bytes: outcome.peak,
            peak_instruction: peak,
            seconds: outcome.seconds,
            recomputed_nodes: self.recomputed_nodes,
            recompute_seconds: self.recompute_seconds,
            residents,
            ..Plan::default()
        }
    }
}
