//! The plans of a problem, and the choice among them.

use crate::args::{Named, whole};
use crate::errors::{fault, malformed, over_budget};
use crate::figures::Floor;
use crate::plan::Plan;
use crate::problem::Problem;
use highwater_plan::{self as planner, Families, Policy, Refusal, Violation};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

/// The plans of a problem as it was when this was made.
#[pyclass(module = "highwater", frozen)]
pub(crate) struct Family {
    problem: Arc<planner::Problem>,
    policy: Policy,
    families: Families,
    /// Whether budgets are of an arena, or of live bytes.
    arena: bool,
}

/// Why there is no plan.
enum Failure {
    Refused(Refusal),
    Wrong(Violation),
}

impl Family {
    fn build(
        py: Python<'_>,
        problem: Arc<planner::Problem>,
        policy: Policy,
        arena: bool,
    ) -> PyResult<Family> {
        let families = py.detach(|| Families::build(&problem, policy));
        Ok(Family {
            families: families.map_err(|e| malformed(&e))?,
            problem,
            policy,
            arena,
        })
    }

    /// Whether decisions for this problem mean something for another, whose edges are compared later.
    fn is_like(&self, other: &planner::Problem) -> bool {
        let decided = |problem: &planner::Problem| {
            let values = problem.values.iter();
            values
                .map(|v| (v.home, v.pin, v.wanted))
                .collect::<Vec<_>>()
        };
        self.problem.tiers.any() == other.tiers.any() && decided(&self.problem) == decided(other)
    }
}

#[pymethods]
impl Family {
    #[new]
    #[pyo3(signature = (problem, policy="auto", *, arena=true))]
    fn new(py: Python<'_>, problem: &Problem, policy: &str, arena: bool) -> PyResult<Family> {
        let policy = Policy::of(policy, "policy")?;
        let problem = Arc::clone(&problem.posed);
        if !arena && problem.tiers.any() {
            return Err(PyValueError::new_err(
                "arena=False: what is alive while something moves to host memory or back depends on how it \
                 goes: leave out host, or state the budget of an arena",
            ));
        }
        Family::build(py, problem, policy, arena)
    }

    #[getter]
    fn floor(&self, py: Python<'_>) -> Floor {
        let floor = py.detach(|| {
            if self.arena {
                self.families.floor(&self.problem).clone()
            } else {
                self.families.floor_alive(&self.problem)
            }
        });
        Floor::new(&floor)
    }

    #[pyo3(signature = (count=None), text_signature = "($self, count=64)")]
    fn curve(&self, py: Python<'_>, count: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<(u64, f64)>> {
        let count = count.map_or(Ok(64), |count| whole(count, 1 << 20, "count"))? as usize;
        if !self.arena {
            return Ok(py.detach(|| self.families.outcomes_alive(count)));
        }
        let plans = py.detach(|| self.families.plans(&self.problem, count));
        let figures = |plan: &planner::Plan| (plan.memory_bytes(), plan.seconds);
        Ok(plans.iter().map(figures).collect())
    }

    fn choose(&self, py: Python<'_>, budget: &Bound<'_, PyAny>) -> PyResult<Plan> {
        let budget = whole(budget, u64::MAX, "budget")?;
        let chosen = py.detach(|| {
            let plan = if self.arena {
                self.families.choose(&self.problem, budget)
            } else {
                self.families.choose_alive(&self.problem, budget)
            };
            let plan = plan.map_err(Failure::Refused)?;
            let height = if self.arena { budget } else { plan.arena_bytes };
            Plan::prove(Arc::clone(&self.problem), plan, height).map_err(Failure::Wrong)
        });
        chosen.map_err(|failure| match failure {
            Failure::Refused(refusal) => over_budget(py, &refusal),
            Failure::Wrong(found) => fault(&found),
        })
    }

    fn adapt(&self, py: Python<'_>, problem: &Problem) -> PyResult<Option<Family>> {
        let problem = Arc::clone(&problem.posed);
        let fresh = Family::build(py, problem, self.policy, self.arena)?;
        if !self.is_like(&fresh.problem) {
            return Ok(None);
        }
        let adapted = py.detach(|| fresh.families.adapt(&self.families));
        Ok(adapted.map(|families| Family { families, ..fresh }))
    }

    fn __repr__(&self) -> String {
        let name = Policy::NAMES
            .iter()
            .find(|(_, known)| *known == self.policy);
        let name = name.map_or("", |(name, _)| *name);
        format!(
            "<highwater.Family of {} nodes and {} values, policy '{name}'>",
            self.problem.nodes.len(),
            self.problem.values.len()
        )
    }
}
