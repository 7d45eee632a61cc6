//! Where parameters wait while nothing uses them: `model.to(Tier::Disk)`.

use super::parameter::Parameter;
use crate::error::usage_error;
use crate::store::cells::CellBytes;
use crate::{Error, Result};
use highwater_graph::Location;

/// Where the bytes of a parameter are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// The memory that kernels work in.
    Device,
    /// Host memory, where that is apart: [`Builder::host_memory`](crate::Builder::host_memory).
    Host,
    /// The disk: [`Builder::disk`](crate::Builder::disk); or the file that the parameter is a part of.
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

    fn is_in_file(&self) -> bool {
        let state = self.engine().lock();
        state
            .memory
            .cells
            .get(self.id())
            .is_some_and(CellBytes::is_in_file)
    }

    /// Moves it there now, as `tensor.to("cpu")` moves a tensor; its gradient and an optimizer's moments stay where
    /// they are. Its values and what may be done with it stay the same: whoever uses it next has it fetched, and
    /// the next training step's plan says anew where it is from then on. So this makes room for something else
    /// until then. What is smaller than 64 KiB stays in memory.
    ///
    /// # Errors
    /// [`Error::Usage`] for a tier that the engine was not given, and while a closure has the parameter's bytes;
    /// [`Error::State`], [`Error::HostFull`] or [`Error::DiskFull`] where there is no room: it is where it was then.
    #[track_caller]
    pub fn to(&self, tier: Tier) -> Result<()> {
        let (engine, location) = (self.engine(), Location::caller());
        let tiers = &engine.0.tiers;
        let is_none = match tier {
            Tier::Device => false,
            Tier::Host => tiers.host.is_none(),
            Tier::Disk => tiers.spill().is_none() && !self.is_in_file(),
        };
        if is_none {
            let how = match tier {
                Tier::Host => "Builder::host_memory",
                _ => "Builder::disk",
            };
            let message = format!("the engine has no {tier:?} to move to: give it one by {how}");
            return Err(usage_error(message, location));
        }
        let mut state = engine.lock();
        let cell = state.memory.cells.get(self.id()).ok_or_else(missing)?;
        let (from, bytes) = (cell.home(), cell.bytes());
        if from == tier.below() || bytes < crate::store::cells::MOVABLE_BYTES {
            return Ok(());
        }
        if state.memory.lending.has(self.id()) || !cell.is_movable() {
            let message = "a closure has the parameter's bytes: move it before or after";
            return Err(usage_error(message.to_owned(), location));
        }
        let moved = engine.with_room(&mut state, |state| {
            let (cells, graph) = state.cells();
            let homes = [(self.id(), tier.below())];
            cells.bring_home(&engine.0.store, graph, &homes, false)
        });
        let (cells, graph) = state.cells();
        if moved.is_err() {
            // It may have come half its way. Where it was there was room.
            let _ = cells.bring_home(&engine.0.store, graph, &[(self.id(), from)], false);
        }
        cells.reopen_homes();
        moved
    }
}

/// A parameter's cell is there as long as it is.
fn missing() -> Error {
    Error::Internal("a parameter has no bytes".into())
}
