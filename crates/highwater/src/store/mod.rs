//! The engine's memory: an arena for state, one for plans, beside tiers below rooms for cells that
//! may go there, and one budget over all.

pub(crate) mod addresses;
pub(crate) mod cells;
pub(crate) mod disk;
pub(crate) mod host;
pub(crate) mod io;
pub(crate) mod lending;
pub(crate) mod limits;
pub(crate) mod memory;
mod storage;
pub(crate) mod tiers;

use crate::store::addresses::Addresses;
use crate::{Error, Result};
use highwater_memory::{Arena, Rooms, RoomsError, Slots, SlotsError, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use storage::Taken;

pub(crate) use storage::Storage;

/// All memory. State (inputs, kept values, cells) lies in slots of the one arena; plans run in the
/// other. Cells that may move below memory and back have rooms, which are free wherever they lie.
#[derive(Debug)]
pub(crate) struct Store {
    slots: Mutex<Slots>,
    state: Arc<Arena>,
    plans: Arena,
    rooms: Option<Mutex<Rooms>>,
    /// Bytes that all together may map.
    budget: AtomicU64,
    /// What they may be at most.
    most_budget: u64,
    /// Bytes of inputs and of results that outlived their step.
    values: AtomicU64,
    /// The most bytes that were mapped for all.
    most: AtomicU64,
    /// How far up the plan arena holds values between two plans of one step.
    kept: AtomicU64,
    /// The most bytes mapped since [`Store::take_peak`].
    peak: AtomicU64,
    /// Nothing is ever touched: only address space is taken.
    dry: bool,
}

impl Store {
    /// Reserves address space.
    pub(crate) fn new(
        system: &dyn System,
        addresses: Addresses,
        budget: u64,
        dry: bool,
    ) -> Result<Self> {
        let Addresses {
            arena,
            rooms,
            most_budget,
            ..
        } = addresses;
        let budget = budget.min(most_budget);
        let state = Arc::new(Arena::reserve_on(system, arena)?);
        let rooms = rooms
            .map(|rooms| Rooms::reserve(system, rooms))
            .transpose()?;
        Ok(Self {
            slots: Mutex::new(Slots::new(Arc::clone(&state), budget)),
            state,
            plans: Arena::reserve_on(system, arena)?,
            rooms: rooms.map(Mutex::new),
            budget: AtomicU64::new(budget),
            most_budget,
            values: AtomicU64::new(0),
            most: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            dry,
        })
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes zeroed bytes for state, giving up the plan arena's idle pages if they are in the way.
    pub(crate) fn alloc(self: &Arc<Self>, bytes: u64, what: &'static str) -> Result<Storage> {
        let failed = |source| Error::State {
            what,
            bytes,
            source,
        };
        self.give_up_idle(bytes)?;
        let mut slots = self.slots();
        let budget = if self.dry { u64::MAX } else { self.budget() };
        let limit = || budget.saturating_sub(self.plans.mapped_bytes() + self.room_bytes());
        slots.set_limit(limit());
        let slot = match slots.alloc(bytes) {
            Err(SlotsError::Full { .. }) => {
                self.plans.set_height(self.kept.load(Ordering::Acquire))?;
                slots.set_limit(limit());
                slots.alloc(bytes)
            }
            other => other,
        }
        .map_err(failed)?;
        drop(slots);
        let mut storage = self.storage(Taken::Slot(slot), bytes);
        if !self.dry {
            storage.bytes_mut().fill(0);
        }
        Ok(storage)
    }

    /// Takes zeroed bytes for a cell that may move below memory and back; see [`Store::alloc`].
    pub(crate) fn alloc_room(self: &Arc<Self>, bytes: u64, what: &'static str) -> Result<Storage> {
        let Some(rooms) = &self.rooms else {
            return self.alloc(bytes, what);
        };
        self.give_up_idle(bytes)?;
        let mut rooms = rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let budget = if self.dry { u64::MAX } else { self.budget() };
        let others = self.state.mapped_bytes() + rooms.bytes();
        let left = || budget.saturating_sub(others + self.plans.mapped_bytes());
        if rooms.cost(bytes) > left() {
            self.plans.set_height(self.kept.load(Ordering::Acquire))?;
        }
        let full = SlotsError::Full {
            asked: bytes,
            live: others,
            limit: budget.saturating_sub(self.plans.mapped_bytes()),
            largest_hole: 0,
        };
        let failed = |source| Error::State {
            what,
            bytes,
            source,
        };
        if rooms.cost(bytes) > left() {
            return Err(failed(full));
        }
        let room = rooms.take(bytes).map_err(|error| match error {
            RoomsError::Full { .. } => failed(full),
            RoomsError::Arena(source) => Error::Arena(source),
        })?;
        drop(rooms);
        let mut storage = self.storage(Taken::Room(room), bytes);
        // Elsewhere pages do not come back as zeros.
        if !self.dry && cfg!(not(target_os = "linux")) {
            storage.bytes_mut().fill(0);
        }
        Ok(storage)
    }

    /// In a dry run nothing is refused; but what a run would give up for these bytes goes there too.
    fn give_up_idle(&self, bytes: u64) -> Result<()> {
        if self.dry && self.mapped_bytes().saturating_add(bytes) > self.budget() {
            self.plans.set_height(self.kept.load(Ordering::Acquire))?;
        }
        Ok(())
    }

    /// The most bytes that were mapped since the peak was last taken.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Acquire).max(self.mapped_bytes())
    }

    /// The most bytes that were mapped since this was last asked.
    pub(crate) fn take_peak(&self) -> u64 {
        let now = self.mapped_bytes();
        self.peak.swap(now, Ordering::AcqRel).max(now)
    }

    fn storage(self: &Arc<Self>, taken: Taken, bytes: u64) -> Storage {
        self.note();
        Storage::new(Arc::clone(self), taken, bytes)
    }

    /// Takes back what a storage had.
    fn give(&self, taken: Taken) {
        // A system that refuses to take pages back leaves them mapped; the slot is free all the same.
        match taken {
            Taken::Slot(slot) => drop(self.slots().free(slot)),
            Taken::Room(room) => drop(self.rooms().map(|mut rooms| rooms.give(room))),
        }
    }

    fn rooms(&self) -> Option<MutexGuard<'_, Rooms>> {
        let rooms = self.rooms.as_ref()?;
        Some(rooms.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Bytes that cells take that may move.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.rooms().map_or(0, |rooms| rooms.bytes())
    }

    /// What a cell of `bytes` takes that may move.
    pub(crate) fn room_cost(&self, bytes: u64) -> u64 {
        self.rooms().map_or(0, |rooms| rooms.cost(bytes))
    }

    /// Bytes of inputs and of results that outlived their step.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.values.load(Ordering::Acquire)
    }

    /// Bytes that all together may map.
    pub(crate) fn budget(&self) -> u64 {
        self.budget.load(Ordering::Acquire)
    }

    pub(crate) fn set_budget(&self, bytes: u64) {
        self.budget
            .store(bytes.min(self.most_budget), Ordering::Release);
    }

    /// Bytes mapped for state, cells that may move among it.
    pub(crate) fn state_bytes(&self) -> u64 {
        self.state.mapped_bytes() + self.room_bytes()
    }

    /// Bytes mapped for all.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.state_bytes() + self.plans.mapped_bytes()
    }

    /// The most that was mapped for all at any time.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.most.load(Ordering::Acquire)
    }

    fn note(&self) {
        let mapped = self.mapped_bytes();
        self.most.fetch_max(mapped, Ordering::AcqRel);
        self.peak.fetch_max(mapped, Ordering::AcqRel);
    }

    /// Maps the plan arena at exactly this height.
    pub(crate) fn prepare_plan(&self, height: u64) -> Result<()> {
        self.plans.set_height(height)?;
        self.note();
        Ok(())
    }

    /// Gives back the plan arena's pages above what the next plan will find there.
    pub(crate) fn release_idle(&self) {
        // A system that refuses leaves them mapped, and counted.
        let _ = self.plans.set_height(self.kept.load(Ordering::Acquire));
    }

    /// How far up the plan arena holds values between two plans of one step.
    pub(crate) fn kept(&self) -> u64 {
        self.kept.load(Ordering::Acquire)
    }

    /// Says how far up values lie that the next plan will find.
    pub(crate) fn keep_below(&self, height: u64) {
        self.kept.store(height, Ordering::Release);
    }

    /// The arena that plans run in.
    pub(crate) fn plans(&self) -> &Arena {
        &self.plans
    }

    /// Calls a function with all address space of it.
    pub(crate) fn with_arenas<R>(&self, look: impl FnOnce(&[&Arena]) -> R) -> R {
        let rooms = self.rooms();
        let mut arenas = vec![&*self.state, &self.plans];
        arenas.extend(rooms.as_ref().map(|rooms| rooms.arena()));
        look(&arenas)
    }
}
