//! Optimizers: parameter groups, `step()`, `zero_grad()`.

mod accumulate;
mod adafactor;
mod adagrad;
mod adam;
mod adamw;
mod clip;
mod direction;
mod ema;
mod formats;
mod grad_scaler;
mod groups;
mod lion;
pub mod lr_scheduler;
mod muon;
mod nadam;
mod options;
mod pieces;
mod radam;
mod rmsprop;
mod rule;
mod sgd;

pub use accumulate::accumulate;
pub use adafactor::{Adafactor, AdafactorOptions};
pub use adagrad::{Adagrad, AdagradOptions};
pub use adam::{Adam, AdamOptions};
pub use adamw::{AdamW, AdamWOptions};
pub use clip::{clip_grad_norm_, clip_grad_value_, grad_norm};
pub use direction::Direction;
pub use ema::Ema;
pub use formats::{Master, Moments};
pub use grad_scaler::{GradScaler, GradScalerOptions};
pub use groups::Groups;
pub use lion::{Lion, LionOptions};
pub use muon::{AdjustLr, Muon, MuonOptions};
pub use nadam::{NAdam, NAdamOptions};
pub use radam::{RAdam, RAdamOptions};
pub use rmsprop::{RmsProp, RmsPropOptions};
pub use rule::Rule;
pub use sgd::{Sgd, SgdOptions};

use crate::engine::Engine;
use crate::engine::lock::Locked;
use crate::engine::state::State;
use crate::error::usage_error;
use crate::pending::context::site;
use crate::tensor::Tensor;
use crate::tensor::parameter::Parameter;
use crate::{Error, Result};
use highwater_graph::Location;
use highwater_graph::{CellId, Operand, Phase};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepped {
    /// The parameters that have a gradient were updated.
    Updated,
    /// A guard left the updates out: no parameter, moment or step count has changed. Losses can be read.
    Skipped {
        /// Which value was not finite.
        what: &'static str,
    },
}

/// Leaves the updates out of the next step if `value` is not finite then, as
/// `torch.amp.GradScaler.step` does: [`Optimizer::step`] answers [`Stepped::Skipped`]. What else the
/// step computes is as ever; nothing runs again. The value, an `F32` tensor of any shape, must not
/// depend on the step's updates.
///
/// # Errors
/// [`Error::Expired`]; another dtype.
#[track_caller]
pub fn skip_unless_finite(value: &Tensor, what: &'static str) -> Result<()> {
    let engine = value.engine();
    let mut state = engine.lock();
    let operand = value.operand(&mut state)?;
    let guard = Arc::new(highwater_ops::Finite::or_skip(what));
    let site = site(Location::caller(), Phase::Update);
    engine.apply(&mut state, guard, &[operand], &site)?;
    Ok(())
}

/// What all optimizers do.
pub trait Optimizer: std::fmt::Debug + Send {
    /// Adds the updates of all parameters that have a gradient to the pending graph, evaluates the
    /// graph, and takes the gradients: `.grad()` is `None` afterwards.
    ///
    /// # Errors
    /// [`Error::OverBudget`] if the step cannot run inside the budget (nothing has changed);
    /// [`Error::NonFinite`] if a guard stopped it (no parameter has changed); a kernel's failure.
    fn step(&mut self) -> Result<Stepped>;

    /// As [`Optimizer::step`], leaving the gradients where they are.
    ///
    /// # Errors
    /// As [`Optimizer::step`].
    fn step_keep_grads(&mut self) -> Result<Stepped>;

    /// Forgets the gradients of this optimizer's parameters.
    fn zero_grad(&mut self);

    /// The parameters, group by group.
    fn parameters(&self) -> Vec<Parameter>;

    /// Sets the learning rate of every group: an input of the step, not part of its structure.
    ///
    /// # Errors
    /// [`Error::Usage`] for a rate below 0 or none that an `f32` can hold; the old one stays.
    fn set_lr(&mut self, lr: f64) -> Result<()>;

    /// The learning rate of each group.
    fn lrs(&self) -> Vec<f64>;

