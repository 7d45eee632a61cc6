//! Step 1: what can be seen by looking at each instruction alone.

use super::Violation;
use crate::plan::{Action, Instruction, Plan};
use crate::problem::{Effect, Home, Lane, NodeId, Problem, Tier, ValueId};
use std::collections::BTreeMap;

/// Bytes that something takes: whole multiples of the alignment; of 4096 at least beside a disk, if it is
/// that large.
pub(super) fn taken(problem: &Problem, bytes: u64) -> u64 {
    let unit = match problem.tiers.disk {
        Some(_) if bytes >= 4096 => problem.align.max(4096) - 1,
        _ => problem.align - 1,
    };
    (bytes + unit) & !unit
}

pub(super) fn check(problem: &Problem, plan: &Plan, budget: u64) -> Result<(), Violation> {
    let arena_bytes = plan.arena_bytes.saturating_add(plan.home_bytes);
    if arena_bytes > budget {
        let budget_bytes = budget;
        return Err(Violation::OverBudget {
            arena_bytes,
            budget_bytes,
        });
    }
    if !problem.align.is_power_of_two() {
        return Err(Violation::Misaligned {
            instruction: 0,
            offset: problem.align,
        });
    }
    let known = |value: ValueId| match problem.values.get(value.index()) {
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
    for (value, v) in ValueId::numbered(&problem.values) {
        if let Home::Resident { offset } = v.home {
            let end = offset.saturating_add(taken(problem, v.bytes));
            if end > plan.arena_bytes {
                return Err(Violation::AboveArena {
                    instruction: None,
                    value: Some(value),
                    end,
                });
            }
        }
    }
    let form = Form {
        problem,
        plan,
        homes: homes(problem, plan)?,
    };
    (0..)
        .zip(&plan.instructions)
        .try_for_each(|(i, instruction)| form.instruction(i, instruction))
}

struct Form<'a> {
    problem: &'a Problem,
    plan: &'a Plan,
    homes: BTreeMap<ValueId, Option<Tier>>,
}

/// The home of each cell: each has one, which is the one that the problem asks for.
pub(super) fn homes(
    problem: &Problem,
    plan: &Plan,
) -> Result<BTreeMap<ValueId, Option<Tier>>, Violation> {
    let mut homes = BTreeMap::new();
    for &(value, home) in &plan.homes {
        let Some(Home::Cell(asked)) = problem.values.get(value.index()).map(|v| v.home) else {
            return Err(Violation::WrongHome { value });
        };
        let there = home.is_none_or(|tier| problem.tiers.link(tier).is_some());
        if asked.is_some() && asked != home || !there || homes.insert(value, home).is_some() {
            return Err(Violation::WrongHome { value });
        }
    }
    for (value, v) in ValueId::numbered(&problem.values) {
        if matches!(v.home, Home::Cell(_)) && !homes.contains_key(&value) {
            return Err(Violation::WrongHome { value });
        }
    }
    Ok(homes)
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
            Action::Run { node, .. } | Action::Guard { node } => {
                let posed = self.problem.nodes.get(node.index());
                posed.map_or(Lane::Compute, |posed| posed.lane)
            }
            Action::Free { .. } if instruction.lane == Lane::Communicate => Lane::Communicate,
            Action::Free { .. } => Lane::Compute,
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
            Action::Free { value } => self.arena(i, *value),
            Action::Evict { value, tier, place } => self.evict(i, *value, *tier, *place),
            Action::Fetch { value, offset, .. } => {
                self.arena(i, *value)?;
                self.place(
                    i,
                    *offset,
                    Some(*value),
                    self.problem.values[value.index()].bytes,
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
        let n = &self.problem.nodes[node.index()];
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
                    self.problem.values[value.index()].bytes,
                )?;
            }
        }
        scratch.map_or(Ok(()), |offset| {
            self.place(i, offset, None, n.scratch_bytes)
        })
    }

    fn kind(&self, i: u32, node: NodeId, guard: bool) -> Result<(), Violation> {
        match self.problem.nodes.get(node.index()) {
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
        match self.problem.values.get(value.index()) {
            None => Err(Violation::NoSuchValue { value }),
            Some(v) if v.home == Home::External || self.homes.get(&value) == Some(&None) => {
                Err(Violation::NotInArena {
                    instruction: i,
                    value,
                })
            }
            Some(_) => Ok(()),
        }
    }

    /// Cells go home; other values go below the height of what is spilled.
    fn evict(
        &self,
        i: u32,
        value: ValueId,
        tier: Tier,
        place: Option<u64>,
    ) -> Result<(), Violation> {
        self.arena(i, value)?;
        let end = place
            .unwrap_or(0)
            .saturating_add(self.problem.values[value.index()].bytes);
        let sound = match self.homes.get(&value) {
            Some(&home) => place.is_none() && home == Some(tier),
            None => place.is_some() && end <= self.plan.traffic(tier).spill_bytes,
        };
        let writable = self
            .problem
            .tiers
            .link(tier)
            .is_some_and(|link| link.writable);
        if !(sound && writable) {
            return Err(Violation::WrongPlace {
                instruction: i,
                value,
                tier,
            });
        }
        Ok(())
    }

    fn place(
        &self,
        i: u32,
        offset: u64,
        value: Option<ValueId>,
        bytes: u64,
    ) -> Result<(), Violation> {
        if offset & (self.problem.align - 1) != 0 {
            return Err(Violation::Misaligned {
                instruction: i,
                offset,
            });
        }
        let end = offset.saturating_add(taken(self.problem, bytes));
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
