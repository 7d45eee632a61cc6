//! First-fit bookkeeping over a range of addresses that somebody else stores bytes at.

use std::collections::BTreeMap;

/// Which stretches of `0..capacity` are taken. Knows nothing of what lies there.
#[derive(Debug)]
pub struct Places {
    capacity: u64,
    /// Size by offset, of what is taken and of the holes between. Two holes never touch each other,
    /// and none touches the top.
    taken: BTreeMap<u64, u64>,
    holes: BTreeMap<u64, u64>,
    top: u64,
    bytes: u64,
}

impl Places {
    /// One over `capacity` bytes, none of them taken.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            taken: BTreeMap::new(),
            holes: BTreeMap::new(),
            top: 0,
            bytes: 0,
        }
    }

    /// Takes `bytes` (at least 1) from the lowest hole that is large enough, or from above the topmost
    /// place, and answers where they start; nothing if there is no such place.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1);
        let hole = self.holes.iter().find(|&(_, &hole)| hole >= bytes);
        let offset = if let Some((&offset, &hole)) = hole {
            self.holes.remove(&offset);
            if hole > bytes {
                self.holes.insert(offset + bytes, hole - bytes);
            }
            offset
        } else {
            let top = self.top.checked_add(bytes)?;
            if top > self.capacity {
                return None;
            }
            std::mem::replace(&mut self.top, top)
        };
        self.taken.insert(offset, bytes);
        self.bytes += bytes;
        Some(offset)
    }

    /// Gives back what starts there. Answers how many bytes that were; nothing if none.
    pub fn give(&mut self, offset: u64) -> Option<u64> {
        let bytes = self.taken.remove(&offset)?;
        self.bytes -= bytes;
        let (mut start, mut end) = (offset, offset + bytes);
        if let Some(above) = self.holes.remove(&end) {
            end += above;
        }
        if let Some((&below, &hole)) = self.holes.range(..start).next_back()
            && below + hole == start
        {
            self.holes.remove(&below);
            start = below;
        }
        if end == self.top {
            self.top = start;
        } else {
            self.holes.insert(start, end - start);
        }
        Some(bytes)
    }

    /// Gives back what lies behind the first `bytes` (at least 1) of the place that starts there.
    pub fn shrink(&mut self, offset: u64, bytes: u64) {
        let bytes = bytes.max(1);
        let Some(size) = self.taken.get_mut(&offset).filter(|size| **size > bytes) else {
            return;
        };
        let rest = *size - bytes;
        *size = bytes;
        // As a place of its own.
        self.taken.insert(offset + bytes, rest);
        self.give(offset + bytes);
    }

    /// The bytes that are taken from there on; none if no place starts there.
    #[must_use]
    pub fn size(&self, offset: u64) -> Option<u64> {
        self.taken.get(&offset).copied()
    }

    /// The bytes of the largest hole between places.
    #[must_use]
    pub fn largest_hole(&self) -> u64 {
        self.holes.values().copied().max().unwrap_or(0)
    }

    /// Whether all of these bytes belong to one place that is taken.
    #[must_use]
    pub fn holds(&self, offset: u64, bytes: u64) -> bool {
        let place = self.taken.range(..=offset).next_back();
        let end = offset.checked_add(bytes);
        place.is_some_and(|(&start, &size)| end.is_some_and(|end| end <= start + size))
    }

    /// Bytes that may be taken in all.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes that are taken.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// One past the highest byte that is taken.
    #[must_use]
    pub fn top(&self) -> u64 {
        self.top
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn holes_are_filled_first_and_the_top_is_lowered() {
        let mut places = Places::new(600);
        let [a, b, c] = [100, 200, 300].map(|bytes| places.take(bytes).unwrap());
        assert_eq!([a, b, c], [0, 100, 300]);
        assert_eq!(places.take(1), None);
        assert!(places.holds(a, 100) && places.holds(a + 40, 60) && places.holds(c, 300));
        assert!(!places.holds(a, 101) && !places.holds(c + 1, 300) && !places.holds(7, u64::MAX));
        assert_eq!(places.give(a), Some(100));
        assert!(!places.holds(a, 1));
        assert_eq!(places.give(a), None);
        assert_eq!(places.take(60), Some(0));
        assert_eq!(places.give(b), Some(200));
        assert_eq!(places.take(240), Some(60));
        assert_eq!((places.top(), places.bytes()), (600, 600));
        places.shrink(60, 240);
        places.shrink(60, 100);
        assert_eq!((places.size(60), places.bytes()), (Some(100), 460));
        assert_eq!(places.take(140), Some(160));
        places.shrink(c, 1);
        assert_eq!((places.top(), places.bytes()), (301, 301));
    }

    proptest! {
        #[test]
        fn places_are_apart_and_all_come_back(acts in prop::collection::vec(1..200_u64, 1..100)) {
            let mut places = Places::new(4000);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for act in acts {
                if act % 3 == 0 && !held.is_empty() {
                    let (offset, bytes) = held.swap_remove(act as usize % held.len());
                    prop_assert_eq!(places.give(offset), Some(bytes));
                } else if let Some(offset) = places.take(act) {
                    prop_assert!(offset + act <= 4000);
                    let apart = |&(o, b): &(u64, u64)| o + b <= offset || offset + act <= o;
                    prop_assert!(held.iter().all(apart));
                    held.push((offset, act));
                }
                prop_assert_eq!(places.bytes(), held.iter().map(|h| h.1).sum::<u64>());
                prop_assert_eq!(places.top(), held.iter().map(|h| h.0 + h.1).max().unwrap_or(0));
            }
            for (offset, _) in held {
                places.give(offset);
            }
            prop_assert_eq!((places.top(), places.bytes()), (0, 0));
            prop_assert!(places.holes.is_empty());
        }
    }
}
