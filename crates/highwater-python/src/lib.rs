//! The planner for Python: plain numbers and lists go in, plans come out, and no tensor is seen.
//!
//! The module is `highwater._native`; what users import is `python/highwater`, whose `_native.pyi` says
//! what each class and function does.

mod args;
mod errors;
mod family;
mod figures;
mod instruction;
mod plan;
mod problem;

use pyo3::prelude::*;

/// The planner of Highwater.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::family::Family;
    #[pymodule_export]
    use super::figures::{Decision, Floor, Holders, Traffic};
    #[pymodule_export]
    use super::instruction::Instruction;
    #[pymodule_export]
    use super::plan::{Plan, verify};
    #[pymodule_export]
    use super::problem::{Link, Problem};
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
