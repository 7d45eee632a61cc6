//! Plans, each proved for its problem, and the verifier.

use crate::args::{LIMIT, whole};
use crate::errors::{invalid, violation};
use crate::figures::{Decision, Holders, Traffic, plain};
use crate::instruction::Instruction;
use crate::problem::Problem;
use highwater_plan as planner;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use std::sync::Arc;

/// A plan that the verifier has proved for its problem: what it names is there.
#[pyclass(module = "highwater", frozen)]
pub(crate) struct Plan {
    problem: Arc<planner::Problem>,
    plan: planner::Plan,
}

impl Plan {
    /// Proves a plan under a budget.
    pub(crate) fn prove(
        problem: Arc<planner::Problem>,
        plan: planner::Plan,
        budget: u64,
    ) -> Result<Plan, planner::Violation> {
        planner::verify(&problem, &plan, budget)?;
        Ok(Plan { problem, plan })
    }
}

#[pymethods]
impl Plan {
    #[getter]
    fn instructions(&self) -> Vec<Instruction> {
        let list = self.plan.instructions.iter();
        list.map(Instruction::new).collect()
    }

    #[getter]
    fn arena_bytes(&self) -> u64 {
        self.plan.arena_bytes
    }

    #[getter]
    fn live_bytes(&self) -> u64 {
        self.plan.live_bytes
    }

    #[getter]
    fn peak_instruction(&self) -> u32 {
        self.plan.peak_instruction
    }

    #[getter]
    fn seconds(&self) -> f64 {
        self.plan.seconds
    }

    #[getter]
    fn recomputed_nodes(&self) -> u32 {
        self.plan.recomputed_nodes
    }

    #[getter]
    fn recompute_seconds(&self) -> f64 {
        self.plan.recompute_seconds
    }

    #[getter]
    fn residents(&self) -> Vec<(usize, u64)> {
        plain(&self.plan.residents)
    }

    #[getter]
    fn cells_on_host(&self) -> Vec<usize> {
        let homes = self.plan.homes.iter();
        let on_host = homes.filter(|(_, tier)| tier.is_some());
        on_host.map(|(value, _)| value.index()).collect()
    }

    #[getter]
    fn memory_bytes(&self) -> u64 {
        self.plan.memory_bytes()
    }

    #[getter]
    fn host(&self) -> Traffic {
        Traffic::new(self.plan.host)
    }

    #[pyo3(signature = (at=None))]
    fn holders(&self, at: Option<&Bound<'_, PyAny>>) -> PyResult<Holders> {
        let count = self.plan.instructions.len();
        let at = match at {
            Some(at) => whole(at, u64::from(u32::MAX), "at")? as u32,
            None => self.plan.peak_instruction,
        };
        if at as usize >= count {
            return Err(PyIndexError::new_err(format!(
                "no instruction {at}: the plan has {count}, counted from 0"
            )));
        }
        let held = planner::holders(&self.problem, &self.plan, at as usize);
        let node = planner::running(&self.plan, at);
        Ok(Holders {
            node: node.map(planner::NodeId::index),
            values: plain(&held.values),
            scratch_bytes: held.scratch_bytes,
        })
    }

    fn explain(&self) -> Vec<Decision> {
        let decisions = planner::explain(&self.problem, &self.plan);
        decisions.iter().map(Decision::new).collect()
    }

    fn to_json(&self) -> PyResult<String> {
        let wrong = |e: serde_json::Error| PyValueError::new_err(e.to_string());
        serde_json::to_string(&self.plan).map_err(wrong)
    }

    #[staticmethod]
    fn from_json(py: Python<'_>, problem: &Problem, text: &str) -> PyResult<Plan> {
        let wrong = |e| PyValueError::new_err(format!("the text is no plan: {e}"));
        let plan: planner::Plan = serde_json::from_str(text).map_err(wrong)?;
        // Beyond that the verifier's sums would not fit 64 bits.
        let sizes = [
            plan.arena_bytes,
            plan.host.spill_bytes,
            plan.disk.spill_bytes,
        ];
        if sizes.iter().any(|&bytes| bytes >= LIMIT) {
            return Err(invalid(format!(
                "the plan has sizes of {LIMIT} bytes or more"
            )));
        }
        let problem = Arc::clone(&problem.posed);
        let proved = py.detach(|| Plan::prove(problem, plan, u64::MAX));
        proved.map_err(|found| violation(&found))
    }

    fn __repr__(&self) -> String {
        format!(
            "<highwater.Plan of {} instructions: {} bytes, {:?} seconds, {:?} of them recomputing>",
            self.plan.instructions.len(),
            self.plan.arena_bytes,
            self.plan.seconds,
            self.plan.recompute_seconds
        )
    }
}

/// Proves a plan for a problem, within a budget.
#[pyfunction]
pub(crate) fn verify(
    py: Python<'_>,
    problem: &Problem,
    plan: &Plan,
    budget: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let budget = whole(budget, u64::MAX, "budget")?;
    let problem = Arc::clone(&problem.posed);
    let plan = &plan.plan;
    let found = py.detach(|| planner::verify(&problem, plan, budget));
    found.map(|_| ()).map_err(|found| violation(&found))
}
