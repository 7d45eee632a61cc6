//! What becomes of gradients that an evaluation leaves behind: cells, which later ones are added to.

use crate::engine::Engine;
use crate::engine::state::State;
use crate::pending::context::site;
use crate::{Error, Result};
use highwater_graph::{Category, CellId, Operand, Phase, Source, ValueId};
use std::collections::BTreeSet;
use std::panic::Location;
use std::sync::Arc;

impl Engine {
    /// Readies the pending gradients to be evaluated. With a disk, large ones are cells from the start,
    /// so that they need not all be in memory at once; answers the parameters whose gradients are. The
    /// others get storage of their own, and are made dense for that.
    pub(crate) fn ready_grads(
        &self,
        state: &mut State,
        location: &'static Location<'static>,
    ) -> Result<Vec<CellId>> {
        let made = self.assign_grads(state, location)?;
        self.make_grads_dense(state, location)?;
        Ok(made)
    }

    /// Copies the pending gradients that are views (of a transposed product, or of one number that
    /// stands for all), and those that are another one's value as well: each is added to by itself.
    fn make_grads_dense(
        &self,
        state: &mut State,
        location: &'static Location<'static>,
    ) -> Result<()> {
        let views = state.pending.grads.iter();
        let mut seen = BTreeSet::new();
        let mut is_shared = |grad: &Operand| match grad.source {
            Source::Value(id) => !seen.insert(id),
            Source::Cell(..) => false,
        };
        let views: Vec<(CellId, Operand)> = views
            .filter(|(_, grad)| !grad.spec.layout.is_contiguous() || is_shared(grad))
            .map(|(&id, grad)| (id, grad.clone()))
            .collect();
        for (id, grad) in views {
            let copy = Arc::new(highwater_ops::Copy);
            let site = site(location, Phase::Backward);
            let dense = self.apply(state, copy, &[grad], &site)?.remove(0);
            if let Source::Value(value) = dense.source {
                state.pending.graph.set_category(value, Category::Gradient);
            }
            state.pending.grads.insert(id, dense);
        }
        Ok(())
    }

    fn assign_grads(
        &self,
        state: &mut State,
        location: &'static Location<'static>,
    ) -> Result<Vec<CellId>> {
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
        location: &'static Location<'static>,
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
