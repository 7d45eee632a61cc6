//! Runs a plan: turns offsets into addresses for kernels, which `call.rs` hands them as views.

use crate::problem::compiled::Compiled;
use crate::problem::offsets::Offsets;
use crate::problem::proven::Proven;
use crate::problem::ran::{Ran, Until};
use crate::run::board::Board;
use crate::run::call::{Buffer, Memory, call};
use crate::run::machine::Machine;
use crate::run::queue::{Completion, Queue};
use crate::run::transfers::{self, Transfers};
use crate::{Error, Result};
use highwater_graph::{Node, Operand, Source, ValueId};
use highwater_memory::DeviceAddress;
use highwater_ops::{KernelError, SharedWith};
use highwater_plan::{Action, Instruction, Lane, Plan, Tier};
use smallvec::SmallVec;

/// What stopped a plan, and whether cells may be partly written.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: Error,
    pub(crate) wrote: bool,
    /// The guard that stopped it, if one did.
    pub(crate) guard: Option<&'static str>,
}

impl Failed {
    /// Nothing ran.
    pub(crate) fn clean(error: Error) -> Self {
        Self {
            error,
            wrote: false,
            guard: None,
        }
    }
}

/// Runs the instructions of `plan` as far as `until` says; all of them if it is `None`.
pub(crate) fn execute(
    machine: &Machine<'_>,
    proven: &Proven,
    mut until: Option<Until>,
) -> Result<Ran, Failed> {
    let (compiled, plan) = (proven.compiled(), proven.plan());
    let Some(transfers) = Transfers::of(machine, compiled, plan).map_err(Failed::clean)? else {
        let mut run = Run::new(machine, compiled, None);
        let (_, result) = run.all(plan, until.as_mut());
        result.map_err(|(error, guard)| Failed {
            error,
            wrote: run.wrote,
            guard,
        })?;
        return Ok(run.ran);
    };
    let computed = transfers::beside(&transfers, |board| {
        let mut run = Run::new(machine, compiled, Some(board));
        let (stopped_at, result) = run.all(plan, until.as_mut());
        if result.is_err() || stopped_at < plan.instructions.len() {
            board.stop(None);
        }
        let Run { ran, wrote, .. } = run;
        (ran, wrote, stopped_at, result)
    });
    let ((mut ran, wrote, stopped_at, result), ended) = computed.map_err(Failed::clean)?;
    // A transfer that failed stops the kernels too, and not the other way round.
    let result = match ended.error {
        Some(error) => Err((error, None)),
        None => result,
    };
    result.map_err(|(error, guard)| Failed {
        error,
        wrote,
        guard,
    })?;
    [ran.host_io, ran.io] = [Tier::Host, Tier::Disk].map(|tier| ended.io[tier as usize]);
    ran.offsets.correct(plan, stopped_at, &ended.completed);
    Ok(ran)
}

struct Run<'a> {
    machine: &'a Machine<'a>,
    compiled: &'a Compiled,
    ran: Ran,
    /// Which of the problem's nodes ran.
    once: Vec<bool>,
    wrote: bool,
    queue: Queue,
    /// What lanes beside this one have done, if there are any.
    board: Option<&'a Board>,
}

