//! Offsets for buffers whose lifetimes are known: offline packing.
//!
//! First fit in several orders (by size, by area, by lifetime), the lowest result wins; then skylines.
//! Once a result is within [`GOOD`] of the most bytes alive at any time, which no packing can beat, it
//! is taken.

mod buffer;
mod linear;
mod meeting;
mod skyline;

pub(crate) use buffer::{Buffer, Packing};

use crate::dice::Dice;
use crate::pack::buffer::{GOOD, orders, peak};
use crate::pack::linear::linear;
use crate::pack::skyline::skyline;

/// How hard packing tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Takes time linear in the buffers, or nearly.
    Linear,
    /// Takes the first order.
    Quick,
    /// Takes the best of several orders, and goes on from there.
    Thorough,
}

/// Pairs of buffers that may be compared while more than the plain orders is tried.
const WORK: usize = 8_000_000;
/// Attempts at least, however many buffers there are.
const LEAST: usize = 3;
/// A buffer is tiny if it takes at most this share of the peak.
const TINY: u64 = 4096;

/// Packs buffers so that no two that are alive at the same time overlap.
///
/// Tiny buffers are many and hardly matter: they get a region of their own at the bottom, where each
/// takes the first hole at the time of its birth, unless that region would be large.
///
/// The large ones start at a multiple of `align` if their sizes are multiples of it.
pub(crate) fn pack(buffers: &[Buffer], effort: Effort, align: u64) -> Packing {
    let peak = peak(buffers);
    if effort == Effort::Linear {
        return linear(buffers, align);
    }
    let (tiny, rest): (Vec<u32>, Vec<u32>) =
        (0..buffers.len() as u32).partition(|&i| buffers[i as usize].bytes <= peak / TINY);
    let free = buffers.iter().all(|b| b.fixed.is_none());
    if free && !tiny.is_empty() {
        let (offsets, height) = as_they_come(buffers, &tiny);
        if height <= peak / 1000 * GOOD {
            let region = height.next_multiple_of(align);
            return with_region(buffers, (&tiny, &offsets, region), &rest, effort);
        }
    }
    pack_all(buffers, peak, effort)
}

/// Packs `rest` above a region that holds `tiny` ones at known offsets.
fn with_region(
    buffers: &[Buffer],
    (tiny, offsets, region): (&[u32], &[u64], u64),
    rest: &[u32],
    effort: Effort,
) -> Packing {
    let large: Vec<Buffer> = rest.iter().map(|&i| buffers[i as usize]).collect();
    let packed = pack_all(&large, peak(&large), effort);
    let mut packing = Packing {
        offsets: vec![0; buffers.len()],
        height: region + packed.height,
    };
    for (&i, &offset) in tiny.iter().zip(offsets) {
        packing.offsets[i as usize] = offset;
    }
    for (&i, &offset) in rest.iter().zip(&packed.offsets) {
        packing.offsets[i as usize] = region + offset;
    }
    packing
}

/// Places buffers in order of birth, each in the lowest hole that is free then.
fn as_they_come(buffers: &[Buffer], which: &[u32]) -> (Vec<u64>, u64) {
    let mut order: Vec<usize> = (0..which.len()).collect();
    order.sort_unstable_by_key(|&i| (buffers[which[i] as usize].from, i));
    let mut offsets = vec![0; which.len()];
    // Offset, end and last moment of what is alive, by offset.
    let mut alive: Vec<(u64, u64, u32)> = Vec::new();
    let mut height = 0;
    for i in order {
        let b = &buffers[which[i] as usize];
        if b.bytes == 0 {
            continue;
        }
        alive.retain(|&(_, _, to)| to >= b.from);
        let (mut offset, mut at) = (0, alive.len());
        for (k, &(start, end, _)) in alive.iter().enumerate() {
            if start >= offset + b.bytes {
                at = k;
                break;
            }
            offset = end;
        }
        alive.insert(at, (offset, offset + b.bytes, b.to));
        offsets[i] = offset;
        height = height.max(offset + b.bytes);
    }
    (offsets, height)
}

