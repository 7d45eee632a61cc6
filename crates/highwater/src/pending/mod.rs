//! The pending graph: what is to be computed, how far it is, and who waits for it.

mod beside;
pub(crate) mod casts;
pub(crate) mod context;
pub(crate) mod function;
pub(crate) mod handle;
pub(crate) mod hooks;
mod join;
pub(crate) mod recording;

use crate::store::memory::Storages;
use handle::{Handle, HandleState, Leaf};
use highwater_graph::{
    Category, CellId, Graph, Location, Node, NodeId, Operand, Source, ValueId, Version,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

/// Values of at most this many bytes outlive a step if somebody holds their handle.
pub(crate) const KEPT_BYTES: u64 = 64 << 10;

/// How far the pending graph has been computed.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Nodes that ran.
    pub(crate) done: BTreeSet<NodeId>,
    /// Values left in the plan arena by an earlier plan of the step, with their offsets.
    pub(crate) residents: BTreeMap<ValueId, u64>,
}

/// What users have asked for and nothing has computed yet.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) graph: Graph,
    /// The number of the graph: handles of one that has ended are not pending.
    pub(crate) generation: u64,
    pub(crate) progress: Progress,
    /// Live handles of the graph.
    pub(crate) handles: Vec<Weak<Handle>>,
    /// Values given by handles whose history was consumed, or leaves that require gradients.
    pub(crate) leaves: BTreeMap<ValueId, Leaf>,
    /// What users do with gradients on their way.
    pub(crate) hooks: hooks::Hooks,
    /// How often values were numbered anew.
    pub(crate) renumbered: u64,
    /// Casts that autocast made.
    pub(crate) casts: casts::Casts,
    /// Parameters with a gradient that is not evaluated yet.
    pub(crate) grads: BTreeMap<CellId, Operand>,
    /// What a guard found, because of which the updates to come are left out.
    pub(crate) skip: Option<&'static str>,
}

impl Pending {
    /// Whether nothing was recorded that anybody could come back to.
    pub(crate) fn is_empty(&self) -> bool {
        self.graph.values().is_empty()
            && self.graph.nodes().is_empty()
            && self.grads.is_empty()
            && self.handles.is_empty()
            && self.skip.is_none()
    }

    /// Whether a handle waits for the graph.
    pub(crate) fn is_waited_for(&mut self) -> bool {
        let is_dead = |handle: &Weak<Handle>| handle.strong_count() == 0;
        while self.handles.last().is_some_and(is_dead) {
            self.handles.pop();
        }
        // The newest first: most likely it is the one that waits.
        let mut handles = self.handles.iter().rev().filter_map(Weak::upgrade);
        handles.any(|handle| handle.waits(self.generation))
    }

    /// Whether nobody can want anything of the graph any more: no handle waits for it, no gradient is
    /// pending, and nothing of it that has not run writes a cell, or guards a step of gradients that are
    /// there. What concerns `dropped` cells alone does not count.
    pub(crate) fn is_forsaken(
        &mut self,
        are_grads_there: bool,
        dropped: &BTreeSet<CellId>,
    ) -> bool {
        let mut grads = self.grads.keys();
        if self.graph.values().is_empty()
            || grads.any(|id| !dropped.contains(id))
            || self.skip.is_some()
        {
            return false;
        }
        if self.is_waited_for() {
            return false;
        }
        let matters = |node: &Node| {
            let mut writes = node.writes.iter();
            writes.any(|(id, _)| !dropped.contains(id))
                || are_grads_there && !node.traits.effect.is_repeatable() && node.writes.is_empty()
        };
        let mut nodes = self.graph.numbered();
        !nodes.any(|(id, node)| matters(node) && !self.progress.done.contains(&id))
    }

    /// Whether a node that has not run reads what was overwritten.
    pub(crate) fn is_stale(&self) -> bool {
        let mut nodes = self.graph.numbered();
        nodes.any(|(id, node)| {
            let mut inputs = node.inputs.iter();
            let is_old = |input: &Operand| match input.source {
                Source::Cell(id, version) => version < self.graph.evaluated(id),
                Source::Value(_) => false,
            };
            !self.progress.done.contains(&id) && inputs.any(is_old)
        })
    }

    /// Whether a node that writes or guards has not run.
    pub(crate) fn has_effects_left(&self) -> bool {
        let mut nodes = self.graph.numbered();
        nodes.any(|(id, node)| {
            !node.traits.effect.is_repeatable() && !self.progress.done.contains(&id)
        })
    }

    /// A handle that is to be resolved when the graph is evaluated.
    pub(crate) fn register(&mut self, handle: &Arc<Handle>) {
        self.handles.push(Arc::downgrade(handle));
    }

    /// Pending values of live handles that are small or marked.
    pub(crate) fn kept_values(&mut self) -> Vec<ValueId> {
        self.handles.retain(|handle| handle.strong_count() > 0);
        let (graph, current) = (&self.graph, self.generation);
        let kept = |handle: Arc<Handle>| match &*handle.state() {
            HandleState::Pending {
                generation,
                operand,
            } if *generation == current && !handle.is_of_graph() => operand
                .value()
                .filter(|&id| handle.is_kept() || graph.value(id).spec.bytes() <= KEPT_BYTES),
            _ => None,
        };
        let handles = self.handles.iter().filter_map(Weak::upgrade);
        handles.filter_map(kept).collect()
    }

