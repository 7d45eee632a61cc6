//! Buffers and their lifetimes: the most bytes alive, and orders to place them in.

use std::cmp::Reverse;

/// A buffer: `bytes` (a multiple of the alignment) from time `from` to time `to`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub(crate) bytes: u64,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Its offset, if it cannot be chosen.
    pub(crate) fixed: Option<u64>,
}

/// Offsets of the buffers, in their order, and the height of the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packing {
    pub(crate) offsets: Vec<u64>,
    pub(crate) height: u64,
}

/// A packing at most this much higher than the bytes alive, in thousandths, is good enough.
pub(crate) const GOOD: u64 = 2;

type Key<'a> = &'a dyn Fn(&Buffer) -> (u128, u128);

/// Orders in which first fit does well: large ones first, by bytes, by bytes and length of life, by
/// length; and those first that stay longest, as on a stack.
pub(crate) fn orders(buffers: &[Buffer]) -> impl Iterator<Item = Vec<u32>> {
    let length = |b: &Buffer| u64::from(b.to - b.from) + 1;
    let area = move |b: &Buffer| u128::from(b.bytes) * u128::from(length(b));
    let keys: [Key<'_>; 4] = [
        &|b| (u128::from(b.bytes), area(b)),
        &|b| (area(b), 0),
        &|b| (u128::from(length(b)), u128::from(b.bytes)),
        &|b| (u128::from(b.to), u128::from(length(b))),
    ];
    let free: Vec<u32> = (0..buffers.len() as u32)
        .filter(|&i| buffers[i as usize].fixed.is_none())
        .collect();
    let orders = keys.map(|key| {
        let mut order = free.clone();
        order.sort_by_cached_key(|&i| Reverse(key(&buffers[i as usize])));
        order
    });
    orders.into_iter()
}

/// The most bytes alive at any time.
pub(crate) fn peak(buffers: &[Buffer]) -> u64 {
    let mut events: Vec<(u32, bool, u64)> = Vec::with_capacity(2 * buffers.len());
    for b in buffers {
        events.push((b.from, true, b.bytes));
        events.push((b.to + 1, false, b.bytes));
    }
    events.sort_unstable();
    let (mut alive, mut most) = (0, 0);
    for (_, born, bytes) in events {
        alive = if born { alive + bytes } else { alive - bytes };
        most = most.max(alive);
    }
    most
}
