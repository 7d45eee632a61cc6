//! What of an engine changes: the pending graph, what has run of it, who holds what.

use crate::Result;
use crate::engine::evaluate::KEPT_BYTES;
use crate::error::usage_error;
use crate::problem::clock::Clock;
use crate::problem::compile::{Compiled, Progress};
use crate::problem::plan_cache::PlanCache;
use crate::report::forecast::Steps;
use crate::report::{StepReport, Totals};
use crate::run::execute::Ran;
use crate::store::Storage;
use crate::store::cells::{Cell, Cells};
use crate::store::disk_clock::DiskClock;
use crate::tensor::{Handle, HandleState, Leaf};
use highwater_graph::{Category, CellId, Graph, Operand, Source, ValueId};
use highwater_plan::Plan;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Everything that changes.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) graph: Graph,
    /// Counts the graphs that were evaluated whole: handles of an earlier one are not pending.
    pub(crate) generation: u64,
    pub(crate) progress: Progress,
    /// Storage of the graph's values that have their own.
    pub(crate) storages: BTreeMap<ValueId, Arc<Storage>>,
    /// The bytes of the cells. Kept here too until no pending node can read a dropped one.
    pub(crate) cells: Cells,
    /// Live handles of the pending graph.
    pub(crate) handles: Vec<Weak<Handle>>,
    /// Values given by handles whose history was consumed, or leaves that require gradients.
    pub(crate) leaves: BTreeMap<ValueId, Leaf>,
    /// Parameters with a gradient that is not evaluated yet.
    pub(crate) pending_grads: BTreeMap<CellId, Operand>,
    /// Evaluated gradients: parameter to the cell that holds its gradient.
    pub(crate) grads: BTreeMap<CellId, CellId>,
    /// Cells whose bytes user code has in hand: how many readers, or -1 for a writer.
    pub(crate) borrowed: BTreeMap<CellId, isize>,
    pub(crate) cache: PlanCache,
    pub(crate) clock: Clock,
    pub(crate) disk_clock: DiskClock,
    pub(crate) seed: u64,
    pub(crate) random_offset: u64,
    pub(crate) checkpoints: u32,
    pub(crate) reserve_bytes: u64,
    /// What of the reserve is for the heap that large graphs take.
    pub(crate) reserve_graph_bytes: u64,
    pub(crate) poisoned: Option<String>,
    pub(crate) last: StepReport,
    pub(crate) totals: Totals,
    pub(crate) steps: Steps,
}

impl State {
    /// Refuses to compute while user code has the bytes of a cell in hand that it would read or
    /// write.
    pub(crate) fn check_not_borrowed(
        &self,
        writes: bool,
        location: &'static Location<'static>,
    ) -> Result<()> {
        if self.borrowed.values().all(|&count| count > 0 && !writes) {
            return Ok(());
        }
        let message = "bytes of a parameter are in use by a closure of with_bytes(), \
                       with_bytes_mut() or with_values_mut(): evaluate before or after it";
        Err(usage_error(message, location))
    }

    pub(crate) fn forget(&mut self, dropped: &[CellId]) {
        for id in dropped {
            self.graph.remove_cell(*id);
            self.cells.remove(*id);
            self.pending_grads.remove(id);
            if let Some(grad) = self.grads.remove(id) {
                self.graph.remove_cell(grad);
                self.cells.remove(grad);
            }
        }
    }

    /// The next random stream: nodes made in the same order draw the same numbers.
    pub(crate) fn next_random(&mut self) -> (u64, u64) {
        let offset = self.random_offset;
        self.random_offset += 1;
        (self.seed, offset)
    }

    /// What a whole evaluation must leave behind: pending gradients, and of the live handles those
    /// that are small or marked.
    pub(crate) fn kept_targets(&mut self) -> BTreeSet<ValueId> {
        let mut targets = self.pending_grad_values();
        targets.extend(kept_values(&mut self.handles, &self.graph, self.generation));
        targets
    }