    /// The values of the pending gradients.
    pub(crate) fn grad_values(&self) -> BTreeSet<ValueId> {
        self.grads.values().filter_map(Operand::value).collect()
    }

    /// What a whole evaluation must leave behind: pending gradients, and of the live handles those
    /// that are small or marked.
    pub(crate) fn targets(&mut self) -> BTreeSet<ValueId> {
        let mut targets = self.grad_values();
        targets.extend(self.kept_values());
        targets
    }

    /// The nodes whose results can not be had any more once what is pending has been written: those
    /// that read, through any number of others, cells as they were before. No node whose result is
    /// there already.
    pub(crate) fn overwritten(&self, storages: &Storages) -> Vec<bool> {
        self.downstream(storages, Graph::is_overwritten)
    }

    /// What history reads of gradients as they are before what is pending is added to them: backward may
    /// want it when it cannot be made again.
    pub(crate) fn remembered(&self) -> BTreeSet<ValueId> {
        let passes = |input: &Operand| match input.source {
            Source::Cell(id, version) => self.graph.cell(id).is_some_and(|cell| {
                cell.category == Category::Gradient
                    && (self.graph.evaluated(id)..self.graph.version(id)).contains(&version)
            }),
            Source::Value(_) => false,
        };
        let nodes = self.graph.nodes().iter();
        let with_history = nodes.filter(|node| {
            let mut outputs = node.outputs.iter();
            outputs.any(|&id| self.graph.value(id).requires_grad)
        });
        let read = with_history.flat_map(|node| node.inputs.iter().filter_map(Operand::value));
        read.filter(|&id| {
            let producer = self.graph.value(id).producer;
            producer.is_some_and(|(node, _)| self.graph.node(node).inputs.iter().any(passes))
        })
        .collect()
    }

    /// The nodes whose inputs come, through any number of others, of what pending writes write. No
    /// node whose result is there already.
    pub(crate) fn awaiting(&self, storages: &Storages) -> Vec<bool> {
        self.downstream(storages, Graph::is_awaited)
    }

    /// The nodes that read such a version of a cell, or what such a node makes and nobody has yet.
    fn downstream(
        &self,
        storages: &Storages,
        is_such: impl Fn(&Graph, &Operand) -> bool,
    ) -> Vec<bool> {
        let nodes = self.graph.nodes();
        let mut found = vec![false; nodes.len()];
        if !self.graph.is_any_written() {
            return found;
        }
        for (id, node) in nodes.iter().enumerate() {
            found[id] = node.inputs.iter().any(|input| match input.source {
                Source::Cell(..) => is_such(&self.graph, input),
                Source::Value(value) => {
                    let producer = self.graph.value(value).producer;
                    !storages.contains_key(&value)
                        && producer.is_some_and(|(made_by, _)| found[made_by.index()])
                }
            });
        }
        found
    }

    /// Cells that live handles, nodes and pending gradients read or write: those must stay for them, though nobody
    /// may own them.
    pub(crate) fn used_cells(&self) -> BTreeSet<CellId> {
        let handles = self.handles.iter().filter_map(Weak::upgrade);
        let cells =
            handles.filter_map(
                |handle| match handle.pending_cell(self.generation)?.source {
                    Source::Cell(id, _) => Some(id),
                    Source::Value(_) => None,
                },
            );
        let mut used: BTreeSet<CellId> = cells.collect();
        let of_operand = |operand: &Operand| match operand.source {
            Source::Cell(id, _) => Some(id),
            Source::Value(_) => None,
        };
        for node in self.graph.nodes() {
            used.extend(node.inputs.iter().filter_map(of_operand));
            used.extend(node.writes.iter().map(|write| write.0));
        }
        used.extend(self.grads.keys());
        used.extend(self.grads.values().filter_map(of_operand));
        used
    }

    /// What the gradients and writes that are pending will read, and what can be computed before any
    /// of them.
    pub(crate) fn inputs(&self, storages: &Storages) -> BTreeSet<ValueId> {
        let mut inputs = self.grad_values();
        let awaiting = self.awaiting(storages);
        for (id, node) in self.graph.numbered() {
            if !node.traits.effect.is_repeatable() && !self.progress.done.contains(&id) {
                inputs.extend(node.inputs.iter().filter_map(Operand::value));
            }
        }
        inputs.retain(|&id| {
            let producer = self.graph.value(id).producer;
            storages.contains_key(&id) || producer.is_none_or(|(node, _)| !awaiting[node.index()])
        });
        inputs
    }

