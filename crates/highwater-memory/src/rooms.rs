//! Slots of whole pages, each of which goes back to the system as soon as it is free.

use crate::arena::{Arena, ArenaError};
use crate::places::Places;
use crate::size::Bytes;
use crate::system::{DeviceAddress, System};

/// Address space for each byte of room that is enough: what lies in it leaves holes.
pub const SPREAD: u64 = 8;

/// Page-aligned slots in address space of their own. What they cost is the sum of their sizes, each
/// rounded up to a page, wherever they lie: unlike [`Slots`](crate::Slots), which costs what its
/// height is.
#[derive(Debug)]
pub struct Rooms {
    arena: Arena,
    places: Places,
}

/// A slot of whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Where it starts, in bytes from the base: a multiple of a page.
    pub offset: u64,
    /// Its size in bytes as asked for.
    pub bytes: u64,
}

/// What can go wrong with [`Rooms`].
#[derive(Debug, thiserror::Error)]
pub enum RoomsError {
    /// There are no addresses left.
    #[error("no {} of address space are left", Bytes(*asked))]
    Full {
        /// The bytes asked for.
        asked: u64,
    },
    /// The system refused.
    #[error(transparent)]
    Arena(#[from] ArenaError),
}

impl Rooms {
    /// Reserves address space for `capacity_bytes`. No memory is used. With [`SPREAD`] times what rooms take
    /// together, the holes between them are never in the way of one more.
    ///
    /// # Errors
    /// [`ArenaError::Reserve`] if the address space is not to be had.
    pub fn reserve(system: &dyn System, capacity_bytes: u64) -> Result<Self, ArenaError> {
        let arena = Arena::reserve_on(system, capacity_bytes)?;
        let places = Places::new(arena.capacity());
        Ok(Self { arena, places })
    }

    /// Takes `bytes`; on Linux they are zeros.
    ///
    /// # Errors
    /// [`RoomsError::Full`] where address space ends; [`RoomsError::Arena`] if the system refuses.
    pub fn take(&mut self, bytes: u64) -> Result<Room, RoomsError> {
        let full = RoomsError::Full { asked: bytes };
        let size = self.arena.round_up(bytes.max(1));
        let Some(offset) = self.places.take(size) else {
            return Err(full);
        };
        if let Err(error) = self.arena.open(offset, size) {
            self.places.give(offset);
            return Err(error.into());
        }
        Ok(Room { offset, bytes })
    }

    /// Gives a slot and its pages back. The caller sees to it that nobody uses its addresses.
    ///
    /// # Errors
    /// [`RoomsError::Arena`] when the system refuses to take the pages; the slot is free all the same.
    pub fn give(&mut self, room: Room) -> Result<(), RoomsError> {
        if let Some(size) = self.places.give(room.offset) {
            self.arena.close(room.offset, size)?;
        }
        Ok(())
    }

    /// Where a slot is, or a part of one. Valid until the slot is given back. None if it is not taken.
    #[must_use]
    pub fn address(&self, room: Room) -> Option<DeviceAddress> {
        let taken = self.places.holds(room.offset, room.bytes);
        taken.then(|| self.arena.base().above(room.offset))
    }

    /// What a slot of `bytes` costs.
    #[must_use]
    pub fn cost(&self, bytes: u64) -> u64 {
        self.arena.round_up(bytes.max(1))
    }

    /// What all slots cost.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.places.bytes()
    }

    /// The address space underneath.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        &self.arena
    }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "pages are touched here")]
mod tests {
    use super::*;
    use crate::system::HostSystem;

    fn fill(rooms: &Rooms, room: Room, byte: u8) {
        // SAFETY: the room was taken above and nobody else uses it.
        unsafe {
            std::ptr::write_bytes(
                rooms.address(room).unwrap().as_ptr(),
                byte,
                room.bytes as usize,
            );
        }
    }

    fn read(rooms: &Rooms, room: Room) -> Vec<u8> {
        // SAFETY: as above; its pages are zeros or what was written.
        unsafe {
            std::slice::from_raw_parts(rooms.address(room).unwrap().as_ptr(), room.bytes as usize)
        }
        .to_vec()
    }

    #[test]
    fn a_slot_in_the_middle_gives_its_pages_back() {
        // Sizes that share huge pages with their neighbours at both ends.
        let mut rooms = Rooms::reserve(&HostSystem, 64 << 20).unwrap();
        let [a, b, c] = [3 << 20, (5 << 20) + 100, 3 << 20].map(|bytes| rooms.take(bytes).unwrap());
        for (room, byte) in [(a, 1), (b, 2), (c, 3)] {
            fill(&rooms, room, byte);
        }
        let page = rooms.cost(1);
        assert_eq!(rooms.bytes(), (11 << 20) + page);
        assert!(rooms.arena().resident_bytes().unwrap() <= rooms.bytes());
        rooms.give(b).unwrap();
        assert_eq!(rooms.bytes(), 6 << 20);
        assert!(rooms.arena().resident_bytes().unwrap() <= rooms.bytes());
        assert!(read(&rooms, a).iter().all(|&byte| byte == 1));
        assert!(read(&rooms, c).iter().all(|&byte| byte == 3));
        let d = rooms.take(1 << 20).unwrap();
        assert_eq!(d.offset, b.offset);
        assert!(read(&rooms, d).iter().all(|&byte| byte == 0));
    }

    #[test]
    fn address_space_ends() {
        let mut rooms = Rooms::reserve(&HostSystem, 1 << 20).unwrap();
        let room = rooms.take(1 << 20).unwrap();
        assert!(matches!(rooms.take(1), Err(RoomsError::Full { asked: 1 })));
        rooms.give(room).unwrap();
        assert_eq!((rooms.bytes(), room.offset), (0, 0));
    }
}