type Stopped = (Error, Option<&'static str>);

impl<'a> Run<'a> {
    fn new(machine: &'a Machine<'a>, compiled: &'a Compiled, board: Option<&'a Board>) -> Self {
        Self {
            machine,
            compiled,
            ran: Ran {
                offsets: Offsets::start(compiled),
                skipped: machine.skip,
                ..Ran::default()
            },
            once: vec![false; compiled.problem.nodes.len()],
            wrote: false,
            queue: Queue::new(),
            board,
        }
    }

    /// Runs the list, or as much of it as is wanted. Answers where it stopped.
    fn all(&mut self, plan: &Plan, mut until: Option<&mut Until>) -> (usize, Result<(), Stopped>) {
        let pool = self.machine.pool;
        // On one of the pool's threads, so that kernels fork from inside the pool.
        pool.run(|| {
            self.queue.waited();
            for (i, instruction) in plan.instructions.iter().enumerate() {
                if until.as_ref().is_some_and(|until| until.is_reached()) {
                    return (i, Ok(()));
                }
                if let Err(stopped) = self.next(i, instruction) {
                    return (i, Err(stopped));
                }
                if let Some(until) = &mut until {
                    until.note(self.compiled, &instruction.action);
                }
            }
            (plan.instructions.len(), Ok(()))
        })
    }

    /// Carries out an instruction of a lane that runs when its time has come; follows those of others.
    fn next(&mut self, index: usize, instruction: &Instruction) -> Result<(), Stopped> {
        // Runs of all lanes go one after the other here, in the order of the list.
        let runs = matches!(instruction.lane, Lane::Compute | Lane::Communicate);
        let Some(board) = self.board.filter(|_| runs) else {
            return self.instruction(&instruction.action);
        };
        if !board.wait_to_compute(&instruction.waits) {
            return Err((Error::Internal("a transfer stopped the plan".into()), None));
        }
        if !instruction.waits.is_empty() {
            self.queue.waited();
        }
        self.instruction(&instruction.action)?;
        board.computed(index);
        Ok(())
    }

    fn instruction(&mut self, action: &Action) -> Result<(), Stopped> {
        match action {
            Action::Run {
                node,
                outputs,
                scratch,
            } => self.node(*node, outputs, *scratch),
            Action::Guard { node } => self.guard(*node),
            other => {
                self.ran.offsets.apply(self.compiled, other);
                Ok(())
            }
        }
    }

    fn guard(&mut self, id: highwater_plan::NodeId) -> Result<(), Stopped> {
        let Err((error, _)) = self.node(id, &[], None) else {
            return Ok(());
        };
        match &error {
            Error::Kernel {
                source: KernelError::Skip { what },
                ..
            } => {
                self.ran.skipped = Some(what);
                Ok(())
            }
            &Error::Kernel {
                source: KernelError::NonFinite { what },
                ..
            } if self.ran.skipped.is_none() => Err((error, Some(what))),
            // There is nothing to stop: the updates are left out already.
            Error::Kernel {
                source: KernelError::NonFinite { .. },
                ..
            } => Ok(()),
            _ => Err((error, None)),
        }
    }

    fn node(
        &mut self,
        id: highwater_plan::NodeId,
        offsets: &[Option<u64>],
        scratch: Option<u64>,
    ) -> Result<(), Stopped> {
        let posed = &self.compiled.problem.nodes[id.index()];
        let node = self.compiled.nodes[id.index()];
        let node = self.compiled.node(self.machine.graph, node);
        let again = std::mem::replace(&mut self.once[id.index()], true) || posed.done;
        self.ran.offsets.place(posed, offsets);
        let skipped = self.ran.skipped.is_some() && node.is_update();
        self.wrote |= !node.writes.is_empty() && !skipped;
        self.note_rewrites(posed);
        let launched = if skipped {
            self.queue.launch(|| Ok(()))
        } else {
            self.launch(node, posed, offsets, scratch)
        };
        let launched = launched.map_err(|error| (error, None))?;
        self.ran.offsets.take_over(self.compiled, posed, offsets);
        let seconds = self.queue.complete(launched);
        let left_out = |&&(o, _): &&(u32, f64)| {
            let unplaced = offsets.get(o as usize).is_none_or(Option::is_none);
            unplaced && o < u32::BITS
        };
        let left_out = posed.optional.iter().filter(left_out);
        self.ran.left_out.push(left_out.map(|&(o, _)| 1 << o).sum());
        self.ran.nodes.push(id);
        self.ran.seconds.push(seconds);
        if again {
            self.ran.recompute_seconds += seconds;
        }
        Ok(())
    }

    /// Cells that are about to be written in the arena have to go home, whatever happens.
    fn note_rewrites(&self, posed: &highwater_plan::Node) {
        let Some(board) = self.board else { return };
        for &at in &posed.rewrites {
            let value = posed.inputs[at as usize];
            if let Some(offset) = self.ran.offsets.get(value) {
                board.rewrites(value, offset);
            }
        }
    }

    /// Hands the buffers to the kernel.
    fn launch(
        &mut self,
        node: &Node,
        posed: &highwater_plan::Node,
        offsets: &[Option<u64>],
        scratch: Option<u64>,
    ) -> Result<Completion> {
        let machine = self.machine;
        if machine.dry {
            return self.queue.launch(|| Ok(()));
        }
        let mut inputs = self.inputs(node, posed)?;
        let outputs = self.outputs(node, posed, offsets)?;
        let bytes = posed.scratch_bytes;
        let address = match scratch {
            Some(offset) => self.arena(offset, bytes)?,
            None => self.arena(0, 0)?,
        };
        let scratch = (address.as_ptr(), bytes as usize);
        let kernel = || call(machine, node, &mut inputs, &outputs, scratch);
        self.queue.launch(kernel)
    }

    fn arena(&mut self, offset: u64, bytes: u64) -> Result<DeviceAddress> {
        self.ran.peak_arena_bytes = self.ran.peak_arena_bytes.max(offset + bytes);
        Ok(self.machine.store.plans().address(offset, bytes)?)
    }

    fn inputs(
        &mut self,
        node: &Node,
        posed: &highwater_plan::Node,
    ) -> Result<SmallVec<[Buffer; 4]>> {
        // The problem's inputs are the node's, less the cells that have memory of their own in any
        // case, in the same order.
        let (mut ids, writes) = (posed.inputs.iter(), &node.traits.writes);
        let inputs = node.inputs.iter().enumerate();
        inputs
            .map(|(i, input)| {
                let spec = input.spec.clone();
                let memory = if writes.contains(&i) {
                    self.input(node, input, true, &mut ids)?
                } else if let Some(written) = overwritten(node, input) {
                    Memory::Shared(SharedWith::Input(writes[written]))
                } else {
                    self.input(node, input, false, &mut ids)?
                };
                Ok(Buffer { memory, spec })
            })
            .collect()
    }

    fn input(
        &mut self,
        node: &Node,
        input: &Operand,
        written: bool,
        ids: &mut std::slice::Iter<'_, highwater_plan::ValueId>,
    ) -> Result<Memory> {
        let absent = |what: &str| {
            Error::Internal(format!(
                "{} reads {what}, which is not there",
                node.op.name()
            ))
        };
        let (address, bytes) = match input.source {
            Source::Cell(id, _) => {
                let posed = ids.as_slice().first();
                let posed = posed.filter(|&&value| self.compiled.cell(value) == Some(id));
                let posed = posed.copied();
                if posed.is_some() {
                    ids.next();
                }
                let cell = self.machine.cells.get(id);
                let cell = cell.ok_or_else(|| absent("a dropped cell"))?;
                let (address, bytes) = match (cell.storage(), posed) {
                    (Some(storage), _) => (storage.address(), storage.bytes()),
                    (None, Some(value)) => {
                        let offset = self.ran.offsets.get(value);
                        let offset =
                            offset.ok_or_else(|| absent("a cell that is not in memory"))?;
                        (self.arena(offset, cell.bytes())?, cell.bytes())
                    }
                    (None, None) => return Err(absent("a cell that is not in memory")),
                };
                (address, bytes)
            }
            Source::Value(value) => {
                let id = ids
                    .next()
                    .ok_or_else(|| absent("a value of another problem"))?;
                self.value(value, *id).ok_or_else(|| absent("a value"))??
            }
        };
        Ok(Memory::At {
            address: address.as_ptr(),
            bytes: bytes as usize,
            written,
        })
    }

    fn value(
        &mut self,
        value: ValueId,
        id: highwater_plan::ValueId,
    ) -> Option<Result<(DeviceAddress, u64)>> {
        if let Some(storage) = self.machine.storages.get(&value) {
            return Some(Ok((storage.address(), storage.bytes())));
        }
        let offset = self.ran.offsets.get(id)?;
        let bytes = self.compiled.problem.values[id.index()].bytes;
        Some(self.arena(offset, bytes).map(|address| (address, bytes)))
    }

    fn outputs(
        &mut self,
        node: &Node,
        posed: &highwater_plan::Node,
        offsets: &[Option<u64>],
    ) -> Result<SmallVec<[Buffer; 2]>> {
        let mut buffers = SmallVec::new();
        for (o, (&value, &id)) in node.outputs.iter().zip(&posed.outputs).enumerate() {
            let absent = || Error::Internal(format!("no room planned for {}", node.op.name()));
            let unplaced = offsets.get(o).is_none_or(Option::is_none);
            let at = |address: DeviceAddress, bytes: u64| Memory::At {
                address: address.as_ptr(),
                bytes: bytes as usize,
                written: true,
            };
            let memory = if let Some(storage) = self.machine.storages.get(&value) {
                at(storage.address(), storage.bytes())
            } else if unplaced && posed.saved(o).is_some() {
                Memory::LeftOut
            } else {
                let offset = self.ran.offsets.get(id).ok_or_else(absent)?;
                let bytes = self.compiled.problem.values[id.index()].bytes;
                at(self.arena(offset, bytes)?, bytes)
            };
            let spec = self.machine.graph.value(value).spec.clone();
            buffers.push(Buffer { memory, spec });
        }
        Ok(buffers)
    }
}

/// Which of the cells that a node writes an operand sees, if it does one.
fn overwritten(node: &Node, input: &Operand) -> Option<usize> {
    let Source::Cell(id, _) = input.source else {
        return None;
    };
    node.writes.iter().position(|&(cell, _)| cell == id)
}
