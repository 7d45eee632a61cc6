//! Refusals, as Python's exceptions.

use crate::figures::Floor;
use highwater_plan::{ProblemError, Refusal, Violation};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The exceptions of `python/highwater/_errors.py`.
mod python {
    pyo3::import_exception!(highwater._errors, InvalidPlan);
    pyo3::import_exception!(highwater._errors, OverBudget);
}

/// A plan that was proved wrong.
pub(crate) fn invalid(text: String) -> PyErr {
    python::InvalidPlan::new_err(text)
}

/// A plan that Python brought and that is not right.
pub(crate) fn violation(found: &Violation) -> PyErr {
    invalid(found.to_string())
}

/// A plan of the planner's own that is not right.
pub(crate) fn fault(found: &Violation) -> PyErr {
    invalid(format!(
        "the planner made a plan that does not hold, which is a fault of Highwater's: {found}"
    ))
}

/// A budget below the floor.
pub(crate) fn over_budget(py: Python<'_>, refusal: &Refusal) -> PyErr {
    let text = refusal.to_string();
    match Bound::new(py, Floor::new(&refusal.floor)) {
        Ok(floor) => python::OverBudget::new_err((text, refusal.budget_bytes, floor.unbind())),
        Err(e) => e,
    }
}

/// A problem that makes no sense, and what to do about it.
pub(crate) fn malformed(error: &ProblemError) -> PyErr {
    let advice = match error {
        ProblemError::NeverFilled { .. } => {
            ": add a node that has it among its outputs, or say home=\"external\""
        }
        ProblemError::NoOrder { .. } => {
            ": let no guard depend on what a node makes that writes a cell"
        }
        ProblemError::WrittenTwice { .. } => ": let each write name the version that it replaces",
        ProblemError::WrongVersion { .. } => {
            ": number versions from the first one on, with a write for each step"
        }
        _ => "",
    };
    PyValueError::new_err(format!("{error}{advice}"))
}
