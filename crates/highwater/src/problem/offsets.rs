//! Where values are in the arena as a plan goes on: followed before it runs, to address transfers, and
//! while it does.

use crate::problem::compiled::Compiled;
use highwater_plan::{Action, Home, Node, Plan, ValueId};

/// For each of a problem's values the offset in the arena, if it is there, in list order.
#[derive(Debug, Default)]
pub(crate) struct Offsets(Vec<Option<u64>>);

impl Offsets {
    /// What is there when a plan starts.
    pub(crate) fn start(compiled: &Compiled) -> Self {
        let values = compiled.problem.values.iter();
        let offsets = values.map(|value| match value.home {
            Home::Resident { offset } => Some(offset),
            Home::Arena | Home::External | Home::Cell(_) => None,
        });
        Self(offsets.collect())
    }

    /// All of them, by value.
    pub(crate) fn all(&self) -> &[Option<u64>] {
        &self.0
    }

    pub(crate) fn get(&self, value: ValueId) -> Option<u64> {
        self.0[value.index()]
    }

    /// Follows an instruction.
    pub(crate) fn apply(&mut self, compiled: &Compiled, action: &Action) {
        match action {
            Action::Run { node, outputs, .. } => {
                let posed = &compiled.problem.nodes[node.index()];
                self.place(posed, outputs);
                self.take_over(compiled, posed, outputs);
            }
            Action::Guard { .. } => {}
            Action::Fetch { value, offset, .. } => self.0[value.index()] = Some(*offset),
            Action::Free { value } | Action::Evict { value, .. } => self.lose(*value),
        }
    }

    fn lose(&mut self, value: ValueId) {
        self.0[value.index()] = None;
    }

    /// A node's outputs get their places.
    pub(crate) fn place(&mut self, posed: &Node, offsets: &[Option<u64>]) {
        for (&value, offset) in posed.outputs.iter().zip(offsets) {
            if offset.is_some() {
                self.0[value.index()] = *offset;
            }
        }
    }

    /// An output over an input: the input is gone.
    pub(crate) fn take_over(&mut self, compiled: &Compiled, posed: &Node, offsets: &[Option<u64>]) {
        for (&value, offset) in posed.outputs.iter().zip(offsets) {
            let Some(offset) = offset else { continue };
            let bytes = compiled.problem.values[value.index()].bytes;
            let pairs = posed.in_place.iter();
            let taken = pairs.filter(|&&(_, o)| posed.outputs[o as usize] == value);
            for &(i, _) in taken {
                let input = posed.inputs[i as usize];
                if bytes > 0 && input != value && self.get(input) == Some(*offset) {
                    self.lose(input);
                }
            }
        }
    }

    /// A plan that stopped at an instruction: what a lane did beyond it is done, what it did not do
    /// before it is not.
    pub(crate) fn correct(&mut self, plan: &Plan, stopped_at: usize, done: &[bool]) {
        for (i, instruction) in plan.instructions.iter().enumerate() {
            match instruction.action {
                Action::Fetch { value, .. } if i < stopped_at && !done[i] => self.lose(value),
                Action::Evict { value, .. } if i >= stopped_at && done[i] => self.lose(value),
                _ => {}
            }
        }
    }
}
