//! Bytes of state, for as long as somebody owns them.

#![expect(unsafe_code, reason = "bytes lie at addresses of arenas")]

use crate::store::Store;
use crate::{Error, Result};
use highwater_memory::{ArenaError, DeviceAddress, Room, Slot};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of state, zeros at first; given back when the last owner drops it.
#[derive(Debug)]
pub(crate) struct Storage {
    store: Arc<Store>,
    taken: Taken,
    bytes: u64,
    /// It is an input, or a result that outlives its step.
    is_value: bool,
}

/// What a storage has taken.
#[derive(Debug, Clone, Copy)]
pub(super) enum Taken {
    Slot(Slot),
    Room(Room),
}

impl Storage {
    pub(super) fn new(store: Arc<Store>, taken: Taken, bytes: u64) -> Self {
        Self {
            store,
            taken,
            bytes,
            is_value: false,
        }
    }

    /// Counts it among inputs and results that outlive their step.
    pub(crate) fn of_value(mut self) -> Self {
        if !std::mem::replace(&mut self.is_value, true) {
            self.store.values.fetch_add(self.bytes, Ordering::AcqRel);
        }
        self
    }

    /// Where the bytes are. Valid as long as the storage lives.
    pub(crate) fn address(&self) -> DeviceAddress {
        match self.taken {
            Taken::Slot(slot) => {
                let address = self.store.state.address(slot.offset, slot.bytes);
                address
                    .expect("a slot lies below the height of its arena for as long as it is taken")
            }
            Taken::Room(room) => {
                let rooms = self.store.rooms();
                let address = rooms.and_then(|rooms| rooms.address(room));
                address.expect("a room is there for as long as it is taken")
            }
        }
    }

    /// How many there are.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it goes back page by page, wherever it lies.
    pub(crate) fn is_room(&self) -> bool {
        matches!(self.taken, Taken::Room(_))
    }

    /// The bytes, for the only owner.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: kernels and user code reach a storage through an owner, and this is the only one.
        unsafe { self.shared_mut() }
    }

    /// The bytes, to read.
    ///
    /// # Safety
    /// Nobody may write them while the slice lives.
    pub(crate) unsafe fn shared(&self) -> &[u8] {
        // SAFETY: mapped for as long as the storage lives, zeroed when it was taken, and not written by the
        // caller's promise.
        unsafe { std::slice::from_raw_parts(self.address().as_ptr(), self.bytes as usize) }
    }

    /// The bytes, to write.
    ///
    /// # Safety
    /// Nobody else may read or write them while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the caller's promise is the borrow")]
    pub(crate) unsafe fn shared_mut(&self) -> &mut [u8] {
        // SAFETY: as above, and of nobody else by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.address().as_ptr(), self.bytes as usize) }
    }

    /// Fills it with what an earlier plan of the step left in the arena of plans.
    ///
    /// # Errors
    /// [`Error::Arena`] if the arena does not reach so far, or as the device says.
    pub(crate) fn copy_of_planned(&mut self, offset: u64) -> Result<()> {
        let store = Arc::clone(&self.store);
        let plans = store.plans();
        plans.address(offset, self.bytes)?;
        // SAFETY: the arena reaches so far. No plan runs: that takes the engine's lock, which who settles the
        // results of one holds.
        let copied = unsafe { plans.memory().copy_out(offset, self.bytes_mut()) };
        let bytes = self.bytes;
        copied.map_err(|source| Error::Arena(ArenaError::Copy { bytes, source }))
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if self.is_value {
            self.store.values.fetch_sub(self.bytes, Ordering::AcqRel);
        }
        self.store.give(self.taken);
    }
}
