//! With tiers below memory: who decides where cells are, and when they move.
//!
//! The first training step is posed with all homes open, and its plan says which cells are in memory
//! between steps, and on which tier the others. That is *decided* then: cells move before it runs, and other
//! problems (reads, evaluations, other lengths) are posed with cells where they are. Only if one of those
//! would be refused, its homes are open too, and the cells that it uses move.

use crate::engine::Engine;
use crate::engine::lent::Fill;
use crate::engine::state::State;
use crate::problem::compile::{Compiled, Posed, Rounding, compile};
use crate::problem::plan_cache::{About, Answer};
use crate::problem::ran::Ran;
use crate::report::told::Told;
use crate::store::Storage;
use crate::store::cells::{CellBytes, MOVABLE_BYTES};
use crate::store::disk::DiskRates;
use crate::store::tiers::Below;
use crate::{Error, Result};
use highwater_graph::{Category, CellId, Graph, Spec, ValueId};
use highwater_memory::FilePart;
use highwater_plan::{BLOCK, Home, Plan, Tier, footprint_on};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is to be computed, for a problem to be posed of it.
pub(crate) struct Question<'a> {
    /// An extended graph instead of the pending one.
    pub(crate) graph: Option<&'a Graph>,
    pub(crate) targets: &'a [ValueId],
    /// Values that must be there when the plan ends.
    pub(crate) wanted: &'a BTreeSet<ValueId>,
    pub(crate) effects: bool,
    /// Whether it is a whole training step.
    pub(crate) trains: bool,
}

/// Whether a problem leaves open where cells are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Homes {
    /// The plan decides.
    Open,
    /// The plan decides, but for what files have: that stays there.
    OpenBesideFiles,
    /// Cells stay where they are.
    Fixed,
}

impl Engine {
    /// Poses a problem and asks the planner.
    pub(crate) fn pose(
        &self,
        state: &mut State,
        question: &Question<'_>,
    ) -> (Compiled, Result<Answer<Told>>) {
        if !self.0.tiers.any() {
            return self.pose_with(state, question, Homes::Fixed);
        }
        // What files have is no more than read: as long as nothing trains, each plan has it where it wants.
        let is_open = question.trains || self.0.tiers.are_files_alone();
        if is_open && !state.memory.cells.homes_are_decided() {
            return self.pose_open(state, question);
        }
        if question.trains
            && let Some((compiled, answer)) = self.pose_as_decided(state, question)
        {
            return (compiled, Ok(answer));
        }
        let fixed = self.compile(state, question, Homes::Fixed);
        let budget = self.budget_for(state, &fixed);
        // Finding out again takes as long as planning anew.
        if !state.planning.cache.was_refused(&fixed.problem, budget) {
            let answer = self.ask(state, &fixed, budget);
            if !matches!(answer, Ok(Answer::Refused(_))) {
                return (fixed, answer);
            }
            state.planning.cache.note_refused(&fixed.problem, budget);
        }
        self.pose_open(state, question)
    }

    fn pose_open(
        &self,
        state: &mut State,
        question: &Question<'_>,
    ) -> (Compiled, Result<Answer<Told>>) {
        let posed = self.pose_with(state, question, Homes::Open);
        // Beside a disk what files have counts as if it took room there, of which there may be too little.
        let is_refused = matches!(posed.1, Ok(Answer::Refused(_)));
        let is_too_little = is_refused && self.0.tiers.spill().is_some() && {
            let cells = posed.0.cells().filter_map(|id| state.memory.cells.get(id));
            let of_files = cells.filter(|cell| cell.is_in_file());
            let counted = of_files.map(|cell| footprint_on(Tier::Disk, cell.bytes()));
            let room = posed.0.problem.tiers.disk.map_or(0, |link| link.bytes);
            counted.sum::<u64>() > room
        };
        if is_too_little && state.memory.cells.leave_all() {
            return self.pose_with(state, question, Homes::OpenBesideFiles);
        }
        posed
    }

    fn pose_with(
        &self,
        state: &mut State,
        question: &Question<'_>,
        homes: Homes,
    ) -> (Compiled, Result<Answer<Told>>) {
        let compiled = self.compile(state, question, homes);
        let budget = self.budget_for(state, &compiled);
        let answer = self.ask(state, &compiled, budget);
        (compiled, answer)
    }

    /// Asks the planner.
    fn ask(&self, state: &mut State, compiled: &Compiled, budget: u64) -> Result<Answer<Told>> {
        // The arena's idle pages go first where a plan has to be made: they and the planner's memory
        // need not be there at once.
        let answer = state
            .planning
            .cache
            .choose(&compiled.problem, self.0.policy, budget, || {
                self.0.store.release_idle();
            });
        answer.map_err(|error| Error::Internal(error.to_string()))
    }

