//! Offsets for buffers whose lifetimes are known: offline packing.
//!
//! First fit in several orders (by size, by area, by lifetime), the lowest result wins. Once a result
//! is within [`GOOD`] of the most bytes alive at any time, which no packing can beat, it is taken.

use crate::csr::Csr;
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
const GOOD: u64 = 2;
/// How often the buffer that stands highest is moved to the front, to try again.
const ROUNDS: u32 = 6;

/// Packs buffers so that no two that are alive at the same time overlap.
pub(crate) fn pack(buffers: &[Buffer]) -> Packing {
    let neighbours = neighbours(buffers);
    let good = peak(buffers) * (1000 + GOOD) / 1000;
    let length = |b: &Buffer| u64::from(b.to - b.from) + 1;
    let area = |b: &Buffer| u128::from(b.bytes) * u128::from(length(b));
    let free: Vec<u32> = (0..buffers.len() as u32)
        .filter(|&i| buffers[i as usize].fixed.is_none())
        .collect();
    let mut orders = [free.clone(), free.clone(), free];
    orders[0].sort_by_key(|&i| Reverse((buffers[i as usize].bytes, area(&buffers[i as usize]))));
    orders[1].sort_by_key(|&i| Reverse(area(&buffers[i as usize])));
    orders[2].sort_by_key(|&i| Reverse((length(&buffers[i as usize]), buffers[i as usize].bytes)));
    let mut best: Option<(Packing, usize)> = None;
    for (i, order) in orders.iter().enumerate() {
        let packing = first_fit(buffers, &neighbours, order);
        if best.as_ref().is_none_or(|(b, _)| packing.height < b.height) {
            best = Some((packing, i));
        }
        if best.as_ref().is_some_and(|(b, _)| b.height <= good) {
            break;
        }
    }
    let (mut best, i) = best.expect("there is at least one order");
    let mut order = std::mem::take(&mut orders[i]);
    let mut last = best.clone();
    for _ in 0..ROUNDS {
        let ends = |&&i: &&u32| {
            let (b, offset) = (&buffers[i as usize], last.offsets[i as usize]);
            b.bytes > 0 && offset + b.bytes == last.height
        };
        let Some(at) = order
            .iter()
            .position(|i| ends(&i))
            .filter(|_| best.height > good)
        else {
            break;
        };
        let top = order.remove(at);
        order.insert(0, top);
        last = first_fit(buffers, &neighbours, &order);
        if last.height < best.height {
            best = last.clone();
        }
    }
    best
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

/// For each buffer: those alive at the same time that take bytes.
fn neighbours(buffers: &[Buffer]) -> Csr<u32> {
    let mut order: Vec<u32> = (0..buffers.len() as u32).collect();
    order.retain(|&i| buffers[i as usize].bytes > 0);
    order.sort_unstable_by_key(|&i| buffers[i as usize].from);
    let mut rows: Vec<Vec<u32>> = vec![Vec::new(); buffers.len()];
    let mut alive: Vec<u32> = Vec::new();
    for i in order {
        alive.retain(|&j| buffers[j as usize].to >= buffers[i as usize].from);
        for &j in &alive {
            rows[i as usize].push(j);
            rows[j as usize].push(i);
        }
        alive.push(i);
    }
    rows.into_iter().collect()
}

/// Places buffers one after the other, each at the lowest offset that is free.
fn first_fit(buffers: &[Buffer], neighbours: &Csr<u32>, order: &[u32]) -> Packing {
    const UNPLACED: u64 = u64::MAX;
    let mut offsets: Vec<u64> = buffers
        .iter()
        .map(|b| b.fixed.unwrap_or(UNPLACED))
        .collect();
    let mut taken: Vec<(u64, u64)> = Vec::new();
    for &i in order {
        taken.clear();
        let placed = neighbours
            .row(i)
            .iter()
            .filter(|&&j| offsets[j as usize] != UNPLACED);
        taken.extend(placed.map(|&j| (offsets[j as usize], buffers[j as usize].bytes)));
        taken.sort_unstable();
        let mut offset = 0;
        for &(start, bytes) in &taken {
            if start >= offset + buffers[i as usize].bytes {
                break;
            }
            offset = offset.max(start + bytes);
        }
        offsets[i as usize] = offset;
    }
    let height = buffers
        .iter()
        .zip(&offsets)
        .map(|(b, o)| o + b.bytes)
        .max()
        .unwrap_or(0);
    Packing { offsets, height }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(bytes: u64, from: u32, to: u32) -> Buffer {
        Buffer {
            bytes,
            from,
            to,
            fixed: None,
        }
    }

    fn sound(buffers: &[Buffer], packing: &Packing) {
        for (i, a) in buffers.iter().enumerate() {
            assert!(packing.offsets[i] + a.bytes <= packing.height);
            assert!(a.fixed.is_none_or(|o| o == packing.offsets[i]));
            for (j, b) in buffers.iter().enumerate().skip(i + 1) {
                let together = a.from <= b.to && b.from <= a.to;
                let (s, t) = (packing.offsets[i], packing.offsets[j]);
                let overlap = s < t + b.bytes && t < s + a.bytes && a.bytes > 0 && b.bytes > 0;
                assert!(!(together && overlap), "{i} and {j}");
            }
        }
    }

    #[test]
    fn packs_a_staircase_tightly() {
        let buffers = [
            buffer(64, 0, 1),
            buffer(128, 1, 2),
            buffer(64, 2, 3),
            buffer(0, 0, 3),
        ];
        let packing = pack(&buffers);
        sound(&buffers, &packing);
        assert_eq!(packing.height, peak(&buffers));
    }

    #[test]
    fn fixed_buffers_stay() {
        let mut buffers = vec![buffer(256, 0, 9), buffer(64, 3, 4), buffer(640, 5, 6)];
        buffers.push(Buffer {
            fixed: Some(128),
            ..buffer(64, 0, 5)
        });
        let packing = pack(&buffers);
        sound(&buffers, &packing);
    }

    #[test]
    fn random_lifetimes_never_overlap() {
        let mut state = 7u64;
        let mut next = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % n
        };
        for _ in 0..50 {
            let mut buffers: Vec<Buffer> = Vec::new();
            for _ in 0..60 {
                let from = next(40) as u32;
                buffers.push(buffer(next(20) * 64, from, from + next(12) as u32));
            }
            sound(&buffers, &pack(&buffers));
        }
    }
}
