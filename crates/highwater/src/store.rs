//! The engine's memory: one arena for state, one for plans, one budget over both.

use crate::{Error, Result};
use highwater_graph::Category;
use highwater_memory::{Arena, Category as Kind, Events, Slot, Slots, SlotsError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Both arenas. State (cells, inputs, kept values) lies in slots of the one; plans run in the other.
#[derive(Debug)]
pub(crate) struct Store {
    slots: Mutex<Slots>,
    state: Arc<Arena>,
    plans: Arena,
    /// Bytes that both arenas together may map.
    budget: AtomicU64,
    /// How far up the plan arena holds values between two plans of one step.
    held: AtomicU64,
    pub(crate) events: Events,
    /// Nothing is ever touched: only address space is taken.
    dry: bool,
}

/// Bytes of state; given back when the last owner drops it.
#[derive(Debug)]
pub(crate) struct Storage {
    store: Arc<Store>,
    slot: Slot,
    category: Category,
}

impl Store {
    /// Reserves address space for arenas of up to `capacity` bytes each.
    pub(crate) fn new(capacity: u64, budget: u64, dry: bool) -> Result<Self> {
        let state = Arc::new(Arena::reserve(capacity)?);
        Ok(Self {
            slots: Mutex::new(Slots::new(Arc::clone(&state), budget)),
            state,
            plans: Arena::reserve(capacity)?,
            budget: AtomicU64::new(budget),
            held: AtomicU64::new(0),
            events: Events::new(),
            dry,
        })
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes zeroed bytes for state, giving up the plan arena's idle pages if they are in the way.
    pub(crate) fn alloc(
        self: &Arc<Self>,
        bytes: u64,
        category: Category,
        what: &'static str,
    ) -> Result<Arc<Storage>> {
        let failed = |source| Error::State {
            what,
            bytes,
            source,
        };
        let mut slots = self.slots();
        let budget = if self.dry { u64::MAX } else { self.budget() };
        slots.set_limit(budget.saturating_sub(self.plans.mapped_bytes()));
        let slot = match slots.alloc(bytes) {
            Err(SlotsError::Full { .. }) => {
                self.plans.set_height(self.held.load(Ordering::Acquire))?;
                slots.set_limit(budget.saturating_sub(self.plans.mapped_bytes()));
                slots.alloc(bytes)
            }
            other => other,
        }
        .map_err(failed)?;
        drop(slots);
        self.record(highwater_memory::Action::Alloc, category, bytes);
        let storage = Arc::new(Storage {
            store: Arc::clone(self),
            slot,
            category,
        });
        if !self.dry {
            crate::raw::zero(storage.address(), bytes);
        }
        Ok(storage)
    }

    fn record(&self, action: highwater_memory::Action, category: Category, bytes: u64) {
        self.events.record(&highwater_memory::Event {
            action,
            bytes,
            category: kind(category),
            label: highwater_memory::Label::Text("state"),
        });
    }

    /// Bytes that both arenas together may map.
    pub(crate) fn budget(&self) -> u64 {
        self.budget.load(Ordering::Acquire)
    }

    pub(crate) fn set_budget(&self, bytes: u64) {
        self.budget.store(bytes, Ordering::Release);
    }

    /// Bytes that a plan may use now.
    pub(crate) fn plan_budget(&self) -> u64 {
        self.budget().saturating_sub(self.state.mapped_bytes())
    }

    /// Bytes mapped for state.
    pub(crate) fn state_bytes(&self) -> u64 {
        self.state.mapped_bytes()
    }

    /// Bytes mapped for both.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.state.mapped_bytes() + self.plans.mapped_bytes()
    }

    /// Maps the plan arena at exactly this height.
    pub(crate) fn prepare_plan(&self, height: u64) -> Result<()> {
        Ok(self.plans.set_height(height)?)
    }

    /// Gives back the plan arena's pages above what the next plan will find there.
    pub(crate) fn release_idle(&self) {
        // A system that refuses leaves them mapped, and counted.
        let _ = self.plans.set_height(self.held.load(Ordering::Acquire));
    }

    /// How far up the plan arena holds values between two plans of one step.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Acquire)
    }

    /// Says how far up values lie that the next plan will find.
    pub(crate) fn hold(&self, height: u64) {
        self.held.store(height, Ordering::Release);
    }

    /// The arena that plans run in.
    pub(crate) fn plans(&self) -> &Arena {
        &self.plans
    }

    /// Both arenas, to measure what lies outside them.
    pub(crate) fn arenas(&self) -> [&Arena; 2] {
        [&self.state, &self.plans]
    }
}

impl Storage {
    /// Where the bytes are. Valid as long as the storage lives.
    pub(crate) fn address(&self) -> *mut u8 {
        let address = self.store.state.ptr(self.slot.offset, self.slot.bytes);
        address.expect("a slot lies below the height of its arena for as long as it is taken")
    }

    /// How many there are.
    pub(crate) fn bytes(&self) -> u64 {
        self.slot.bytes
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // A system that refuses to take pages back leaves them mapped; the slot is free all the same.
        let _ = self.store.slots().free(self.slot);
        self.store.record(
            highwater_memory::Action::Free,
            self.category,
            self.slot.bytes,
        );
    }
}

pub(crate) fn kind(category: Category) -> Kind {
    match category {
        Category::Parameter => Kind::Parameter,
        Category::Gradient => Kind::Gradient,
        Category::OptimizerState => Kind::OptimizerState,
        Category::Activation => Kind::Activation,
        Category::Workspace => Kind::Workspace,
        Category::Input => Kind::Input,
        Category::Buffer => Kind::Other,
    }
}
