//! First-fit allocation in an arena, for what outlives plans: cells and kept values.

use std::sync::Arc;

use crate::arena::{Arena, ArenaError};
use crate::places::Places;
use crate::size::Bytes;

/// Offsets and sizes of slots are multiples of this many bytes.
pub const SLOT_ALIGNMENT: u64 = 64;

/// [`Places`] over the offsets of one [`Arena`].
///
/// The arena's height follows the end of the topmost slot: it grows when nothing fits below, and is
/// lowered when the top is free.
#[derive(Debug)]
pub struct Slots {
    arena: Arc<Arena>,
    limit: u64,
    places: Places,
}

/// A stretch of the arena that belongs to whoever allocated it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Where it starts, in bytes from the arena's base; a multiple of [`SLOT_ALIGNMENT`].
    pub offset: u64,
    /// Its size in bytes as asked for.
    pub bytes: u64,
}

/// What can go wrong with [`Slots`].
#[derive(Debug, thiserror::Error)]
pub enum SlotsError {
    /// No hole is large enough, and the limit leaves no room to grow.
    #[error(
        "{} are in use of {} that state may take, and no hole has more than {}",
        Bytes(*live), Bytes(*limit), Bytes(*largest_hole)
    )]
    Full {
        /// The bytes asked for.
        asked: u64,
        /// The bytes in slots now.
        live: u64,
        /// The bytes that the arena may cost.
        limit: u64,
        /// The largest hole between slots, in bytes.
        largest_hole: u64,
    },
    /// The slot to be freed was not allocated here, or was freed already.
    #[error("no slot of {} bytes is in use at offset {}", .0.bytes, .0.offset)]
    NotInUse(Slot),
    /// The arena refused to grow or to be lowered.
    #[error(transparent)]
    Arena(#[from] ArenaError),
}

impl Slots {
    /// An empty allocator over `arena`, which is to cost no more than `limit` bytes. Nobody else may
    /// set the arena's height from now on.
    pub fn new(arena: Arc<Arena>, limit: u64) -> Self {
        let places = Places::new(arena.capacity());
        Self {
            arena,
            limit,
            places,
        }
    }

    /// Takes `bytes` from the lowest hole that is large enough, or from above the topmost slot. The
    /// contents are whatever was there before. Nothing can be stored in a slot of 0 bytes, but it has
    /// an offset of its own.
    ///
    /// # Errors
    /// [`SlotsError::Full`] above the limit or the arena's capacity; [`SlotsError::Arena`] when the
    /// system refuses to grow it. Nothing has changed then.
    pub fn alloc(&mut self, bytes: u64) -> Result<Slot, SlotsError> {
        let offset = Self::size(bytes).and_then(|size| self.places.take(size));
        let offset = offset.ok_or_else(|| self.full(bytes))?;
        let top = self.places.top();
        if top > self.arena.height() {
            let is_full = self.arena.round_up(top) > self.limit;
            let refused = (!is_full).then(|| self.arena.set_height(top));
            if let None | Some(Err(_)) = refused {
                self.places.give(offset);
            }
            refused.ok_or_else(|| self.full(bytes))??;
        }
        Ok(Slot { offset, bytes })
    }

    /// Gives a slot back. When it was the topmost, the arena is lowered to the end of the one below.
    ///
    /// # Errors
    /// [`SlotsError::NotInUse`] for what is not in use, and nothing has changed. [`SlotsError::Arena`]
    /// when the system refuses to lower the arena; the slot is free all the same.
    pub fn free(&mut self, slot: Slot) -> Result<(), SlotsError> {
        let taken = self.places.size(slot.offset);
        if taken.is_none() || taken != Self::size(slot.bytes) {
            return Err(SlotsError::NotInUse(slot));
        }
        self.places.give(slot.offset);
        if self.places.top() < self.arena.height() {
            self.arena.set_height(self.places.top())?;
        }
        Ok(())
    }

    /// Changes the limit in bytes. A limit below the height now only forbids to grow.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// The bytes that the arena may cost.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The end of the topmost slot, in bytes from the base: the arena's height.
    pub fn height(&self) -> u64 {
        self.places.top()
    }

    /// The bytes in slots, each rounded up to [`SLOT_ALIGNMENT`].
    pub fn live_bytes(&self) -> u64 {
        self.places.bytes()
    }

    /// The arena underneath.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// The bytes that a slot takes; none where that is more than there are addresses.
    fn size(bytes: u64) -> Option<u64> {
        bytes.max(1).checked_next_multiple_of(SLOT_ALIGNMENT)
    }