    /// Drops the nodes that no live handle, pending gradient or effect can ever need, so that a
    /// graph that stays pending through many reads stays small; handles without history of what is there are
    /// none of them. Answers what `root` is now.
    pub(crate) fn compact(
        &mut self,
        storages: &mut Storages,
        root: Option<&Operand>,
    ) -> Option<Operand> {
        let generation = self.generation;
        self.handles.retain(|handle| {
            let handle = handle.upgrade();
            handle.is_some_and(|handle| !handle.settle(generation, storages))
        });
        let handles: Vec<_> = self.handles.iter().filter_map(Weak::upgrade).collect();
        let mut roots = self.grad_values();
        let held = handles.iter().filter(|handle| !handle.is_of_graph());
        roots.extend(held.filter_map(|handle| handle.pending_value(self.generation)));
        roots.extend(root.and_then(Operand::value));
        let (graph, done) = (&self.graph, &self.progress.done);
        // A value that is there, and through which no gradient flows, needs its history no more.
        let ends = |id: ValueId| storages.contains_key(&id) && !graph.value(id).requires_grad;
        let mut kept = graph.reachable(&roots, |id| !done.contains(&id), ends);
        roots.extend(self.keep_saved(&mut kept, ends));
        let (nodes, values) = self.graph.retain(&kept, &roots);
        let new_value = |id: ValueId| values.get(&id).copied();
        self.progress.done = done
            .iter()
            .filter_map(|id| nodes.get(id).copied())
            .collect();
        renumber_keys(&mut self.progress.residents, new_value);
        renumber_keys(storages, new_value);
        renumber_keys(&mut self.leaves, new_value);
        self.hooks.renumber(new_value);
        self.renumbered += 1;
        let renumber = |operand: &mut Operand| {
            if let Source::Value(id) = operand.source
                && let Some(id) = new_value(id)
            {
                operand.source = Source::Value(id);
            }
        };
        self.casts.follow(|operand| {
            let is_there = operand.value().is_none_or(|id| new_value(id).is_some());
            renumber(operand);
            is_there
        });
        self.grads.values_mut().for_each(renumber);
        for handle in &handles {
            handle.renumber(self.generation, &renumber);
        }
        root.map(|root| {
            let mut root = root.clone();
            renumber(&mut root);
            root
        })
    }

    /// Notes nodes that ran and what they left in the arena, as far as that belongs to the graph.
    pub(crate) fn advance(
        &mut self,
        ran: impl Iterator<Item = NodeId>,
        present: impl Iterator<Item = (ValueId, u64)>,
        storages: &Storages,
    ) {
        let (nodes, values) = (self.graph.nodes().len(), self.graph.values().len());
        let progress = &mut self.progress;
        progress
            .done
            .extend(ran.filter(|&node| node.index() < nodes));
        progress.residents = present
            .filter(|(value, _)| value.index() < values && !storages.contains_key(value))
            .collect();
    }

    /// Values that became what cells of version 0 hold: who reads them reads the cells.
    pub(crate) fn become_cells(&mut self, cells: &BTreeMap<ValueId, CellId>) {
        let follow = |operand: &mut Operand| {
            if let Some(&cell) = operand.value().and_then(|id| cells.get(&id)) {
                operand.source = Source::Cell(cell, Version::default());
            }
        };
        self.graph.follow(follow);
        self.casts.follow(|operand| {
            follow(operand);
            true
        });
        for handle in self.handles.iter().filter_map(Weak::upgrade) {
            handle.renumber(self.generation, &follow);
        }
    }

    /// Where the highest value ends that the next plan will find in the arena.
    pub(crate) fn residents_end(&self) -> u64 {
        let ends = self.progress.residents.iter();
        ends.map(|(&id, &offset)| offset + self.graph.value(id).spec.bytes())
            .max()
            .unwrap_or(0)
    }

    /// Forgets what earlier plans of the step left in the arena, and that nodes ran whose results are
    /// gone; answers whether there was anything to forget.
    pub(crate) fn give_up_residents(&mut self, storages: &Storages) -> bool {
        let progress = &mut self.progress;
        let before = (progress.residents.len(), progress.done.len());
        progress.residents.clear();
        let graph = &self.graph;
        progress.done.retain(|&id| {
            let node = graph.node(id);
            let is_there = |output| storages.contains_key(output);
            !node.traits.effect.is_repeatable() || node.outputs.iter().all(is_there)
        });
        before != (0, progress.done.len())
    }

    /// The graph was evaluated, or given up: handles become values of their own, or expire, and
    /// nothing is pending. The next graph is `generation`.
    pub(crate) fn end(&mut self, storages: &mut Storages, location: Location, generation: u64) {
        let handles = self.handles.drain(..);
        for handle in handles.filter_map(|handle| handle.upgrade()) {
            handle.resolve(self.generation, storages, location);
        }
        self.graph.clear();
        self.progress = Progress::default();
        self.leaves.clear();
        self.hooks.end();
        self.renumbered += 1;
        storages.clear();
        self.skip = None;
        self.generation = generation;
    }
}

fn renumber_keys<T>(map: &mut BTreeMap<ValueId, T>, new: impl Fn(ValueId) -> Option<ValueId>) {
    let old = std::mem::take(map).into_iter();
    *map = old.filter_map(|(id, of)| Some((new(id)?, of))).collect();
}
