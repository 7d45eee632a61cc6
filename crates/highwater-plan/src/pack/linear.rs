//! Packing in time that is linear in the buffers, or nearly: several ways, until one is good enough.
//!
//! - *Stacked*: those that live longest first, each on top of all that is there in its time. Lives that
//!   lie within each other, as those of a forward and a backward part do, lose nothing by it.
//! - *In turn*: in order of birth, each in the smallest hole that is large enough, as an allocator would.
//! - *First fit* in several orders, where few buffers meet.
//! - *Skylines*, as many as few buffers leave time for.

use crate::pack::buffer::{Buffer, GOOD, Packing, orders, peak};
use crate::pack::meeting::Meeting;
use crate::pack::skyline::skyline;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// How many buffers each may meet on average, over all orders of first fit.
const MEETINGS: usize = 400;
/// Buffers times skylines.
const ROUNDS: usize = 4000;

/// Packs buffers so that no two that are alive at the same time overlap. Those whose sizes are multiples
/// of `align` start at one.
pub(crate) fn linear(buffers: &[Buffer], align: u64) -> Packing {
    let (odd, even): (Vec<u32>, Vec<u32>) = (0..buffers.len() as u32).partition(|&i| {
        let b = &buffers[i as usize];
        !b.bytes.is_multiple_of(align) && b.fixed.is_none()
    });
    let region = lower(buffers, &odd);
    let ground = region.height.next_multiple_of(align);
    // What has its place may stand in the region: then all are one.
    if !odd.is_empty() && buffers.iter().any(|b| b.fixed.is_some()) {
        let all: Vec<u32> = (0..buffers.len() as u32).collect();
        return lower(buffers, &all);
    }
    let above = lower(buffers, &even);
    let mut packing = Packing {
        offsets: vec![0; buffers.len()],
        height: ground + above.height,
    };
    for (&i, &offset) in odd.iter().zip(&region.offsets) {
        packing.offsets[i as usize] = offset;
    }
    for (&i, &offset) in even.iter().zip(&above.offsets) {
        packing.offsets[i as usize] = ground + offset;
    }
    packing
}

/// The lowest of all, of some buffers and in their order.
fn lower(buffers: &[Buffer], which: &[u32]) -> Packing {
    let some: Vec<Buffer> = which.iter().map(|&i| buffers[i as usize]).collect();
    let peak = peak(&some);
    let good = peak + peak / 1000 * GOOD;
    let mut best = least(stacked(&some), in_turn(&some));
    let mut left = MEETINGS * some.len();
    let mut orders = orders(&some);
    while best.height > good
        && let Some(order) = orders.next()
        && let Some(packing) = first_fit(&some, &order, &mut left)
    {
        best = least(best, packing);
    }
    let rounds = ROUNDS / some.len().max(1);
    let free = some.iter().all(|b| b.fixed.is_none());
    if best.height > good && rounds > 0 && free {
        best = least(best, skyline(&some, (rounds, good)));
    }
    best
}

/// The lower of two.
fn least(first: Packing, second: Packing) -> Packing {
    if second.height < first.height {
        second
    } else {
        first
    }
}

/// Places buffers one after the other, each at the lowest offset that is free throughout its life; `None`
/// if more meet each other than `left` allows.
fn first_fit(buffers: &[Buffer], order: &[u32], left: &mut usize) -> Option<Packing> {
    let mut offsets: Vec<u64> = buffers.iter().map(|b| b.fixed.unwrap_or(0)).collect();
    let mut placed = Meeting::new(buffers);
    for (i, b) in (0..).zip(buffers) {
        if b.fixed.is_some() && b.bytes > 0 {
            placed.insert(i);
        }
    }
    let mut met: Vec<(u64, u64)> = Vec::new();
    for &i in order.iter().filter(|&&i| buffers[i as usize].bytes > 0) {
        met.clear();
        placed.each(i, |other| {
            let (offset, bytes) = (offsets[other as usize], buffers[other as usize].bytes);
            met.push((offset, offset + bytes));
        });
        *left = left.checked_sub(met.len())?;
        met.sort_unstable();
        let (mut offset, bytes) = (0, buffers[i as usize].bytes);
        for &(from, to) in &met {
            if from >= offset + bytes {
                break;
            }
            offset = offset.max(to);
        }
        offsets[i as usize] = offset;
        placed.insert(i);
    }
    let ends = buffers.iter().zip(&offsets).map(|(b, o)| o + b.bytes);
    let height = ends.max().unwrap_or(0);
    Some(Packing { offsets, height })
}