    /// What the gradients and writes that are pending will read.
    pub(crate) fn pending_inputs(&self) -> BTreeSet<ValueId> {
        let mut inputs = self.pending_grad_values();
        for (id, node) in self.graph.nodes().iter().enumerate() {
            if !node.op.effect().is_repeatable() && !self.progress.done.contains(&(id as u32)) {
                inputs.extend(node.inputs.iter().filter_map(value));
            }
        }
        inputs
    }

    /// Takes back the storage that was given to values which are not computed after all.
    pub(crate) fn take_back(&mut self, values: &BTreeSet<ValueId>) {
        for id in values {
            self.storages.remove(id);
        }
    }

    pub(crate) fn pending_grad_values(&self) -> BTreeSet<ValueId> {
        self.pending_grads.values().filter_map(value).collect()
    }

    /// Drops the nodes that no live handle, pending gradient or effect can ever need, so that a
    /// graph that stays pending through many reads stays small. Answers what `root` is now.
    pub(crate) fn compact(&mut self, root: Option<&Operand>) -> Option<Operand> {
        self.handles.retain(|handle| handle.strong_count() > 0);
        let handles: Vec<_> = self.handles.iter().filter_map(Weak::upgrade).collect();
        let mut roots = self.pending_grad_values();
        roots.extend(
            handles
                .iter()
                .filter_map(|handle| handle.pending_value(self.generation)),
        );
        roots.extend(root.and_then(value));
        let done = &self.progress.done;
        // A value that is there, and through which no gradient flows, needs its history no more.
        let (graph, storages) = (&self.graph, &self.storages);
        let ends = |id: ValueId| storages.contains_key(&id) && !graph.value(id).requires_grad;
        let kept = graph.reachable(&roots, |id| !done.contains(&id), ends);
        let (nodes, values) = self.graph.retain(&kept, &roots);
        let new_value = |id: ValueId| values.get(&id).copied();
        self.progress.done = done
            .iter()
            .filter_map(|id| nodes.get(id).copied())
            .collect();
        let residents = std::mem::take(&mut self.progress.residents).into_iter();
        self.progress.residents = residents
            .filter_map(|(id, offset)| Some((new_value(id)?, offset)))
            .collect();
        let storages = std::mem::take(&mut self.storages).into_iter();
        self.storages = storages
            .filter_map(|(id, s)| Some((new_value(id)?, s)))
            .collect();
        let leaves = std::mem::take(&mut self.leaves).into_iter();
        self.leaves = leaves
            .filter_map(|(id, leaf)| Some((new_value(id)?, leaf)))
            .collect();
        let renumber = |operand: &mut Operand| {
            if let Source::Value(id) = operand.source
                && let Some(id) = new_value(id)
            {
                operand.source = Source::Value(id);
            }
        };
        self.pending_grads.values_mut().for_each(renumber);
        for handle in &handles {
            handle.renumber(self.generation, &renumber);
        }
        root.map(|root| {
            let mut root = root.clone();
            renumber(&mut root);
            root
        })
    }

    pub(crate) fn report(
        &mut self,
        plan: &Plan,
        compiled: &Compiled,
        ran: &Ran,
        [started, chosen]: [Instant; 2],
        (state_bytes, host_bytes): (u64, u64),
    ) {
        let runs = compiled.runs(ran);
        let predicted: f64 = runs.map(|(work, _)| self.clock.predicted(work)).sum();
        let predicted_seconds = predicted + compiled.predicted_wait(plan, ran);
        let seconds = started.elapsed().as_secs_f64();
        self.totals.evaluations += 1;
        self.totals.predicted_seconds += predicted_seconds;
        self.totals.seconds += seconds;
        self.totals.io += ran.io;
        self.totals.host_io += ran.host_io;
        self.last = StepReport {
            planned_arena_bytes: plan.arena_bytes,
            peak_arena_bytes: ran.peak_arena_bytes,
            state_bytes,
            reserve_bytes: self.reserve_bytes,
            host_bytes,
            planned_process_bytes: plan.arena_bytes + state_bytes + host_bytes + self.reserve_bytes,
            predicted_seconds,
            seconds,
            compile_seconds: compiled.seconds,
            choose_seconds: chosen.duration_since(started).as_secs_f64(),
            node_seconds: ran.seconds.iter().sum(),
            recomputed_nodes: plan.recomputed_nodes,
            recompute_seconds: ran.recompute_seconds,
            nodes: ran.nodes.len() as u32,
            io: ran.io,
            host_io: ran.host_io,
        };
    }