    /// Sets the learning rate of each group: what schedules do.
    ///
    /// # Errors
    /// [`Error::Usage`] as for [`Optimizer::set_lr`], or unless there is a rate for each group; the old ones
    /// stay.
    fn set_lrs(&mut self, lrs: &[f64]) -> Result<()>;

    /// Sets the momentum of every group, or the first of its betas: what [`lr_scheduler::OneCycleLr`] does
    /// beside rates. Nothing where there is neither.
    ///
    /// # Errors
    /// [`Error::Usage`] unless it is from 0 up and below 1; the old one stays.
    fn set_momentum(&mut self, momentum: f64) -> Result<()>;

    /// Every tensor of the optimizer's own, by a name that follows the parameters' names, to be
    /// saved: `exp_avg.h.0.fc.weight`, or `exp_avg.wte.weight[0:10052]` where it belongs to some rows
    /// of a large parameter. Unless [`crate::nn::Module::name_parameters`] gave all of them different names, their
    /// numbers stand for these, in the order of [`Optimizer::parameters`]: `exp_avg.0`. So no name is there twice.
    fn state_dict(&self) -> Vec<(String, Parameter)>;

    /// How often each parameter was updated, in the order of [`Optimizer::parameters`]: what bias
    /// corrections count, as PyTorch's `state["step"]`.
    fn step_counts(&self) -> Vec<u64>;

    /// Sets how often each parameter was updated: loading state. Makes what belongs to a parameter that was
    /// frozen when the optimizer was made and has been updated since, so counts come before
    /// [`Optimizer::state_dict`] is read and filled.
    ///
    /// # Errors
    /// [`Error::Usage`] unless there is a count for each of [`Optimizer::parameters`]; nothing is set then.
    fn set_step_counts(&mut self, counts: &[u64]) -> Result<()>;

    /// How many steps were taken, those without any gradient left out.
    fn steps(&self) -> u64 {
        self.step_counts().into_iter().max().unwrap_or(0)
    }

    /// Sets how many steps were taken, for all parameters alike: loading state.
    ///
    /// # Errors
    /// None but those of an optimizer's own.
    fn set_steps(&mut self, steps: u64) -> Result<()> {
        self.set_step_counts(&vec![steps; self.parameters().len()])
    }
}

/// Refuses settings that cannot be meant, as PyTorch's optimizers do: each of a name, a value and
/// what it must be below. Kernels compute in `f32`, which has to hold them.
fn check_settings(settings: &[(&str, f64, f64)], location: Location) -> Result<()> {
    for &(name, value, below) in settings {
        if !(0.0..below).contains(&value) || value > f64::from(f32::MAX) {
            let most = if below.is_finite() {
                format!(" and below {below}")
            } else {
                String::new()
            };
            let message =
                format!("optimizer: {name} must be a number from 0 up{most}, not {value}");
            return Err(usage_error(message, location));
        }
    }
    Ok(())
}

/// The engine of all parameters; none without parameters. One of another engine is refused by name, since
/// ids of cells mean nothing to it.
fn common_engine<'a>(
    what: &str,
    parameters: impl IntoIterator<Item = &'a Parameter>,
    location: Location,
) -> Result<Option<Engine>> {
    let mut parameters = parameters.into_iter();
    let Some(first) = parameters.next() else {
        return Ok(None);
    };
    if let Some(other) = parameters.find(|other| !other.engine().same(first.engine())) {
        let (other, first) = (other.name(), first.name());
        let what = format!("{what}: `{other}` is of another engine than `{first}`");
        return Err(Error::OtherEngine { what, location });
    }
    Ok(Some(first.engine().clone()))
}

/// What the state of parameters is saved by: their names if all of these are different, else their numbers.
fn names<'a>(parameters: impl Iterator<Item = &'a Parameter>) -> Vec<String> {
    let names: Vec<String> = parameters.map(Parameter::name).collect();
    let different = names.iter().collect::<BTreeSet<_>>().len();
    if different == names.len() {
        return names;
    }
    (0..names.len()).map(|i| i.to_string()).collect()
}

