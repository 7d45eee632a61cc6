//! Where parameters wait while nothing uses them: `model.to(Tier::Disk)`.

use super::parameter::Parameter;
use crate::error::usage_error;
use crate::{Error, Result};
use highwater_graph::Location;

/// Where the bytes of a parameter are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// The memory that kernels work in.
    Device,
    /// Host memory, where that is apart: [`Builder::host_memory`](crate::Builder::host_memory).
    Host,
    /// The disk: [`Builder::disk`](crate::Builder::disk).
    Disk,
}

impl Tier {
    /// As plans have it.
    fn below(self) -> Option<highwater_plan::Tier> {
        match self {
            Self::Device => None,
            Self::Host => Some(highwater_plan::Tier::Host),
            Self::Disk => Some(highwater_plan::Tier::Disk),
        }
    }
}

impl Parameter {
    /// Where it is now.
    ///
    /// # Errors
    /// [`Error::Internal`] for a bug of the engine.
    pub fn tier(&self) -> Result<Tier> {
        let state = self.engine().lock();
        let cell = state.memory.cells.get(self.id());
        Ok(match cell.ok_or_else(missing)?.home() {
            None => Tier::Device,
            Some(highwater_plan::Tier::Host) => Tier::Host,
            Some(highwater_plan::Tier::Disk) => Tier::Disk,
        })
    }

    /// Moves it there now, as `tensor.to("cpu")` moves a tensor. Its values and what may be done with it stay the
    /// same: whoever uses it next has it fetched, and where it is after a training step is for that step's plan
    /// to say. So this makes room for something else until then. What is smaller than 64 KiB stays in memory.
    ///
    /// # Errors
    /// [`Error::Usage`] for a tier that the engine was not given, or while a tensor made of the parameter's own
    /// memory holds it; [`Error::State`] or [`Error::Spill`] where there is no room.
    #[track_caller]
    pub fn to(&self, tier: Tier) -> Result<()> {
        let (engine, location) = (self.engine(), Location::caller());
        let tiers = &engine.0.tiers;
        if tier.below().is_some_and(|below| tiers.get(below).is_err()) {
            let how = match tier {
                Tier::Host => "Builder::host_memory",
                _ => "Builder::disk",
            };
            let message = format!("the engine has no {tier:?} to move to: give it one by {how}");
            return Err(usage_error(message, location));
        }
        let mut state = engine.lock();
        loop {
            let (cells, graph) = state.cells();
            let cell = cells.get(self.id()).ok_or_else(missing)?;
            let (is_there, bytes) = (cell.home() == tier.below(), cell.bytes());
            if is_there || bytes < crate::store::cells::MOVABLE_BYTES {
                return Ok(());
            }
            if !cell.is_movable() {
                let message = "the parameter's memory is held by another tensor: drop that first";
                return Err(usage_error(message.to_owned(), location));
            }
            let homes = [(self.id(), tier.below())];
            match cells.bring_home(&engine.0.store, graph, &homes, false) {
                Err(error)
                    if error.is_full()
                        && tier == Tier::Device
                        && (engine.give_up_residents(&mut state)
                            || engine.make_room(&mut state, bytes, |id| id == self.id())?) => {}
                other => return other,
            }
        }
    }
}

/// A parameter's cell is there as long as it is.
fn missing() -> Error {
    Error::Internal("a parameter has no bytes".into())
}
