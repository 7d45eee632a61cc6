//! What orders runs of several lanes: uses of values and cells, and guards.

use crate::plan::Action;
use crate::problem::{CellId, LANES, NodeId, Problem, ValueId};
use std::collections::BTreeMap;

/// Who wrote something last; and of those who read it since, the latest in each lane.
#[derive(Debug, Clone, Copy, Default)]
struct Uses {
    wrote: Option<u32>,
    read: [Option<u32>; LANES],
}

impl Uses {
    fn read(&mut self, (i, lane): (u32, usize), wait: &mut impl FnMut(u32)) {
        self.wrote.into_iter().for_each(&mut *wait);
        self.read[lane] = Some(i);
    }

    fn write(&mut self, i: u32, wait: &mut impl FnMut(u32)) {
        self.all(wait);
        *self = Uses {
            wrote: Some(i),
            ..Uses::default()
        };
    }

    fn all(&self, wait: &mut impl FnMut(u32)) {
        let read = self.read.iter().flatten();
        read.chain(&self.wrote).copied().for_each(wait);
    }
}

/// Follows a list whose runs are in several lanes.
pub(crate) struct Crossing {
    values: Vec<Uses>,
    cells: BTreeMap<CellId, Uses>,
    /// The latest guard of each lane.
    guards: [Option<u32>; LANES],
}

impl Crossing {
    pub(crate) fn new(problem: &Problem) -> Crossing {
        Crossing {
            values: vec![Uses::default(); problem.values.len()],
            cells: BTreeMap::new(),
            guards: [None; LANES],
        }
    }

    /// Follows instruction `at.0` of lane `at.1`, and tells what it has to wait for.
    pub(crate) fn follow(
        &mut self,
        problem: &Problem,
        at: (u32, usize),
        action: &Action,
        wait: &mut impl FnMut(u32),
    ) {
        match action {
            Action::Run { node, .. } => {
                self.reads(problem, *node, at, wait);
                self.writes(problem, *node, at.0, wait);
            }
            Action::Guard { node } => {
                self.reads(problem, *node, at, wait);
                self.guards[at.1] = Some(at.0);
            }
            Action::Free { value } | Action::Evict { value, .. } => {
                self.values[value.index()].all(wait);
            }
            Action::Fetch { value, .. } => self.values[value.index()].write(at.0, wait),
        }
    }

    fn reads(
        &mut self,
        problem: &Problem,
        node: NodeId,
        at: (u32, usize),
        wait: &mut impl FnMut(u32),
    ) {
        let n = &problem.nodes[node.index()];
        for &v in &n.inputs {
            self.values[v.index()].read(at, wait);
        }
        for &(cell, _) in &n.reads {
            self.cells.entry(cell).or_default().read(at, wait);
        }
    }

    fn writes(&mut self, problem: &Problem, node: NodeId, i: u32, wait: &mut impl FnMut(u32)) {
        let n = &problem.nodes[node.index()];
        // What an output takes over, and what is overwritten, nobody else may use any more.
        let over = n
            .in_place
            .iter()
            .map(|pair| pair.0)
            .chain(n.rewrites.iter().copied());
        let over: Vec<ValueId> = over.map(|at| n.inputs[at as usize]).collect();
        for &v in over.iter().chain(&n.outputs) {
            self.values[v.index()].write(i, wait);
        }
        if !n.writes.is_empty() {
            self.guards.iter().flatten().copied().for_each(&mut *wait);
        }
        for &(cell, _) in &n.writes {
            self.cells.entry(cell).or_default().write(i, wait);
        }
    }
}
