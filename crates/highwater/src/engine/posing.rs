//! A problem posed of the pending graph, and put to the planner.
//!
//! With tiers below memory, a problem also says whether its plan decides where cells are. The first training
//! step is posed with all homes open, and its plan says which cells are in memory between steps, and on which
//! tier the others. That is *decided* then: cells move before it runs, and other problems (reads, evaluations,
//! other lengths) are posed with cells where they are. Only if one of those would be refused, its homes are
//! open too, and the cells that it uses move.

use crate::engine::Engine;
use crate::engine::state::State;
use crate::problem::compile::compile;
use crate::problem::compiled::Compiled;
use crate::problem::plan_cache::{About, Answer};
use crate::problem::posed::Posed;
use crate::report::told::Told;
use crate::store::tiers::Below;
use crate::{Error, Result};
use highwater_graph::{CellId, Graph, ValueId};
use highwater_plan::{BLOCK, Home, Plan, Tier, footprint_on};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Planning that takes so long is logged.
const SLOW: Duration = Duration::from_secs(2);

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
        let started = Instant::now();
        let answer = state
            .planning
            .cache
            .choose(&compiled.problem, self.0.policy, budget, || {
                self.0.store.release_idle();
            });
        note_slow_planning(started.elapsed(), compiled.problem.nodes.len());
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
}

/// Says that planning took long.
fn note_slow_planning(took: Duration, nodes: usize) {
    if took >= SLOW {
        let seconds = took.as_secs_f64();
        log::info!(
            "planned a step of {nodes} operations in {seconds:.1} s; the plan is kept for the next ones"
        );
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
