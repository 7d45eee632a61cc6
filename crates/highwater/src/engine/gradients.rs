//! What becomes of gradients that an evaluation leaves behind: cells, which later ones are added to.

use crate::engine::Engine;
use crate::engine::state::State;
use crate::pending::KEPT_BYTES;
use crate::pending::context::site;
use crate::{Error, Result};
use highwater_graph::{
    Category, CellId, Effect, Graph, Location, Node, Op, Operand, Phase, Site, Source, ValueId,
};
use highwater_ops::Finite;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

impl Engine {
    /// Readies the pending gradients to be evaluated. With a disk, large ones are cells from the start,
    /// so that they need not all be in memory at once; answers the parameters whose gradients are. The
    /// others get storage of their own.
    pub(crate) fn ready_grads(&self, state: &mut State, location: Location) -> Result<Vec<CellId>> {
        let made = self.assign_grads(state, location)?;
        self.own_grads(state, location)?;
        Ok(made)
    }

    /// Copies the pending gradients whose bytes are not theirs alone: views (of a transposed product,
    /// of one number that stands for all), inputs and results of the user's that a backward answered
    /// as they are, values that another gradient, history, or a tensor that outlives the evaluation has
    /// too. What stays uncopied becomes a cell with its storage, and is added to in place.
    fn own_grads(&self, state: &mut State, location: Location) -> Result<()> {
        let kept = state.pending.kept_values();
        let mut taken: BTreeSet<ValueId> = kept.into_iter().collect();
        let graph = &state.pending.graph;
        let is_forward = |node: &&Node| node.site.phase == Phase::Forward;
        let nodes = graph.nodes().iter().skip_while(is_forward);
        let after = nodes.filter(|node| is_forward(node) && node.site.grad_enabled);
        taken.extend(after.flat_map(|node| node.inputs.iter().filter_map(Operand::value)));
        let mut is_owned = |grad: &Operand| {
            let Source::Value(id) = grad.source else {
                return false;
            };
            let value = graph.value(id);
            let emitted = value
                .producer
                .is_some_and(|(node, _)| graph.node(node).site.phase != Phase::Forward);
            let layout = &grad.spec.layout;
            let whole = layout.numel() == value.spec.layout.numel()
                && layout.is_contiguous()
                && layout.offset() == 0;
            emitted && whole && taken.insert(id)
        };
        let grads = state.pending.grads.iter();
        let shared: Vec<(CellId, Operand)> = grads
            .filter(|(_, grad)| !is_owned(grad))
            .map(|(&id, grad)| (id, grad.clone()))
            .collect();
        for (id, grad) in shared {
            let own = self.own_copy(state, grad, location)?;
            state.pending.grads.insert(id, own);
        }
        Ok(())
    }

    /// The same elements in a value of their own.
    pub(crate) fn own_copy(
        &self,
        state: &mut State,
        grad: Operand,
        location: Location,
    ) -> Result<Operand> {
        let copy = Arc::new(highwater_ops::Copy);
        let site = site(location, Phase::Backward);
        let own = self.apply(state, copy, &[grad], &site)?.remove(0);
        if let Source::Value(value) = own.source {
            state.pending.graph.set_category(value, Category::Gradient);
        }
        Ok(own)
    }

