//! Who holds the arena's bytes at an instruction.

use crate::plan::{Action, Plan};
use crate::problem::{Home, NodeId, Problem, ValueId};
use crate::verify::Clocks;
use std::cmp::Reverse;

/// What takes bytes at an instruction; each size is rounded up to the alignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holders {
    /// Values and their bytes, largest first. A value that is freed by the instruction itself is
    /// among them, or whose eviction may be under way, and of a pair that shares a buffer only the
    /// output.
    pub values: Vec<(ValueId, u64)>,
    /// Bytes of the scratch memory of the run.
    pub scratch_bytes: u64,
}

/// Lists what is in the arena while an instruction of a plan is carried out.
#[must_use]
pub fn holders(problem: &Problem, plan: &Plan, instruction: usize) -> Holders {
    let mut places = Places::new(problem);
    let mut scratch_bytes = 0;
    let mut evictions = Vec::new();
    for (i, step) in plan.instructions.iter().enumerate().take(instruction + 1) {
        match &step.action {
            Action::Run {
                node,
                outputs,
                scratch,
            } => {
                places.run(problem, *node, outputs, |_, _| {});
                if i == instruction && scratch.is_some() {
                    scratch_bytes = problem.footprint(problem.nodes[node.index()].scratch_bytes);
                }
            }
            Action::Free { value } if i < instruction => places.0[value.index()] = None,
            Action::Evict { value, .. } if i < instruction => {
                places.0[value.index()] = None;
                evictions.push((i as u32, *value));
            }
            Action::Fetch { value, offset, .. } => places.0[value.index()] = Some(*offset),
            Action::Free { .. } | Action::Evict { .. } | Action::Guard { .. } => {}
        }
    }
    let held = ValueId::numbered(&places.0).filter(|(_, place)| place.is_some());
    let held = held.map(|(v, _)| v);
    let clocks = Clocks::new(plan);
    let leaving = evictions.into_iter();
    let leaving = leaving.filter(|&(i, _)| !clocks.before(i, instruction as u32));
    let mut values: Vec<(ValueId, u64)> = held
        .chain(leaving.map(|(_, v)| v))
        .map(|v| (v, problem.footprint(problem.values[v.index()].bytes)))
        .collect();
    values.sort_by_key(|&(v, bytes)| (Reverse(bytes), v));
    Holders {
        values,
        scratch_bytes,
    }
}

/// The node that an instruction runs; of any other instruction, the one that ran last before it, which a
/// transfer goes beside.
#[must_use]
pub fn running(plan: &Plan, instruction: u32) -> Option<NodeId> {
    let node = |action: &Action| match *action {
        Action::Run { node, .. } | Action::Guard { node } => Some(node),
        Action::Free { .. } | Action::Evict { .. } | Action::Fetch { .. } => None,
    };
    let (before, after) = plan
        .instructions
        .split_at_checked(instruction as usize + 1)?;
    let mut near = before.iter().rev().chain(after);
    near.find_map(|i| node(&i.action))
}

/// Where each value lies in the arena, if it does.
pub(crate) struct Places(pub(crate) Vec<Option<u64>>);

impl Places {
    /// As a plan finds the arena.
    pub(crate) fn new(problem: &Problem) -> Places {
        let resident = |v: &crate::Value| match v.home {
            Home::Resident { offset } => Some(offset),
            _ => None,
        };
        Places(problem.values.iter().map(resident).collect())
    }

    /// Places what a run fills, and tells each pair (input, output) that shares a buffer.
    pub(crate) fn run(
        &mut self,
        problem: &Problem,
        node: NodeId,
        outputs: &[Option<u64>],
        mut takes_over: impl FnMut(ValueId, ValueId),
    ) {
        let n = &problem.nodes[node.index()];
        for (&v, offset) in n.outputs.iter().zip(outputs).filter(|(_, o)| o.is_some()) {
            let taken = |&&u: &&ValueId| {
                self.0[u.index()] == *offset && problem.values[u.index()].bytes > 0
            };
            if problem.values[v.index()].bytes > 0
                && let Some(&u) = n.inputs.iter().find(taken)
            {
                self.0[u.index()] = None;
                takes_over(u, v);
            }
            self.0[v.index()] = *offset;
        }
    }
}