    /// The plan that decided where cells are, if it was of this problem.
    fn pose_as_decided(
        &self,
        state: &mut State,
        question: &Question<'_>,
    ) -> Option<(Compiled, Answer<Told>)> {
        let compiled = self.compile(state, question, Homes::Open);
        let budget = self.budget_for(state, &compiled);
        let cells = &state.memory.cells;
        let at_home = |plan: &Plan| cells.are_at(compiled.homes(plan));
        let cache = &mut state.planning.cache;
        let (plan, told) = cache.known(&compiled.problem, self.0.policy, budget, at_home)?;
        Some((compiled, Answer::Fits(plan, About::Told(told))))
    }

    fn compile(&self, state: &State, question: &Question<'_>, homes: Homes) -> Compiled {
        let graph = question.graph.unwrap_or(&state.pending.graph);
        // What is written cannot stay where plans may not write to.
        let closed = (self.0.tiers.disk.as_ref()).filter(|disk| !disk.link(0).writable);
        let nodes = closed.into_iter().flat_map(|_| graph.nodes());
        let written: BTreeSet<CellId> = nodes
            .flat_map(|node| node.writes.iter().map(|write| write.0))
            .collect();
        let files_alone = self.0.tiers.are_files_alone();
        let home = |id: CellId| {
            let cell = state.memory.cells.get(id)?;
            let may_go = !files_alone || cell.is_in_file();
            match (homes, cell.home()) {
                (Homes::OpenBesideFiles, home @ Some(Tier::Disk)) if cell.is_in_file() => {
                    Some(Home::Cell(home))
                }
                (Homes::Open | Homes::OpenBesideFiles, _) if may_go && cell.is_movable() => {
                    Some(Home::Cell(None))
                }
                (_, Some(Tier::Disk)) if written.contains(&id) => Some(Home::Cell(None)),
                (_, home) => home.map(|tier| Home::Cell(Some(tier))),
            }
        };
        let none = |_| None;
        let tiers = &self.0.tiers;
        let posed = Posed {
            graph,
            progress: &state.pending.progress,
            external: &|id| {
                state.memory.storages.contains_key(&id) || graph.value(id).producer.is_none()
            },
            wanted: question.wanted,
            homes: if tiers.any() { &home } else { &none },
            tiers: &|cells| tiers.links(|below| state.room_on(below, cells, homes)),
            threads: self.threads(),
            clock: &state.planning.clock,
            kernels: &self.0.kernels,
            fuses: state.planning.fuses,
        };
        compile(&posed, question.targets.iter().copied(), question.effects)
    }

    /// Reserves what the process takes for a problem itself; answers what a plan of it may take.
    fn budget_for(&self, state: &mut State, compiled: &Compiled) -> u64 {
        self.reserve_for(state, compiled.stands_for);
        self.plan_budget(state, compiled)
    }

    /// What a plan of a problem may take: what is left beside state, and what cells take that it may
    /// move.
    pub(crate) fn plan_budget(&self, state: &State, compiled: &Compiled) -> u64 {
        let left = self.0.store.budget();
        let left = left.saturating_sub(self.beside(state, compiled));
        self.rounding(compiled).usable(left)
    }

    /// The least that such a budget has to be for a plan of so many bytes.
    pub(crate) fn least_budget(&self, compiled: &Compiled, plan_bytes: u64) -> u64 {
        self.rounding(compiled).least_budget(plan_bytes)
    }

    /// What the cells that a plan decides about take in memory at most beside what it counts.
    pub(crate) fn rounding(&self, compiled: &Compiled) -> Rounding {
        let (store, problem) = (&self.0.store, &compiled.problem);
        if !self.0.tiers.any() {
            return Rounding::default();
        }
        compiled.rounding(
            |bytes| store.room_cost(bytes),
            |bytes| problem.footprint(bytes),
        )
    }

    /// What state takes beside the plan of a problem: cells that the plan decides about belong to it.
    pub(crate) fn beside(&self, state: &State, compiled: &Compiled) -> u64 {
        let store = &self.0.store;
        let posed = state.memory.cells.memory_bytes(store, compiled.cells());
        store.state_bytes().saturating_sub(posed)
    }

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

