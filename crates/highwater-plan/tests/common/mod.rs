//! Sample problems, and what the planner is compared with.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod baselines;
pub(crate) mod exact;
pub(crate) mod mirrored;
pub(crate) mod random;
pub(crate) mod samples;
pub(crate) mod shapes;
pub(crate) mod tamper;
pub(crate) mod tiered;

use highwater_plan::*;

/// The planner's answer under a budget, if it has one.
pub(crate) fn chosen(family: &Family, problem: &Problem, budget: u64) -> Option<Plan> {
    family.choose(problem, budget).ok()
}

/// Builds problems by hand.
#[derive(Default)]
pub(crate) struct Builder {
    pub(crate) problem: Problem,
    cells: usize,
}

impl Builder {
    pub(crate) fn value(&mut self, bytes: u64, home: Home) -> ValueId {
        self.problem.values.push(Value {
            bytes,
            home,
            pin: Pin::Free,
            wanted: false,
        });
        ValueId::new(self.problem.values.len() - 1)
    }

    pub(crate) fn arena(&mut self, bytes: u64) -> ValueId {
        self.value(bytes, Home::Arena)
    }

    pub(crate) fn cell(&mut self) -> CellId {
        self.cells += 1;
        CellId::new(self.cells - 1)
    }

    pub(crate) fn node(
        &mut self,
        inputs: &[ValueId],
        outputs: &[ValueId],
        seconds: f64,
    ) -> &mut Node {
        self.problem.nodes.push(Node::new(inputs, outputs, seconds));
        self.problem.nodes.last_mut().expect("just pushed")
    }

    pub(crate) fn update(&mut self, gradient: &[ValueId], cell: CellId, seconds: f64) {
        self.pieces(gradient, cell, seconds, 1);
    }

    /// Updates that write a cell one after the other.
    pub(crate) fn pieces(&mut self, gradient: &[ValueId], cell: CellId, seconds: f64, count: u32) {
        for version in 0..count {
            let node = self.node(gradient, &[], seconds / f64::from(count));
            node.writes.push((cell, version));
            node.effect = Effect::Once;
        }
    }

    pub(crate) fn guard(&mut self, inputs: &[ValueId]) {
        self.node(inputs, &[], 0.0).effect = Effect::Guard;
    }
}
