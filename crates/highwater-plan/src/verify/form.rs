//! Step 1: what can be seen by looking at each instruction alone.

use super::Violation;
use crate::plan::{Action, Instruction, Lane, Plan, Tier};
use crate::problem::{Effect, Home, NodeId, Problem, ValueId};

/// Bytes that something takes: whole multiples of 64.
pub(super) fn taken(bytes: u64) -> u64 {
    (bytes + 63) & !63
}

pub(super) fn check(problem: &Problem, plan: &Plan, budget: u64) -> Result<(), Violation> {
    if plan.arena_bytes > budget {
        let (arena_bytes, budget_bytes) = (plan.arena_bytes, budget);
        return Err(Violation::OverBudget {
            arena_bytes,
            budget_bytes,
        });
    }
    let known = |value: ValueId| match problem.values.get(value as usize) {
        Some(_) => Ok(()),
        None => Err(Violation::NoSuchValue { value }),
    };
    for n in &problem.nodes {
        n.inputs
            .iter()
            .chain(&n.outputs)
            .try_for_each(|&v| known(v))?;
    }
    plan.residents.iter().try_for_each(|&(v, _)| known(v))?;
    for (value, v) in (0..).zip(&problem.values) {
        if let Home::Resident { offset } = v.home {
            let end = offset.saturating_add(taken(v.bytes));
            if end > plan.arena_bytes {
                return Err(Violation::AboveArena {
                    instruction: None,
                    value: Some(value),
                    end,
                });
            }
        }
    }
    let form = Form { problem, plan };
    (0..)
        .zip(&plan.instructions)
        .try_for_each(|(i, instruction)| form.instruction(i, instruction))
}

struct Form<'a> {
    problem: &'a Problem,
    plan: &'a Plan,
}

impl Form<'_> {
    fn instruction(&self, i: u32, instruction: &Instruction) -> Result<(), Violation> {
        if let Some(&wait) = instruction.waits.iter().find(|&&wait| wait >= i) {
            return Err(Violation::WaitsForLater {
                instruction: i,
                wait,
            });
        }
        let lane = match instruction.action {
            Action::Run { .. } | Action::Free { .. } | Action::Guard { .. } => Lane::Compute,
            Action::Evict {
                tier: Tier::Host, ..
            } => Lane::DeviceToHost,
            Action::Evict {
                tier: Tier::Disk, ..
            } => Lane::Write,
            Action::Fetch {
                tier: Tier::Host, ..
            } => Lane::HostToDevice,
            Action::Fetch {
                tier: Tier::Disk, ..
            } => Lane::Read,
        };
        if lane != instruction.lane {
            return Err(Violation::WrongLane {
                instruction: i,
                lane: instruction.lane,
            });
        }
        match &instruction.action {
            Action::Run {
                node,
                outputs,
                scratch,
            } => self.run(i, *node, outputs, *scratch),
            Action::Guard { node } => self.kind(i, *node, true),
            Action::Free { value } | Action::Evict { value, .. } => self.arena(i, *value),
            Action::Fetch { value, offset, .. } => {
                self.arena(i, *value)?;
                self.place(
                    i,
                    *offset,
                    Some(*value),
                    self.problem.values[*value as usize].bytes,
                )
            }
        }
    }

    fn run(
        &self,
        i: u32,
        node: NodeId,
        outputs: &[Option<u64>],
        scratch: Option<u64>,
    ) -> Result<(), Violation> {
        self.kind(i, node, false)?;
        let n = &self.problem.nodes[node as usize];
        if outputs.len() != n.outputs.len() {
            return Err(Violation::WrongOutputs {
                instruction: i,
                node,
            });
        }
        if scratch.is_some() != (n.scratch_bytes > 0) {
            return Err(Violation::WrongScratch {
                instruction: i,
                node,
            });
        }
        for (&value, &offset) in n.outputs.iter().zip(outputs) {
            if let Some(offset) = offset {
                self.arena(i, value)?;
                self.place(
                    i,
                    offset,
                    Some(value),
                    self.problem.values[value as usize].bytes,
                )?;
            }
        }
        scratch.map_or(Ok(()), |offset| {
            self.place(i, offset, None, n.scratch_bytes)
        })
    }

    fn kind(&self, i: u32, node: NodeId, guard: bool) -> Result<(), Violation> {
        match self.problem.nodes.get(node as usize) {
            None => Err(Violation::NoSuchNode {
                instruction: i,
                node,
            }),
            Some(n) if (n.effect == Effect::Guard) != guard => Err(Violation::WrongAction {
                instruction: i,
                node,
            }),
            Some(_) => Ok(()),
        }
    }

    fn arena(&self, i: u32, value: ValueId) -> Result<(), Violation> {
        match self.problem.values.get(value as usize) {
            None => Err(Violation::NoSuchValue { value }),
            Some(v) if v.home == Home::External => Err(Violation::NotInArena {
                instruction: i,
                value,
            }),
            Some(_) => Ok(()),
        }
    }

    fn place(
        &self,
        i: u32,
        offset: u64,
        value: Option<ValueId>,
        bytes: u64,
    ) -> Result<(), Violation> {
        if offset & 63 != 0 {
            return Err(Violation::Misaligned {
                instruction: i,
                offset,
            });
        }
        let end = offset.saturating_add(taken(bytes));
        if end > self.plan.arena_bytes {
            return Err(Violation::AboveArena {
                instruction: Some(i),
                value,
                end,
            });
        }
        Ok(())
    }
}