/// How high each moment is filled: a tree over stretches of time whose nodes only ever rise.
struct Heights {
    /// Number of leaves, a power of two.
    leaves: usize,
    /// Per node: the highest of all under it.
    most: Vec<u64>,
    /// Per node: what all under it are at least.
    least: Vec<u64>,
}

impl Heights {
    fn new(moments: usize) -> Heights {
        let leaves = moments.next_power_of_two();
        Heights {
            leaves,
            most: vec![0; 2 * leaves],
            least: vec![0; 2 * leaves],
        }
    }

    /// The highest between two moments, both included.
    fn most(&self, from: u32, to: u32) -> u64 {
        self.most_under(1, (0, self.leaves), (from as usize, to as usize + 1))
    }

    fn most_under(&self, node: usize, span: (usize, usize), asked: (usize, usize)) -> u64 {
        if asked.1 <= span.0 || span.1 <= asked.0 {
            return 0;
        }
        if asked.0 <= span.0 && span.1 <= asked.1 {
            return self.most[node];
        }
        let middle = usize::midpoint(span.0, span.1);
        let left = self.most_under(2 * node, (span.0, middle), asked);
        let right = self.most_under(2 * node + 1, (middle, span.1), asked);
        left.max(right).max(self.least[node])
    }

    /// Raises all between two moments, both included.
    fn raise(&mut self, from: u32, to: u32, height: u64) {
        let asked = (from as usize, to as usize + 1);
        self.raise_under(1, (0, self.leaves), asked, height);
    }

    fn raise_under(
        &mut self,
        node: usize,
        span: (usize, usize),
        asked: (usize, usize),
        height: u64,
    ) {
        if asked.1 <= span.0 || span.1 <= asked.0 {
            return;
        }
        self.most[node] = self.most[node].max(height);
        if asked.0 <= span.0 && span.1 <= asked.1 {
            self.least[node] = self.least[node].max(height);
            return;
        }
        let middle = usize::midpoint(span.0, span.1);
        self.raise_under(2 * node, (span.0, middle), asked, height);
        self.raise_under(2 * node + 1, (middle, span.1), asked, height);
    }
}

fn stacked(buffers: &[Buffer]) -> Packing {
    let moments = buffers.iter().map(|b| b.to as usize + 1).max().unwrap_or(0);
    let mut heights = Heights::new(moments);
    let mut packing = Packing {
        offsets: vec![0; buffers.len()],
        height: 0,
    };
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by_cached_key(|&i| {
        let b = &buffers[i];
        (b.fixed.is_none(), Reverse((b.to - b.from, b.bytes)), i)
    });
    for i in order {
        let b = &buffers[i];
        let offset = match b.fixed {
            Some(offset) => offset,
            None if b.bytes == 0 => continue,
            None => heights.most(b.from, b.to),
        };
        packing.offsets[i] = offset;
        packing.height = packing.height.max(offset + b.bytes);
        heights.raise(b.from, b.to, offset + b.bytes);
    }
    packing
}

/// Bytes that are free, by offset and by size; all above the last of them are free as well.
#[derive(Default)]
struct Holes {
    /// Sizes by offset.
    sizes: BTreeMap<u64, u64>,
    /// Sizes and offsets.
    ordered: BTreeSet<(u64, u64)>,
    top: u64,
}

impl Holes {
    fn take(&mut self, bytes: u64) -> u64 {
        let Some(&(size, offset)) = self.ordered.range((bytes, 0)..).next() else {
            // Whatever is free at the top is part of the new stretch.
            let last = self
                .sizes
                .last_key_value()
                .map(|(&offset, &size)| (offset, size));
            let below = last.filter(|&(offset, size)| offset + size == self.top);
            if let Some((offset, size)) = below {
                self.remove(offset, size);
            }
            let offset = below.map_or(self.top, |hole| hole.0);
            self.top = offset + bytes;
            return offset;
        };
        self.remove(offset, size);
        if size > bytes {
            self.add(offset + bytes, size - bytes);
        }
        offset
    }

    /// Gives bytes back, together with what is free beside them.
    fn give(&mut self, mut offset: u64, mut bytes: u64) {
        if let Some((&before, &size)) = self.sizes.range(..offset).next_back()
            && before + size == offset
        {
            self.remove(before, size);
            (offset, bytes) = (before, size + bytes);
        }
        if let Some(&size) = self.sizes.get(&(offset + bytes)) {
            self.remove(offset + bytes, size);
            bytes += size;
        }
        self.add(offset, bytes);
    }