/// Has the gradients of parameters at hand. What is being added to one, where it lies, is added first.
fn gather_grads(
    engine: &Engine,
    state: &mut State,
    parameters: &[Parameter],
    location: Location,
) -> Result<()> {
    let ids: Vec<CellId> = parameters.iter().map(Parameter::id).collect();
    state.claim_grads(&ids, &engine.0.dropped_cells)?;
    let is_added_to = |parameter| {
        let cell = state.memory.grads.get(parameter);
        cell.is_some_and(|&cell| state.pending.graph.has_pending_writes(cell))
    };
    if ids.iter().any(is_added_to) {
        engine.evaluate_effects(state, None, location)?;
    }
    Ok(())
}

/// Whether a parameter has a gradient.
fn has_grad(parameter: &Parameter) -> bool {
    let (state, id) = (parameter.engine().lock(), parameter.id());
    state.memory.grads.contains_key(&id)
        || state.pending.grads.contains_key(&id)
        || state.recordings.has_grad(id)
}

/// Takes the gradient of a parameter out of the engine, as an operand of the pending graph. A
/// gradient that lives in a cell is dropped after the evaluation unless `keep`.
fn take_grad(engine: &Engine, state: &mut State, parameter: CellId, keep: bool) -> Option<Operand> {
    if let Some(&cell) = state.memory.grads.get(&parameter) {
        let operand = state.pending.graph.read_cell(cell);
        if !keep {
            state.memory.grads.remove(&parameter);
            engine.drop_cell(cell);
        }
        return operand;
    }
    if keep {
        state.pending.grads.get(&parameter).cloned()
    } else {
        state.pending.grads.remove(&parameter)
    }
}

fn zero_grad(parameters: &[Parameter]) {
    parameters.iter().for_each(Parameter::zero_grad);
}

/// What an optimizer emits per parameter that has a gradient. It may unlock the engine for a while.
type Emit<'a> =
    dyn for<'e> FnMut(&'e Engine, Locked<'e>, usize, Operand) -> Result<Locked<'e>> + 'a;

/// Gives up what is pending when it is dropped: some updates of a step without the others are none.
struct Unfinished<'a>(Option<&'a Engine>, Location);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(engine) = self.0 {
            engine.give_up(&mut engine.lock(), self.1);
        }
    }
}

/// Emits the updates of all parameters that have a gradient, then evaluates; answers which had one,
/// and what became of them. If that fails, gradients of earlier evaluations are still there.
fn step(
    parameters: &[Parameter],
    keep: bool,
    location: Location,
    emit: &mut Emit<'_>,
) -> Result<(Vec<bool>, Stepped)> {
    let Some(engine) = common_engine("step()", parameters, location)? else {
        return Ok((Vec::new(), Stepped::Updated));
    };
    let mut unfinished = Unfinished(Some(&engine), location);
    let mut state = engine.lock();
    let ids: Vec<CellId> = parameters.iter().map(Parameter::id).collect();
    state.claim_grads(&ids, &engine.0.dropped_cells)?;
    engine.keep_read_cells(&mut state, |_| true, location)?;
    engine.guard_grads(&mut state, &ids, location)?;
    let (mut updated, mut taken) = (vec![false; parameters.len()], Vec::new());
    for (index, parameter) in parameters.iter().enumerate() {
        let in_cell = state.memory.grads.get(&parameter.id()).copied();
        taken.extend(in_cell.map(|cell| (parameter.id(), cell)));
        let keep = keep || in_cell.is_some();
        if let Some(grad) = take_grad(&engine, &mut state, parameter.id(), keep) {
            updated[index] = true;
            state = emit(&engine, state, index, grad)?;
        }
    }
    unfinished.0 = None;
    let mut state = engine.once_unlent(state, None, location)?;
    engine.evaluate_all(&mut state, location)?;
    let skipped = state.record.last.skipped;
    if !keep {
        for (parameter, cell) in taken {
            state.memory.grads.remove(&parameter);
            engine.drop_cell(cell);
        }
    }
    let stepped = skipped.map_or(Stepped::Updated, |what| Stepped::Skipped { what });
    Ok((updated, stepped))
}
