//! Step 6: what is left at the end.

use super::Violation;
use super::replay::End;
use crate::plan::Plan;
use crate::problem::{NodeId, Problem, Tier, ValueId};

/// Step 6.
pub(super) fn check(problem: &Problem, plan: &Plan, end: &End) -> Result<(), Violation> {
    for ((node, n), &runs) in NodeId::numbered(&problem.nodes).zip(&end.runs) {
        if runs == 0 && !n.done && !n.soft {
            return Err(Violation::NeverRuns { node });
        }
    }
    let mut listed = vec![None; problem.values.len()];
    for &(value, offset) in &plan.residents {
        if listed[value.index()].replace(offset).is_some() {
            return Err(Violation::WrongResidents { value });
        }
    }
    for (value, v) in ValueId::numbered(&problem.values) {
        let open = end.open[value.index()].map(|h| end.holdings[h].offset);
        let there = open.is_some() || end.outside[value.index()].is_some();
        if v.wanted && !there {
            return Err(Violation::Missing { value });
        }
        if !v.wanted && open.is_some() {
            return Err(Violation::NeverFreed { value });
        }
        if listed[value.index()] != open {
            return Err(Violation::WrongResidents { value });
        }
    }
    for &(value, contents) in &end.cells {
        let copies = Tier::ALL
            .iter()
            .filter_map(|&tier| end.copies.get(&(value, tier)));
        let mut there = copies
            .map(|copy| copy.contents)
            .chain(end.outside[value.index()]);
        let at_home = there.any(|there| there == contents);
        if !at_home {
            return Err(Violation::NotAtHome { value });
        }
    }
    Ok(())
}
