//! Plans that may run.

use crate::problem::compiled::Compiled;
use crate::problem::plan_cache::About;
use crate::{Error, Result};
use highwater_plan::{Plan, Problem};
use std::sync::Arc;

/// A plan that the verifier has proved for its problem. The executor takes no other: its `unsafe` rests on
/// what is proved.
#[derive(Debug)]
pub(crate) struct Proven {
    compiled: Compiled,
    plan: Arc<Plan>,
}

impl Proven {
    /// Shows a new plan to who asked for it, and runs the verifier over it, under what plans may take now,
    /// in bytes. One about which something was told before was proved then, for the same problem.
    ///
    /// # Errors
    /// [`Error::Internal`] if it is wrong.
    pub(crate) fn of<T>(
        (compiled, plan): (Compiled, Arc<Plan>),
        budget: u64,
        about: &About<T>,
        look: Option<fn(&Problem, &Plan)>,
    ) -> Result<Self> {
        if matches!(about, About::New(_)) {
            if let Some(look) = look {
                look(&compiled.problem, &plan);
            }
            let proved = highwater_plan::verify(&compiled.problem, &plan, budget);
            proved.map_err(|wrong| Error::Internal(format!("the plan is wrong: {wrong}")))?;
        }
        Ok(Self { compiled, plan })
    }

    /// What it is of.
    pub(crate) fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    pub(crate) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }
}
