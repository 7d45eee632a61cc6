//! The transfers of a plan, each lane on a thread of its own beside the kernels.
//!
//! A lane works through its instructions in list order, and starts one when all that it waits for has
//! completed. Who waits looks at one board, where every instruction is ticked off. When anything fails,
//! or the kernels stop before the end of the list, the board says so: nobody starts anything any more,
//! and who waits goes home. When [`beside`] returns, no transfer is under way.

#![expect(unsafe_code, reason = "transfers go straight to and from the arena")]

use crate::problem::compiled::Compiled;
use crate::problem::offsets::Offsets;
use crate::run::areas::{Areas, Copy, absent, no_tier};
use crate::run::board::{Board, Ended, Moved};
use crate::run::machine::Machine;
use crate::store::cells::{CellBytes, failed};
use crate::{Error, Result};
use highwater_graph::CellId;
use highwater_memory::DeviceAddress;
use highwater_memory::spill::SpillError;
use highwater_plan::{Action, Lane, Plan, Tier, ValueId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// The lanes of transfers, and what their threads are called.
const LANES: [(Lane, &str); 4] = [
    (Lane::HostToDevice, "fetch"),
    (Lane::DeviceToHost, "evict"),
    (Lane::Read, "reads"),
    (Lane::Write, "writes"),
];

/// One copy of one value to or from a tier.
struct Transfer<'a> {
    moved: Moved,
    memory: Stretch,
    stored: Stored<'a>,
}

/// Bytes of the arena.
#[derive(Clone, Copy)]
struct Stretch {
    address: DeviceAddress,
    bytes: usize,
}

// SAFETY: an address of the plan arena, which is mapped for as long as the plan runs. The verified plan
// orders who reads and writes there, whatever the thread.
unsafe impl Send for Stretch {}
// SAFETY: as above.
unsafe impl Sync for Stretch {}

impl Stretch {
    fn of(machine: &Machine<'_>, offset: u64, bytes: u64) -> Result<Self> {
        Ok(Self {
            address: machine.store.plans().address(offset, bytes)?,
            bytes: bytes as usize,
        })
    }

    /// The bytes, to write them below memory.
    fn bytes(&self) -> &[u8] {
        // SAFETY: the arena answered the address for that many bytes, which are zeros or what was
        // computed. The verified plan lets nobody write there until the transfer has completed.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.bytes) }
    }

    /// The bytes, to fill them from below memory.
    #[expect(clippy::mut_from_ref, reason = "the plan is the borrow")]
    fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: as above, and nobody reads there either.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.bytes) }
    }
}

/// Where bytes are below memory.
enum Stored<'a> {
    Cell(CellId, &'a CellBytes),
    Spilled(Copy),
}

/// All that a plan moves.
pub(crate) struct Transfers<'a> {
    machine: &'a Machine<'a>,
    compiled: &'a Compiled,
    plan: &'a Plan,
    /// In the order of [`LANES`].
    lanes: [Vec<Transfer<'a>>; 4],
    /// Held until the plan is over.
    areas: Areas,
}

impl<'a> Transfers<'a> {
    /// Those of a plan, with their addresses; none, if it moves nothing.
    pub(crate) fn of(
        machine: &'a Machine<'a>,
        compiled: &'a Compiled,
        plan: &'a Plan,
    ) -> Result<Option<Self>> {
        let moves = |action: &Action| matches!(action, Action::Fetch { .. } | Action::Evict { .. });
        if machine.dry || !plan.instructions.iter().any(|i| moves(&i.action)) {
            return Ok(None);
        }
        let mut transfers = Self {
            machine,
            compiled,
            plan,
            lanes: [const { Vec::new() }; 4],
            areas: Areas::of(machine, compiled, plan)?,
        };
        let mut offsets = Offsets::start(compiled);
        for (index, instruction) in (0..).zip(&plan.instructions) {
            let action = &instruction.action;
            let (&value, tier, fetch, place) = match action {
                Action::Fetch { value, tier, .. } => (value, *tier, true, None),
                Action::Evict { value, tier, place } => (value, *tier, false, *place),
                other => {
                    offsets.apply(compiled, other);
                    continue;
                }
            };
            // A fetch says where it goes, an evict leaves from where it is.
            let before = offsets.get(value);
            offsets.apply(compiled, action);
            let offset = if fetch { offsets.get(value) } else { before };
            let moved = Moved {
                index,
                value,
                tier,
                fetch,
            };
            let transfer = transfers.transfer(moved, offset.ok_or_else(absent)?, place)?;
            let lane = LANES.iter().position(|lane| lane.0 == instruction.lane);
            transfers.lanes[lane.ok_or_else(no_tier)?].push(transfer);
        }
        Ok(Some(transfers))
    }

