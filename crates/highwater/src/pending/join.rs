//! Two recordings become one, where a tensor of one is used in the other.

use super::Pending;
use crate::Result;
use crate::error::located;
use crate::store::memory::Storages;
use highwater_graph::{Operand, Phase, Site, Source, ValueId};
use highwater_ops::Add;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

impl Pending {
    /// Adds what another recording has behind what is here. Its values in the arena must have been given up.
    ///
    /// # Errors
    /// None where both have a gradient of one parameter and these can be added, as they can.
    pub(crate) fn join(
        &mut self,
        storages: &mut Storages,
        other: Self,
        theirs: Storages,
    ) -> Result<()> {
        let handles: Vec<_> = other.handles.iter().filter_map(Weak::upgrade).collect();
        // What the user gave and both use is one value.
        let both = |handle: &Arc<super::handle::Handle>| {
            let known = handle.pending_value(self.generation)?;
            Some((handle.pending_value(other.generation)?, known))
        };
        let same: BTreeMap<ValueId, ValueId> = handles.iter().filter_map(both).collect();
        let joined = self.graph.join(other.graph, &same);
        if joined.changes_own() {
            for handle in self.handles.iter().filter_map(Weak::upgrade) {
                handle.renumber(self.generation, &|operand| joined.follow_own(operand));
            }
            self.casts.follow(|operand| {
                joined.follow_own(operand);
                true
            });
            let own = self.grads.values_mut();
            own.for_each(|operand| joined.follow_own(operand));
            self.renumbered += 1;
        }
        let done = other.progress.done.into_iter();
        self.progress.done.extend(done.map(|id| joined.node(id)));
        let theirs = theirs.into_iter();
        storages.extend(theirs.map(|(id, storage)| (joined.value(id), storage)));
        for (id, leaf) in other.leaves {
            self.leaves.entry(joined.value(id)).or_insert(leaf);
        }
        self.hooks.join(other.hooks, |id| joined.value(id));
        for handle in handles {
            handle.join((other.generation, self.generation), &|operand| {
                joined.follow(operand);
            });
            self.register(&handle);
        }
        self.skip = self.skip.or(other.skip);
        for (parameter, mut grad) in other.grads {
            joined.follow(&mut grad);
            let sum = match self.grads.remove(&parameter) {
                Some(own) => self.sum(own, grad)?,
                None => grad,
            };
            self.grads.insert(parameter, sum);
        }
        Ok(())
    }

    /// The sum of two gradients of one parameter.
    fn sum(&mut self, own: Operand, grad: Operand) -> Result<Operand> {
        let made_by = |operand: &Operand| match operand.source {
            Source::Value(id) => self.graph.value(id).producer,
            Source::Cell(..) => None,
        };
        let site = made_by(&grad).or_else(|| made_by(&own)).map_or_else(
            || super::context::site(highwater_graph::Location::caller(), Phase::Backward),
            |(node, _)| self.graph.node(node).site.clone(),
        );
        let site = Site {
            phase: Phase::Backward,
            checkpoint: None,
            ..site
        };
        let sum = self.graph.add(Arc::new(Add), &[own, grad], &site);
        let mut sum = sum.map_err(|error| located(error, &site))?;
        Ok(sum.remove(0))
    }
}
