//! Where cells are between plans, with tiers below memory, and when they move: `posing.rs` says who decides.

use crate::Result;
use crate::engine::Engine;
use crate::engine::state::State;
use crate::problem::compiled::Compiled;
use crate::problem::ran::Ran;
use crate::store::cells::MOVABLE_BYTES;
use crate::store::disk::DiskRates;
use highwater_graph::CellId;
use highwater_plan::Plan;

impl Engine {
    /// Moves cells to where a plan wants them.
    pub(crate) fn bring_home(
        &self,
        state: &mut State,
        compiled: &Compiled,
        plan: &Plan,
        trains: bool,
    ) -> Result<()> {
        if !self.0.tiers.any() {
            return Ok(());
        }
        // What earlier plans of the step left above this plan's arena makes room.
        let store = &self.0.store;
        store.keep_below(store.kept().min(plan.arena_bytes));
        let (cells, graph) = state.cells();
        let mut moved = if plan.homes.is_empty() {
            Ok(())
        } else {
            cells.bring_home(store, graph, &compiled.homes(plan), trains)
        };
        for below in self.0.tiers.all() {
            let bytes = plan.traffic(below.tier()).spill_bytes;
            moved = moved.and_then(|()| cells.clear_area(graph, below.tier(), bytes));
        }
        if moved.is_err() {
            self.give_up_residents(state);
        }
        moved
    }

    /// Holds what transfers took against what was predicted; where that was wrong, cells may move again.
    pub(crate) fn correct_disk(
        &self,
        state: &mut State,
        compiled: &Compiled,
        plan: &Plan,
        ran: &Ran,
    ) {
        let Some(disk) = self
            .0
            .tiers
            .disk
            .as_ref()
            .filter(|_| state.planning.clock.corrects())
        else {
            return;
        };
        if plan.disk.read_bytes + plan.disk.written_bytes == 0 {
            return;
        }
        let predicted = highwater_plan::timeline(&compiled.problem, plan);
        if let Some(rates) = state
            .planning
            .disk_clock
            .note(&predicted, &ran.io, disk.rates())
        {
            disk.set_rates(rates);
            state.memory.cells.reopen_homes();
        }
    }

    /// Has plans be made by the rates that the disk was said to have at first, from now on. Answers whether
    /// that is new.
    pub(crate) fn forget_disk_rates(&self, state: &mut State) -> bool {
        let disk = self.0.tiers.disk.as_ref();
        let is_new = disk.is_some_and(|disk| disk.forget_rates());
        if is_new {
            state.planning.disk_clock.stop();
            state.memory.cells.reopen_homes();
        }
        is_new
    }

    /// What the disk is taken to move now: as given, corrected by what was seen where
    /// [`Builder::correct_times`](crate::Builder::correct_times) asks for that. None without a disk.
    pub fn disk_rates(&self) -> Option<DiskRates> {
        self.0.tiers.spill().map(|disk| disk.rates())
    }

    /// Moves a cell below memory that is in memory and not needed. Answers whether there was one.
    pub(crate) fn make_room(
        &self,
        state: &mut State,
        bytes: u64,
        is_needed: impl Fn(CellId) -> bool,
    ) -> Result<bool> {
        let (cells, graph) = state.cells();
        Ok(self.0.tiers.any() && cells.make_room(graph, bytes, is_needed)?)
    }

    /// Whether a cell of so many bytes may be below memory.
    pub(crate) fn is_movable(&self, bytes: u64) -> bool {
        self.0.tiers.any() && bytes >= MOVABLE_BYTES
    }

    /// Whether cells that may move would take over half of the budget with so many bytes more: the other
    /// half is for plans.
    pub(crate) fn is_crowded_by(&self, bytes: u64) -> bool {
        let store = &self.0.store;
        store.room_bytes() + store.room_cost(bytes) > store.budget() / 2
    }
}