    fn full(&self, asked: u64) -> SlotsError {
        SlotsError::Full {
            asked,
            live: self.places.bytes(),
            limit: self.limit.min(self.arena.capacity()),
            largest_hole: self.places.largest_hole(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slots(capacity: u64, limit: u64) -> Slots {
        Slots::new(Arc::new(Arena::reserve(capacity).unwrap()), limit)
    }

    #[test]
    fn holes_are_filled_first_and_the_top_is_lowered() {
        let mut slots = slots(1 << 20, 1 << 20);
        let [a, b, c] = [100, 200, 300].map(|bytes| slots.alloc(bytes).unwrap());
        assert_eq!([a.offset, b.offset, c.offset], [0, 128, 384]);
        assert_eq!((slots.height(), slots.live_bytes()), (704, 704));
        slots.free(a).unwrap();
        assert_eq!(slots.alloc(64).unwrap().offset, 0);
        slots.free(b).unwrap();
        slots.free(c).unwrap();
        assert_eq!((slots.height(), slots.live_bytes()), (64, 64));
        assert_eq!(slots.arena().height(), 64);
    }

    #[test]
    fn what_is_not_in_use_cannot_be_freed() {
        let mut slots = slots(1 << 20, 1 << 20);
        let slot = slots.alloc(100).unwrap();
        for wrong in [Slot { offset: 64, ..slot }, Slot { bytes: 500, ..slot }] {
            assert!(matches!(slots.free(wrong), Err(SlotsError::NotInUse(_))));
        }
        slots.free(slot).unwrap();
        assert!(matches!(slots.free(slot), Err(SlotsError::NotInUse(_))));
    }

    #[test]
    fn the_limit_bounds_what_is_mapped() {
        let mut slots = slots(1 << 20, 100_000);
        let page = slots.arena().round_up(1);
        let most = 100_000 / page * page;
        assert!(matches!(
            slots.alloc(most + 1),
            Err(SlotsError::Full { .. })
        ));
        assert!(matches!(
            slots.alloc(u64::MAX),
            Err(SlotsError::Full { .. })
        ));
        let slot = slots.alloc(most).unwrap();
        assert_eq!(slots.arena().mapped_bytes(), most);
        let error = slots.alloc(1).unwrap_err();
        let full = format!("{} are in use of", Bytes(most));
        assert!(error.to_string().starts_with(&full), "{error}");
        slots.free(slot).unwrap();
        slots.set_limit(u64::MAX);
        assert!(matches!(
            slots.alloc((1 << 20) + 1),
            Err(SlotsError::Full { .. })
        ));
    }

    /// A map of 64-byte granules, searched from the bottom each time.
    #[derive(Default)]
    struct Naive(Vec<bool>);

    impl Naive {
        fn alloc(&mut self, bytes: u64, limit: u64) -> Option<u64> {
            let granules = bytes.max(1).div_ceil(64) as usize;
            let fits = |start: usize| self.0.iter().skip(start).take(granules).all(|taken| !taken);
            let start = (0..=self.0.len()).find(|&start| fits(start))?;
            let end = start + granules;
            // Only what is above the top now needs room under the limit.
            if end > self.0.len() {
                if (end as u64 * 64).next_multiple_of(rustix::param::page_size() as u64) > limit {
                    return None;
                }
                self.0.resize(end, false);
            }
            self.0[start..end].fill(true);
            Some(start as u64 * 64)
        }

        fn free(&mut self, slot: Slot) {
            let start = (slot.offset / 64) as usize;
            self.0[start..start + slot.bytes.max(1).div_ceil(64) as usize].fill(false);
            let top = self
                .0
                .iter()
                .rposition(|&taken| taken)
                .map_or(0, |last| last + 1);
            self.0.truncate(top);
        }
    }

    #[derive(Clone, Debug)]
    enum Act {
        Alloc(u64),
        Free(usize),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let bytes = prop_oneof![0..200_u64, 0..20_000_u64];
        let act = prop_oneof![
            bytes.prop_map(Act::Alloc),
            any::<usize>().prop_map(Act::Free)
        ];
        prop::collection::vec(act, 1..120)
    }

    proptest! {
        #[test]
        fn slots_equal_the_naive_model(acts in acts(), limit in 0..200_000_u64) {
            let mut slots = slots(1 << 20, limit);
            let mut naive = Naive::default();
            let mut held: Vec<Slot> = Vec::new();
            for act in acts {
                match act {
                    Act::Alloc(bytes) => {
                        let expected = naive.alloc(bytes, limit);
                        match slots.alloc(bytes) {
                            Ok(slot) => {
                                prop_assert_eq!(Some(slot.offset), expected);
                                held.push(slot);
                            }
                            Err(SlotsError::Full { .. }) => prop_assert_eq!(expected, None),
                            Err(other) => prop_assert!(false, "{}", other),
                        }
                    }
                    Act::Free(_) if held.is_empty() => {}
                    Act::Free(which) => {
                        let slot = held.swap_remove(which % held.len());
                        naive.free(slot);
                        slots.free(slot).unwrap();
                    }
                }
                let live = naive.0.iter().filter(|&&taken| taken).count() as u64 * 64;
                prop_assert_eq!(slots.height(), naive.0.len() as u64 * 64);
                prop_assert_eq!(slots.arena().height(), slots.height());
                prop_assert_eq!(slots.live_bytes(), live);
                prop_assert!(slots.arena().mapped_bytes() <= limit);
            }
            for slot in held {
                slots.free(slot).unwrap();
            }
            prop_assert_eq!((slots.height(), slots.live_bytes()), (0, 0));
            prop_assert_eq!(slots.places.largest_hole(), 0);
        }
    }
}