    /// The inputs of a node, as backward may want them again: of gradients copies, since the next
    /// `backward()` may add to these before one goes back through the node. A node that writes cells has
    /// no history.
    pub(crate) fn with_own_grads<'a>(
        &self,
        state: &mut State,
        op: &dyn Op,
        inputs: &'a [Operand],
        site: &Site,
    ) -> Result<Cow<'a, [Operand]>> {
        let is_forward = site.phase == Phase::Forward && site.grad_enabled;
        if !is_forward
            || !op.effect().is_repeatable()
            || !inputs.iter().any(|input| input.requires_grad)
        {
            return Ok(inputs.into());
        }
        let of_gradients = |graph: &Graph, input: &Operand| match input.source {
            Source::Cell(id, _) => {
                let cell = graph.cell(id);
                cell.is_some_and(|cell| cell.category == Category::Gradient)
            }
            Source::Value(_) => false,
        };
        let mut inputs = Cow::from(inputs);
        for i in 0..inputs.len() {
            if of_gradients(&state.pending.graph, &inputs[i]) {
                let site = Site {
                    checkpoint: None,
                    ..site.clone()
                };
                let copy = Arc::new(highwater_ops::Copy);
                let own = self.apply(state, copy, &[inputs[i].clone()], &site)?;
                inputs.to_mut()[i] = own[0].clone();
            }
        }
        Ok(inputs)
    }

    /// Tensors that read cells as they are now (views and `detach()` of parameters, gradients), and
    /// that outlive evaluations, get copies of what they read. Called before nodes are made that write
    /// these cells, or that end the graph.
    pub(crate) fn keep_read_cells(
        &self,
        state: &mut State,
        is_written: impl Fn(CellId) -> bool,
        location: Location,
    ) -> Result<()> {
        let site = Site {
            grad_enabled: true,
            checkpoint: None,
            ..site(location, Phase::Forward)
        };
        let generation = state.pending.generation;
        let handles: Vec<_> = state
            .pending
            .handles
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for handle in handles {
            let Some(operand) = handle.pending_cell(generation) else {
                continue;
            };
            let outlives =
                !handle.is_of_graph() && (handle.is_kept() || operand.spec.bytes() <= KEPT_BYTES);
            let fresh = state
                .pending
                .graph
                .check_fresh("copy", &operand, &site)
                .is_ok();
            let written = matches!(operand.source, Source::Cell(id, _) if is_written(id));
            if outlives && fresh && written {
                let copy = Arc::new(highwater_ops::Copy);
                let copied = self.apply(state, copy, &[operand], &site)?.remove(0);
                handle.renumber(generation, &|operand| *operand = copied.clone());
            }
        }
        Ok(())
    }

    /// Has updates wait until all gradients are known to be finite, where it costs nothing to hold
    /// them for that. Called before the updates are made; not needed where the user guards them.
    pub(crate) fn guard_grads(
        &self,
        state: &mut State,
        parameters: &[CellId],
        location: Location,
    ) -> Result<()> {
        let nodes = state.pending.graph.nodes();
        let is_guard =
            |node: &Node| node.site.phase == Phase::Update && node.traits.effect == Effect::Guard;
        if !self.0.guard_gradients || nodes.iter().any(is_guard) {
            return Ok(());
        }
        let mut guarded: Vec<Operand> = Vec::new();
        for parameter in parameters {
            match state.memory.grads.get(parameter) {
                Some(&cell) => guarded.extend(self.summands(state, cell)),
                None => guarded.extend(state.pending.grads.get(parameter).cloned()),
            }
        }
        guarded.sort_by_key(|gradient| gradient.spec.dtype);
        for of_one_dtype in guarded.chunk_by(|a, b| a.spec.dtype == b.spec.dtype) {
            let guard = Arc::new(Finite::or_stop_where_free("a gradient"));
            self.apply(state, guard, of_one_dtype, &site(location, Phase::Update))?;
        }
        Ok(())
    }

    /// What a gradient's cell is the sum of: what it holds, and what is being added to it. With a disk
    /// only the latter, as nodes that come after a write cannot read what was before it there.
    fn summands(&self, state: &State, cell: CellId) -> Vec<Operand> {
        let graph = &state.pending.graph;
        let Some(newest) = graph.read_cell(cell) else {
            return Vec::new();
        };
        if !graph.is_awaited(&newest) {
            return vec![newest];
        }
        let evaluated = graph.evaluated(cell);
        let before = Operand {
            source: Source::Cell(cell, evaluated),
            ..newest
        };
        let writes = graph.nodes().iter().filter(|node| {
            let mut written = node.writes.iter();
            written.any(|&(id, version)| id == cell && version >= evaluated)
        });
        let added = writes.filter_map(|node| node.inputs.last().cloned());
        let before = (!self.0.tiers.any()).then_some(before);
        before.into_iter().chain(added).collect()
    }

    fn assign_grads(&self, state: &mut State, location: Location) -> Result<Vec<CellId>> {
        let mut made = Vec::new();
        if !self.0.tiers.any() {
            return Ok(made);
        }
        // A tensor that somebody holds is to have its value afterwards.
        let handles = state
            .pending
            .handles
            .iter()
            .filter_map(std::sync::Weak::upgrade);
        let generation = state.pending.generation;
        let held: BTreeSet<ValueId> = handles
            .filter_map(|handle| handle.pending_value(generation))
            .collect();
        let is_held = |grad: &Operand| match grad.source {
            Source::Value(id) => held.contains(&id),
            Source::Cell(..) => true,
        };
        let grads = state.pending.grads.iter();
        let grads: Vec<(CellId, Operand)> = grads
            .filter(|(id, grad)| !state.memory.grads.contains_key(id) && !is_held(grad))
            .filter(|(_, grad)| self.is_movable(grad.spec.dtype.bytes(grad.shape())))
            .map(|(&id, grad)| (id, grad.clone()))
            .collect();
        for (parameter, grad) in grads {
            match self.assign_grad(state, parameter, grad, location) {
                Ok(()) => made.push(parameter),
                Err(error) => {
                    state.drop_grads(&made);
                    return Err(error);
                }
            }
        }
        Ok(made)
    }

    fn assign_grad(
        &self,
        state: &mut State,
        parameter: CellId,
        grad: Operand,
        location: Location,
    ) -> Result<()> {
        let name = state.grad_name(parameter);
        let mut spec = grad.spec.clone();
        spec.layout = highwater_graph::Layout::contiguous(grad.shape().clone());
        let cell = self.add_movable_zeros(state, &name, spec, Category::Gradient)?;
        state.memory.grads.insert(parameter, cell);
        let gone = || Error::Internal("a cell is gone that was just made".into());
        let to = state.pending.graph.read_cell(cell).ok_or_else(gone)?;
        let assign = Arc::new(highwater_ops::Assign);
        let site = site(location, Phase::Backward);
        if let Err(error) = self.apply(state, assign, &[to, grad], &site) {
            state.drop_grads(&[parameter]);
            return Err(error);
        }
        state.pending.grads.remove(&parameter);
        Ok(())
    }
}
