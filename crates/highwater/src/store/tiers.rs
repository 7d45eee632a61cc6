//! What lies below the memory that kernels work in: host memory, where that is apart, and a disk.

use crate::store::disk::DiskTier;
use crate::store::host::HostTier;
use crate::{Error, Result};
use highwater_memory::spill::{Extent, SpillError, Tag};
use highwater_plan::{self as plan, Link, Tier};
use std::fmt::Debug;
use std::sync::Arc;

/// A tier that cells and values may wait on: who has which part of it, and how bytes get there and back.
pub(crate) trait Below: Debug + Send + Sync {
    /// Which one it is.
    fn tier(&self) -> Tier;

    /// What the planner is told, if plans may put so many bytes there.
    fn link(&self, room_bytes: u64) -> Link;

    /// What a cell of so many bytes takes there.
    fn cost(&self, bytes: u64) -> u64;

    /// What is taken there.
    fn usage(&self) -> TierUse;

    /// A part of it for payloads of so many bytes. It holds nothing yet.
    fn take(&self, bytes: u64, what: &str) -> Result<Extent>;

    /// Gives such a part back.
    fn give(&self, extent: Extent);

    /// Where an area of so many bytes starts that a plan may use until it [leaves](Below::leave) it. What
    /// others take meanwhile does not reach it.
    fn area(&self, bytes: u64) -> Result<u64>;

    /// The plan is over that uses the area.
    fn leave(&self);

    /// Puts a payload there.
    fn write(&self, extent: Extent, tag: Tag, payload: &[u8]) -> Result<(), SpillError>;

    /// Gets back what was put there last, under this tag.
    fn read(&self, extent: Extent, tag: Tag, payload: &mut [u8]) -> Result<(), SpillError>;

    /// Moves a part of it to the lowest place there is, its own counted, with what a cell has put there: for
    /// tiers where holes are in the way of what comes later. If that fails, what is there is there.
    fn lower(&self, _extent: &mut Extent, _cell: Option<u64>) -> Result<(), SpillError> {
        Ok(())
    }
}

/// Bytes of a tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierUse {
    /// Bytes in use now.
    pub bytes: u64,
    /// The most that were in use at any time.
    pub most_bytes: u64,
    /// The most that may be.
    pub room_bytes: u64,
}

/// Bytes of each tier: see [`Engine::tiers`](crate::Engine::tiers).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierUses {
    /// The memory that kernels work in: state and the arena of plans. Room is what the budget leaves for
    /// them.
    pub device: TierUse,
    /// Host memory, where it is apart: cells, and values of the plan that ran last.
    pub host: Option<TierUse>,
    /// The disk: cells, and at most values of plans.
    pub disk: Option<TierUse>,
}

/// A part of a tier that is given back when its owner goes.
#[derive(Debug)]
pub(crate) struct TierExtent {
    below: Arc<dyn Below>,
    extent: Extent,
}

impl TierExtent {
    pub(crate) fn take(below: &Arc<dyn Below>, bytes: u64, what: &str) -> Result<Self> {
        Ok(Self {
            extent: below.take(bytes, what)?,
            below: Arc::clone(below),
        })
    }

    pub(crate) fn tier(&self) -> Tier {
        self.below.tier()
    }

    /// What it takes there.
    pub(crate) fn cost(&self) -> u64 {
        self.below.cost(self.extent.capacity)
    }

    /// Where it starts there.
    pub(crate) fn offset(&self) -> u64 {
        self.extent.offset
    }

    /// Moves it down to close a hole, with what a cell has put there. Answers whether there was one.
    pub(crate) fn lower(&mut self, cell: Option<u64>) -> Result<bool, SpillError> {
        let at = self.extent.offset;
        self.below.lower(&mut self.extent, cell)?;
        Ok(self.extent.offset < at)
    }

    pub(crate) fn write(&self, tag: Tag, payload: &[u8]) -> Result<(), SpillError> {
        self.below.write(self.extent, tag, payload)
    }

    pub(crate) fn read(&self, tag: Tag, payload: &mut [u8]) -> Result<(), SpillError> {
        self.below.read(self.extent, tag, payload)
    }
}

impl Drop for TierExtent {
    fn drop(&mut self) {
        self.below.give(self.extent);
    }
}

/// The tiers that an engine has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tiers {
    pub(crate) host: Option<Arc<HostTier>>,
    pub(crate) disk: Option<Arc<DiskTier>>,
    /// Whether parameters may be parts of files, and wait there.
    pub(crate) files: bool,
}

impl Tiers {
    pub(crate) fn any(&self) -> bool {
        self.host.is_some() || self.disk.is_some()
    }

    /// The disk, if plans or cells may ever write to it.
    pub(crate) fn spill(&self) -> Option<&Arc<DiskTier>> {
        self.disk.as_ref().filter(|disk| !disk.is_of_files())
    }

    /// Whether cells may leave memory for files alone.
    pub(crate) fn are_files_alone(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.is_of_files())
    }

    /// All that there are, nearest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = Arc<dyn Below>> {
        Tier::ALL.into_iter().filter_map(|tier| self.get(tier).ok())
    }

    pub(crate) fn get(&self, tier: Tier) -> Result<Arc<dyn Below>> {
        let host = || self.host.clone().map(|host| host as Arc<dyn Below>);
        let disk = || self.disk.clone().map(|disk| disk as Arc<dyn Below>);
        let found = match tier {
            Tier::Host => host(),
            Tier::Disk => disk(),
        };
        found.ok_or_else(|| Error::Internal("a tier is to be used that is not there".into()))
    }

    /// Those that plans may write to.
    pub(crate) fn writable(&self) -> Self {
        let disk = self.disk.clone().filter(|disk| disk.link(0).writable);
        Self {
            host: self.host.clone(),
            disk,
            files: self.files,
        }
    }

    /// A place for so many bytes on the nearest tier that has one; if none has, what the last one says.
    pub(crate) fn take(&self, bytes: u64, what: &str) -> Result<TierExtent> {
        let mut full = Error::HostFull {
            what: what.to_owned(),
            bytes,
            room_bytes: 0,
            taken_bytes: 0,
        };
        for below in self.all() {
            match TierExtent::take(&below, bytes, what) {
                Ok(place) => return Ok(place),
                Err(error) => full = error,
            }
        }
        Err(full)
    }

    /// What the planner is told, if plans may put so much on each.
    pub(crate) fn links(&self, room: impl Fn(&dyn Below) -> u64) -> plan::Tiers {
        let link = |below: &dyn Below| below.link(room(below));
        plan::Tiers {
            host: self.host.as_deref().map(|host| link(host)),
            disk: self.disk.as_deref().map(|disk| link(disk)),
        }
    }
}
