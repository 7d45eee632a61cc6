//! Reads and writes of memory by address: the one place beside the executor where that is done.

#![expect(unsafe_code, reason = "storage is handed around by address")]

use crate::store::Storage;
use highwater_graph::Spec;
use highwater_ops::View;

/// Fills `bytes` bytes of fresh storage with zeros.
pub(crate) fn zero(address: *mut u8, bytes: u64) {
    // SAFETY: the caller has just taken these bytes from an allocator; nobody else knows them.
    unsafe { std::ptr::write_bytes(address, 0, bytes as usize) };
}

/// Sees a storage as a tensor, to read it.
pub(crate) fn view<'a>(storage: &'a Storage, spec: &'a Spec) -> View<'a> {
    View::read(bytes(storage), spec)
}

/// Copies what lies at `from`, as many bytes as the storage has, into it. For callers that hold the
/// engine's lock and have `from` checked by its arena.
pub(crate) fn copy(from: *const u8, storage: &Storage) {
    // SAFETY: the arena checked that the bytes lie below its height; the two arenas are different
    // mappings, so source and destination do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(from, storage.address(), storage.bytes() as usize) };
}

/// Copies bytes to an address. For callers that have taken as many bytes there, which nobody else uses.
pub(crate) fn put(from: &[u8], to: *mut u8) {
    // SAFETY: the caller took these bytes of an arena, which are mapped until they are given back; no
    // slice of others lies there, so source and destination do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
}

/// Copies bytes from an address, as [`put`] does to one.
pub(crate) fn get(from: *const u8, to: &mut [u8]) {
    // SAFETY: as above; arena pages are zeros or what was put there, so they are initialised.
    unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
}

/// The bytes of a storage, to read. For callers that hold the engine's lock.
pub(crate) fn bytes(storage: &Storage) -> &[u8] {
    // SAFETY: the storage lives as long as the slice, its bytes were zeroed when it was made, and
    // state is only written under the engine's lock, which readers hold.
    unsafe { std::slice::from_raw_parts(storage.address(), storage.bytes() as usize) }
}

/// The bytes of a storage, to fill. For callers that hold the engine's lock.
#[expect(clippy::mut_from_ref, reason = "the engine's lock is the borrow")]
pub(crate) fn bytes_mut(storage: &Storage) -> &mut [u8] {
    // SAFETY: as in `bytes`.
    unsafe { std::slice::from_raw_parts_mut(storage.address(), storage.bytes() as usize) }
}