    /// Makes a cell of bytes that `fill` gives; of zeros without it. Cells that may move go below
    /// memory once they take half of the budget, as long as there is room.
    pub(crate) fn add_cell(
        &self,
        name: &str,
        spec: Spec,
        category: Category,
        requires_grad: bool,
        fill: Option<Fill<'_>>,
    ) -> Result<CellId> {
        let bytes = spec.bytes();
        let movable = self.is_movable(bytes);
        if movable && fill.is_none() {
            let mut state = self.lock();
            let id = if self.0.tiers.files && category == Category::Parameter {
                // A file is to have them.
                let id = state.pending.graph.add_cell(name, spec, category, false);
                state.memory.cells.insert(id, CellBytes::nowhere(bytes));
                id
            } else {
                self.add_movable_zeros(&mut state, name, spec, category)?
            };
            if let Some(cell) = state.pending.graph.cell_mut(id) {
                cell.requires_grad = requires_grad;
            }
            return Ok(id);
        }
        let crowded = movable && self.is_crowded_by(bytes);
        let what = crate::engine::what(category);
        let mut storage = self.alloc_cell(name, bytes, what, movable)?;
        if let Some(fill) = fill
            && !self.0.dry
        {
            fill(storage.bytes_mut());
        }
        let mut state = self.lock();
        let id = state
            .pending
            .graph
            .add_cell(name, spec, category, requires_grad);
        state
            .memory
            .cells
            .insert(id, CellBytes::in_memory(Arc::new(storage)));
        if crowded {
            let (cells, graph) = state.cells();
            match cells.move_below(graph, id) {
                Err(error) if !error.is_full() => {
                    state.forget(&[id]);
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(id)
    }

    /// Makes a cell of zeros that may move: moments, gradients. Below memory nothing is written for it, and
    /// it is there without ever having been in memory.
    pub(crate) fn add_movable_zeros(
        &self,
        state: &mut State,
        name: &str,
        spec: Spec,
        category: Category,
    ) -> Result<CellId> {
        let bytes = spec.bytes();
        let what = crate::engine::what(category);
        let in_memory = || {
            let storage = self.0.store.alloc_room(bytes, what)?;
            Ok(CellBytes::in_memory(Arc::new(storage)))
        };
        let (cells, graph) = state.cells();
        let mut below = || {
            let place = cells.take(graph, bytes, name)?;
            Ok(CellBytes::zeros(bytes, place))
        };
        let is_full = |error: &Error| error.is_full();
        let found = if self.0.tiers.are_files_alone() {
            in_memory()
        } else if self.is_crowded_by(bytes) {
            below().or_else(|full| in_memory().map_err(|e| if is_full(&e) { full } else { e }))
        } else {
            in_memory().or_else(|e| if is_full(&e) { below() } else { Err(e) })
        };
        let cell = match found {
            // What files have makes room for what nothing else has.
            Err(full) if full.is_full() && self.0.tiers.files => self
                .with_room(state, |_| in_memory())
                .map_err(|_: Error| full),
            found => found,
        }?;
        let id = state.pending.graph.add_cell(name, spec, category, false);
        state.memory.cells.insert(id, cell);
        Ok(id)
    }

    /// Says that a part of a file has the bytes of a cell. They are read, into memory if half of the budget has room
    /// for them: the next plan says where they belong.
    pub(crate) fn attach(&self, state: &mut State, id: CellId, part: FilePart) -> Result<()> {
        let (cells, graph) = state.cells();
        let in_memory = !self.is_crowded_by(part.bytes());
        cells.attach(&self.0.store, graph, (id, part), in_memory)
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
    fn is_crowded_by(&self, bytes: u64) -> bool {
        let store = &self.0.store;
        store.room_bytes() + store.room_cost(bytes) > store.budget() / 2
    }

    /// Storage for a value that is a cell afterwards.
    fn alloc_cell(
        &self,
        name: &str,
        bytes: u64,
        what: &'static str,
        movable: bool,
    ) -> Result<Storage> {
        if !movable {
            return self.alloc_by(|| self.0.store.alloc(bytes, what));
        }
        let given = self.alloc_by(|| self.0.store.alloc_room(bytes, what));
        given.map_err(|error| match self.0.tiers.take(bytes, name) {
            // Others would have made room in memory, had there been any below.
            Err(full) if error.is_full() && !self.0.tiers.are_files_alone() => full,
            _ => error,
        })
    }
}

impl State {
    /// What plans may put on a tier, if these cells are theirs to place, or are there.
    fn room_on(&self, below: &dyn Below, cells: &BTreeSet<CellId>, homes: Homes) -> u64 {
        let tier = below.tier();
        let others = self.memory.cells.others_on(tier, |id| cells.contains(&id));
        let left = below.usage().room_bytes.saturating_sub(others);
        let (mut rounding, mut there, mut of_files) = (0, 0, 0);
        for cell in cells.iter().filter_map(|&id| self.memory.cells.get(id)) {
            // Beside a disk plans count whole blocks, on host memory too.
            let bytes = match &self.memory.cells.tiers().disk {
                Some(_) => cell.bytes().next_multiple_of(BLOCK),
                None => cell.bytes(),
            };
            let counted = footprint_on(tier, bytes);
            let is_there = cell.home() == Some(tier);
            if tier == Tier::Disk && cell.needs_no_extent() {
                // Plans count what files have as if it took room: that is theirs where it is certain.
                if is_there && homes != Homes::Open || self.memory.cells.tiers().are_files_alone() {
                    of_files += counted;
                }
                continue;
            }
            if is_there || homes != Homes::Fixed {
                rounding += below.cost(cell.bytes()).saturating_sub(counted);
            }
            if is_there && homes == Homes::Fixed {
                there += counted;
            }
        }
        // Plans count bytes, places may be whole pages: of cells, and of the area for values.
        let area = if tier == Tier::Host { below.cost(1) } else { 0 };
        let left = left.saturating_sub(rounding + area).max(there);
        left + of_files
    }
}