    /// The transfer of a value between an offset of the arena and its cell's home, or a `place` in the area
    /// for values that are no cells.
    fn transfer(&mut self, moved: Moved, offset: u64, place: Option<u64>) -> Result<Transfer<'a>> {
        let Moved { value, tier, .. } = moved;
        let bytes = self.compiled.problem.values[value.index()].bytes;
        let memory = Stretch::of(self.machine, offset, bytes)?;
        let stored = match self.compiled.cell(value) {
            Some(id) => {
                let cell = self.machine.cells.get(id).ok_or_else(absent)?;
                if cell.home() != Some(tier) {
                    return Err(no_tier());
                }
                Stored::Cell(id, cell)
            }
            None if moved.fetch => Stored::Spilled(self.areas.last_copy(tier, value)?),
            None => Stored::Spilled(self.areas.copy(moved, place.ok_or_else(absent)?, bytes)?),
        };
        Ok(Transfer {
            moved,
            memory,
            stored,
        })
    }

    /// Works through one lane until its end, or until the board is stopped.
    fn lane(&self, board: &Board, lane: &[Transfer<'_>]) {
        for transfer in lane {
            let waits = &self.plan.instructions[transfer.moved.index as usize].waits;
            if !board.wait(waits).0 {
                return;
            }
            let started = Instant::now();
            let moved = catch_unwind(AssertUnwindSafe(|| self.carry_out(transfer)));
            let moved =
                moved.unwrap_or_else(|_| Err(Error::Internal("a transfer panicked".into())));
            match moved {
                Ok(bytes) => board.moved(transfer.moved, bytes, started.elapsed().as_secs_f64()),
                Err(error) => return board.stop(Some(error)),
            }
        }
    }

    /// Answers how many bytes were really moved.
    fn carry_out(&self, transfer: &Transfer<'_>) -> Result<u64> {
        let memory = transfer.memory;
        let all = |done: Result<(), SpillError>| done.map(|()| memory.bytes as u64);
        let moved = match (&transfer.stored, transfer.moved.fetch) {
            (Stored::Cell(id, cell), true) => cell.read(*id, memory.bytes_mut()),
            (Stored::Cell(id, cell), false) => cell.write(*id, memory.bytes()),
            (Stored::Spilled(copy), true) => {
                all(copy.below.read(copy.extent, copy.tag, memory.bytes_mut()))
            }
            (Stored::Spilled(copy), false) => {
                all(copy.below.write(copy.extent, copy.tag, memory.bytes()))
            }
        };
        moved.map_err(|source| self.failed(transfer.moved.value, source))
    }

    fn failed(&self, value: ValueId, source: SpillError) -> Error {
        let graph = self.machine.graph;
        if let Some(id) = self.compiled.cell(value) {
            return failed(graph, id, source);
        }
        let made = self.compiled.value(value);
        let made = made.and_then(|id| graph.value(id).producer);
        let made = made.map(|(node, _)| crate::error::describe(graph.node(node)));
        let made = made.unwrap_or_else(|| "a user's input".to_owned());
        Error::Disk {
            what: format!("a value of {made}"),
            source,
        }
    }

    /// Writes home the cells that were rewritten and are still in the arena.
    fn go_home(&self, board: &Board) -> Option<Error> {
        let mut first = None;
        for (value, offset) in board.take_rewritten() {
            match self.write_home(value, offset) {
                Ok((tier, bytes)) => board.went_home(tier, bytes),
                Err(error) => first = first.or(Some(error)),
            }
        }
        first
    }

    /// Answers how many bytes were written, and where to.
    fn write_home(&self, value: ValueId, offset: u64) -> Result<(Tier, u64)> {
        let gone = || Error::Internal("a cell that was rewritten is gone".into());
        let id = self.compiled.cell(value).ok_or_else(gone)?;
        let cell = self.machine.cells.get(id).ok_or_else(gone)?;
        let tier = cell.home().ok_or_else(gone)?;
        let memory = Stretch::of(self.machine, offset, cell.bytes())?;
        let written = cell.write(id, memory.bytes()).map(|bytes| (tier, bytes));
        written.map_err(|source| failed(self.machine.graph, id, source))
    }
}

/// Sends the lanes home if the thread that they serve panics.
struct StopIfUnwinding<'a>(&'a Board);

impl Drop for StopIfUnwinding<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(None);
        }
    }
}

/// Runs `compute` beside the lanes of a plan, and waits for both. `compute` says when it completed what,
/// and stops the board if it does not come to the end of the list.
pub(crate) fn beside<R>(
    transfers: &Transfers<'_>,
    compute: impl FnOnce(&Board) -> R,
) -> Result<(R, Ended)> {
    let board = Board::new(transfers.plan);
    let result = std::thread::scope(|scope| {
        let lanes = LANES.iter().zip(&transfers.lanes);
        for ((_, name), lane) in lanes.filter(|(_, lane)| !lane.is_empty()) {
            let named = std::thread::Builder::new().name(format!("highwater-{name}"));
            let board = &board;
            let admitted = transfers.machine.system.admit_thread();
            let started = admitted
                .and_then(|()| named.spawn_scoped(scope, move || transfers.lane(board, lane)));
            if let Err(error) = started {
                board.stop(None);
                return Err(Error::Build(format!("no thread for transfers: {error}")));
            }
        }
        let _unwinding = StopIfUnwinding(&board);
        let result = compute(&board);
        Ok((result, Instant::now()))
    });
    let (result, computed) = result?;
    let error = transfers.go_home(&board);
    Ok((result, board.end(computed, error)))
}