/// Packs by first fit, in one order or the best of several, then otherwise if that is not good enough.
fn pack_all(buffers: &[Buffer], peak: u64, effort: Effort) -> Packing {
    let good = peak + peak / 1000 * GOOD;
    let mut best: Option<(Packing, Vec<u32>)> = None;
    for order in orders(buffers) {
        let most = best.as_ref().map_or(u64::MAX, |(b, _)| b.height - 1);
        if let Some(packing) = first_fit(buffers, &order, most) {
            best = Some((packing, order));
        }
        if effort == Effort::Quick || best.as_ref().is_some_and(|(b, _)| b.height <= good) {
            break;
        }
    }
    let (best, order) = best.expect("there is at least one order");
    let fixed = buffers.iter().any(|b| b.fixed.is_some());
    let rounds = LEAST + WORK / (buffers.len() * buffers.len()).max(1);
    if best.height <= good || effort == Effort::Quick {
        return best;
    }
    if fixed {
        return climb(buffers, best, order, (rounds, good));
    }
    let raised = skyline(buffers, (rounds, good));
    if raised.height < best.height {
        raised
    } else {
        best
    }
}

/// Places a buffer that stands highest earlier, before one that is in its way, again and again.
fn climb(
    buffers: &[Buffer],
    mut best: Packing,
    mut order: Vec<u32>,
    (rounds, good): (usize, u64),
) -> Packing {
    let mut dice = Dice::new();
    for _ in 0..rounds {
        let ends = |&i: &u32| {
            let (b, offset) = (&buffers[i as usize], best.offsets[i as usize]);
            b.bytes > 0 && offset + b.bytes == best.height
        };
        let Some(at) = order.iter().position(ends).filter(|_| best.height > good) else {
            break;
        };
        let top = buffers[order[at] as usize];
        let before = |&k: &usize| {
            let other = &buffers[order[k] as usize];
            other.bytes > 0 && other.from <= top.to && top.from <= other.to
        };
        let before: Vec<usize> = (0..at).filter(before).collect();
        if before.is_empty() {
            break;
        }
        let to = before[dice.below(before.len())];
        order[to..=at].rotate_right(1);
        match first_fit(buffers, &order, best.height) {
            Some(next) => best = next,
            None => order[to..=at].rotate_left(1),
        }
    }
    best
}

/// A buffer at its place.
#[derive(Debug, Clone, Copy)]
struct Placed {
    start: u64,
    end: u64,
    from: u32,
    to: u32,
}

impl Placed {
    fn at(start: u64, b: &Buffer) -> Self {
        let (end, from, to) = (start + b.bytes, b.from, b.to);
        Self {
            start,
            end,
            from,
            to,
        }
    }
}

/// Places buffers one after the other, each at the lowest offset that is free throughout its life. `None` if that
/// comes to more than `most`.
fn first_fit(buffers: &[Buffer], order: &[u32], most: u64) -> Option<Packing> {
    let mut offsets: Vec<u64> = buffers.iter().map(|b| b.fixed.unwrap_or(0)).collect();
    // What is placed, by offset.
    let mut placed: Vec<Placed> = Vec::with_capacity(buffers.len());
    let fixed = buffers.iter().filter(|b| b.bytes > 0);
    placed.extend(fixed.filter_map(|b| Some(Placed::at(b.fixed?, b))));
    placed.sort_unstable_by_key(|other| other.start);
    for &i in order {
        let b = buffers[i as usize];
        if b.bytes == 0 {
            continue;
        }
        let mut offset = 0;
        for other in &placed {
            if other.start >= offset + b.bytes {
                break;
            }
            if other.from <= b.to && b.from <= other.to {
                offset = offset.max(other.end);
            }
        }
        if offset + b.bytes > most {
            return None;
        }
        offsets[i as usize] = offset;
        let at = placed.partition_point(|other| other.start < offset);
        placed.insert(at, Placed::at(offset, &b));
    }
    let ends = buffers.iter().zip(&offsets).map(|(b, o)| o + b.bytes);
    let height = ends.max().unwrap_or(0);
    (height <= most).then_some(Packing { offsets, height })
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
        let packing = pack(&buffers, Effort::Thorough, 1);
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
        let packing = pack(&buffers, Effort::Thorough, 1);
        sound(&buffers, &packing);
    }

    #[test]
    fn random_lifetimes_never_overlap() {
        let mut dice = Dice::new();
        let mut next = |n: usize| dice.below(n) as u64;
        for _ in 0..50 {
            let mut buffers: Vec<Buffer> = Vec::new();
            for _ in 0..60 {
                let from = next(40) as u32;
                buffers.push(buffer(next(20) * 64, from, from + next(12) as u32));
            }
            sound(&buffers, &pack(&buffers, Effort::Thorough, 1));
        }
    }
}
