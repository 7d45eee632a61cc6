//! Casts of the pending graph that autocast made, to be read again.

use highwater_graph::{DType, Operand, Site};

/// What was cast, to what: of one graph.
#[derive(Debug, Default)]
pub(crate) struct Casts {
    generation: u64,
    made: Vec<(Operand, Operand)>,
}

impl Casts {
    /// The cast of an operand, if this graph has it for who may read it.
    pub(crate) fn get(
        &self,
        generation: u64,
        from: &Operand,
        dtype: DType,
        site: &Site,
    ) -> Option<Operand> {
        if generation != self.generation {
            return None;
        }
        // Checkpoints are no bounds: how gradients of several readers are summed must not depend on them.
        let wanted = |(of, cast): &&(Operand, Operand)| {
            cast.spec.dtype == dtype
                && of == from
                && cast.requires_grad == (from.requires_grad && site.grad_enabled)
        };
        // Most are read again soon.
        let found = self.made.iter().rev().find(wanted);
        found.map(|(_, cast)| cast.clone())
    }

    /// Follows the graph when it renumbers its values: what is no longer there is forgotten.
    pub(crate) fn follow(&mut self, follow: impl Fn(&mut Operand) -> bool) {
        self.made
            .retain_mut(|(from, cast)| follow(from) && follow(cast));
    }

    /// Notes what was made.
    pub(crate) fn note(&mut self, generation: u64, from: &Operand, cast: &Operand) {
        if generation != self.generation {
            self.generation = generation;
            self.made.clear();
        }
        self.made.push((from.clone(), cast.clone()));
    }
}
