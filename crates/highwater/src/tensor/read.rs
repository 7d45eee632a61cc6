//! Reading tensors: they are computed then.

use super::Tensor;
use crate::engine::state::State;
use crate::error::{located, usage_error};
use crate::pending::context::site;
use crate::pending::handle::HandleState;
use crate::store::memory::Memory;
use crate::{Error, Result};
use half::{bf16, f16};
use highwater_graph::{CellId, DType, Location, Operand, Phase, Source};
use highwater_ops::Element;
use std::collections::BTreeSet;

impl Tensor {
    /// Computes the tensor now and reads it, row-major. Backward can still be called afterwards.
    ///
    /// # Errors
    /// [`Error::Expired`]; [`Error::Usage`] for another element type; whatever stops the evaluation.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let location = Location::caller();
        if !T::is(self.dtype()) {
            let message = format!(
                "the tensor is {}, not {}",
                self.dtype(),
                std::any::type_name::<T>()
            );
            return Err(usage_error(message, location));
        }
        let state = self.engine.lock();
        if let Some((storage, spec)) = self.handle.storage() {
            return Memory::elements(&storage, &spec, location);
        }
        let mut state = self.engine.once_unlent(state, self.cell(), location)?;
        let operand = self.evaluate(&mut state, location)?;
        let storage = match operand.source {
            Source::Value(id) => {
                let gone = || Error::Internal("evaluated, but not there".into());
                state.memory.storages.get(&id).cloned().ok_or_else(gone)?
            }
            Source::Cell(id, _) => self.engine.copy_of(&mut state, id)?,
        };
        Memory::elements(&storage, &operand.spec, location)
    }

    /// Has a result without history be a value of its own.
    pub(super) fn settle(&self, state: &mut State, location: Location) -> Result<()> {
        self.handle.keep();
        let Some(id) = self.operand(state)?.value() else {
            return Ok(());
        };
        if !state.awaits_writes(id) {
            let targets = BTreeSet::from([id]);
            return self.engine.evaluate_some(state, &targets, None, location);
        }
        self.engine.evaluate_effects(state, None, location)?;
        state.compact(None);
        Ok(())
    }

    /// The cell that the tensor reads, if it is no more than that.
    pub(super) fn cell(&self) -> Option<CellId> {
        match &*self.handle.state() {
            HandleState::Cell(cell) => Some(cell.id),
            HandleState::Pending { operand, .. } => match operand.source {
                Source::Cell(id, _) => Some(id),
                Source::Value(_) => None,
            },
            _ => None,
        }
    }

    /// Computes the only element of the tensor now and reads it as an `f32`, as `loss.item()`: of any dtype of
    /// numbers, rounded to nearest. [`Tensor::to_vec`] reads each as what it is.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`]; [`Error::Usage`] if there is not exactly one element.
    #[track_caller]
    pub fn item(&self) -> Result<f32> {
        let location = Location::caller();
        if self.shape().numel() != 1 {
            let message = format!("item() is for one element, the shape is {}", self.shape());
            return Err(usage_error(message, location));
        }
        Ok(match self.dtype() {
            DType::F64 => self.to_vec::<f64>()?[0] as f32,
            DType::BF16 => self.to_vec::<bf16>()?[0].to_f32(),
            DType::F16 => self.to_vec::<f16>()?[0].to_f32(),
            DType::I64 => self.to_vec::<i64>()?[0] as f32,
            DType::I16 => self.to_vec::<i16>()?[0].into(),
            DType::U32 => self.to_vec::<u32>()?[0] as f32,
            DType::U8 | DType::Bool => self.to_vec::<u8>()?[0].into(),
            _ => self.to_vec::<f32>()?[0],
        })
    }

    /// Sees to it that the value is in storage of its own.
    pub(super) fn evaluate(&self, state: &mut State, location: Location) -> Result<Operand> {
        if let Some(why) = &state.poisoned {
            return Err(Error::Poisoned(why.clone()));
        }
        let operand = self.operand(state)?;
        match operand.source {
            Source::Cell(..) => {
                if state.pending.graph.is_awaited(&operand) {
                    self.engine.evaluate_effects(state, None, location)?;
                    state.compact(None);
                }
                let operand = self.operand(state)?;
                let site = site(location, Phase::Forward);
                let fresh = state.pending.graph.check_fresh("read", &operand, &site);
                fresh.map_err(|error| located(error, &site))?;
                Ok(operand)
            }
            Source::Value(id) if state.awaits_writes(id) => {
                self.handle.keep();
                self.engine.evaluate_effects(state, None, location)?;
                state.compact(None);
                self.evaluate(state, location)
            }
            Source::Value(id) => {
                let targets = BTreeSet::from([id]);
                self.engine
                    .evaluate_some(state, &targets, Some(&operand), location)?;
                self.operand(state)
            }
        }
    }
}