    /// Notes what ran and what it left in the arena, as far as it belongs to the pending graph.
    pub(crate) fn advance(&mut self, compiled: &Compiled, ran: &Ran) {
        let nodes = self.graph.nodes().len() as u32;
        let values = self.graph.values().len() as ValueId;
        let ran_nodes = ran.nodes.iter().map(|&node| compiled.nodes[node as usize]);
        self.progress
            .done
            .extend(ran_nodes.filter(|&node| node < nodes));
        self.progress.residents = ran
            .present()
            .filter_map(|(value, offset)| Some((compiled.value(value)?, offset)))
            .filter(|(value, _)| *value < values && !self.storages.contains_key(value))
            .collect();
    }

    /// Where the highest value ends that the next plan will find in the arena.
    pub(crate) fn residents_end(&self) -> u64 {
        let ends = self.progress.residents.iter();
        ends.map(|(&id, &offset)| offset + self.graph.value(id).spec.bytes())
            .max()
            .unwrap_or(0)
    }

    /// Forgets what earlier plans of the step left in the arena, and that nodes ran whose results are gone; answers whether
    /// there was anything to forget.
    pub(crate) fn give_up_residents(&mut self) -> bool {
        let before = (self.progress.residents.len(), self.progress.done.len());
        self.progress.residents.clear();
        let (graph, storages) = (&self.graph, &self.storages);
        self.progress.done.retain(|&id| {
            let node = graph.node(id);
            let repeatable = node.op.effect().is_repeatable();
            !repeatable
                || node
                    .outputs
                    .iter()
                    .all(|output| storages.contains_key(output))
        });
        before != (0, self.progress.done.len())
    }

    /// Evaluated gradients become cells, so that later backward passes can add to them in place.
    pub(crate) fn adopt_grads(&mut self) {
        for (parameter, grad) in std::mem::take(&mut self.pending_grads) {
            let Source::Value(id) = grad.source else {
                continue;
            };
            let Some(storage) = self.storages.get(&id).cloned() else {
                continue;
            };
            let name = self.grad_name(parameter);
            let cell = self
                .graph
                .add_cell(&name, grad.spec, Category::Gradient, false);
            let bytes = Cell::in_memory(storage, Category::Gradient);
            self.cells.insert(cell, bytes);
            self.grads.insert(parameter, cell);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.graph.clear();
        self.progress = Progress::default();
        self.storages.clear();
        self.leaves.clear();
        self.generation += 1;
    }

    /// A handle that is to be settled when the graph is evaluated.
    pub(crate) fn register(&mut self, handle: &Arc<Handle>) {
        self.handles.push(Arc::downgrade(handle));
    }
}

/// Pending values of live handles that are small or marked.
pub(crate) fn kept_values(
    handles: &mut Vec<Weak<Handle>>,
    graph: &Graph,
    current: u64,
) -> Vec<ValueId> {
    handles.retain(|handle| handle.strong_count() > 0);
    let kept = |handle: Arc<Handle>| match &*handle.state() {
        HandleState::Pending {
            generation,
            operand,
        } if *generation == current => value(operand)
            .filter(|&id| handle.is_kept() || graph.value(id).spec.bytes() <= KEPT_BYTES),
        _ => None,
    };
    handles
        .iter()
        .filter_map(Weak::upgrade)
        .filter_map(kept)
        .collect()
}

pub(crate) fn value(operand: &Operand) -> Option<ValueId> {
    match operand.source {
        Source::Value(id) => Some(id),
        Source::Cell(..) => None,
    }
}