    fn add(&mut self, offset: u64, bytes: u64) {
        self.sizes.insert(offset, bytes);
        self.ordered.insert((bytes, offset));
    }

    fn remove(&mut self, offset: u64, bytes: u64) {
        self.sizes.remove(&offset);
        self.ordered.remove(&(bytes, offset));
    }
}

fn in_turn(buffers: &[Buffer]) -> Packing {
    let mut offsets: Vec<u64> = buffers.iter().map(|b| b.fixed.unwrap_or(0)).collect();
    let mut holes = Holes::default();
    let mut fixed: Vec<(u64, u64)> = buffers
        .iter()
        .filter_map(|b| Some((b.fixed?, b.bytes)))
        .filter(|&(_, bytes)| bytes > 0)
        .collect();
    fixed.sort_unstable();
    for (offset, bytes) in fixed {
        if offset > holes.top {
            holes.add(holes.top, offset - holes.top);
        }
        holes.top = offset + bytes;
    }
    let mut births: Vec<usize> = (0..buffers.len())
        .filter(|&i| buffers[i].bytes > 0)
        .collect();
    let mut deaths = births.clone();
    births.sort_by_key(|&i| (buffers[i].from, Reverse(buffers[i].bytes), i));
    deaths.sort_by_key(|&i| (buffers[i].to, i));
    let mut deaths = deaths.into_iter().peekable();
    for i in births.into_iter().filter(|&i| buffers[i].fixed.is_none()) {
        while let Some(gone) = deaths.next_if(|&gone| buffers[gone].to < buffers[i].from) {
            holes.give(offsets[gone], buffers[gone].bytes);
        }
        offsets[i] = holes.take(buffers[i].bytes);
    }
    let ends = buffers.iter().zip(&offsets).map(|(b, o)| o + b.bytes);
    let height = ends.max().unwrap_or(0);
    Packing { offsets, height }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

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
            let s = packing.offsets[i];
            assert!(s + a.bytes <= packing.height);
            assert!(a.fixed.is_none_or(|o| o == s));
            for (b, t) in buffers.iter().zip(&packing.offsets).skip(i + 1) {
                let together = a.from <= b.to && b.from <= a.to;
                let overlap = s < t + b.bytes && *t < s + a.bytes && a.bytes.min(b.bytes) > 0;
                assert!(!(together && overlap), "{a:?} and {b:?}");
            }
        }
    }

    /// Each way by itself, and all together.
    fn all_ways(buffers: &[Buffer]) {
        sound(buffers, &stacked(buffers));
        sound(buffers, &in_turn(buffers));
        for order in orders(buffers) {
            let packing = first_fit(buffers, &order, &mut { usize::MAX });
            sound(buffers, &packing.expect("nothing is too much"));
        }
        for align in [1, 256] {
            sound(buffers, &linear(buffers, align));
        }
    }

    #[test]
    fn random_lifetimes_never_overlap() {
        let mut dice = Dice::new();
        let mut next = |n: usize| dice.below(n) as u64;
        for round in 0..100 {
            let mut buffers: Vec<Buffer> = Vec::new();
            for _ in 0..40 {
                let from = next(40) as u32;
                buffers.push(buffer(next(20) * 64, from, from + next(12) as u32));
            }
            if round % 2 == 1 {
                // What is there from the start, in its place and apart from each other.
                for k in 0..4 {
                    buffers.push(Buffer {
                        fixed: Some(k * 1024 + next(3) * 64),
                        ..buffer(next(12) * 64, 0, next(40) as u32)
                    });
                }
            }
            all_ways(&buffers);
        }
    }

    #[test]
    fn lives_within_each_other_lose_nothing() {
        let nested: Vec<Buffer> = (0..5_000)
            .map(|i| buffer(64 + 64 * u64::from(i % 3), i, 10_000 - i))
            .collect();
        assert_eq!(linear(&nested, 1).height, peak(&nested));
    }

    #[test]
    fn sizes_that_are_multiples_start_at_one() {
        let mut dice = Dice::new();
        let buffers: Vec<Buffer> = (0..50)
            .map(|i| {
                let bytes = if i % 2 == 0 { 4096 } else { 64 } * (1 + dice.below(3) as u64);
                buffer(bytes, i, i + 5)
            })
            .collect();
        let packing = linear(&buffers, 4096);
        for (b, offset) in buffers.iter().zip(&packing.offsets) {
            assert!(b.bytes % 4096 > 0 || offset % 4096 == 0);
        }
    }
}
