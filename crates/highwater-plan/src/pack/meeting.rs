//! Which buffers are alive at the same time as one.

use crate::pack::buffer::Buffer;
use std::collections::BTreeSet;

/// Buffers by their time, so that those which meet one are found without looking at the others.
///
/// What meets a life was born during it, or is alive when it begins: the first by birth, the second by a
/// tree over time, at each of whose nodes stand those that live throughout its stretch.
pub(crate) struct Meeting<'a> {
    buffers: &'a [Buffer],
    born: BTreeSet<(u32, u32)>,
    /// Number of leaves, a power of two.
    leaves: usize,
    throughout: Vec<Vec<u32>>,
}

impl<'a> Meeting<'a> {
    pub(crate) fn new(buffers: &'a [Buffer]) -> Meeting<'a> {
        let moments = buffers.iter().map(|b| b.to as usize + 1).max().unwrap_or(0);
        let leaves = moments.next_power_of_two();
        Meeting {
            buffers,
            born: BTreeSet::new(),
            leaves,
            throughout: vec![Vec::new(); 2 * leaves],
        }
    }

    /// Adds a buffer.
    pub(crate) fn insert(&mut self, i: u32) {
        let b = &self.buffers[i as usize];
        self.born.insert((b.from, i));
        let (mut from, mut to) = (
            self.leaves + b.from as usize,
            self.leaves + b.to as usize + 1,
        );
        while from < to {
            if from % 2 == 1 {
                self.throughout[from].push(i);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                self.throughout[to].push(i);
            }
            (from, to) = (from / 2, to / 2);
        }
    }

    /// Tells each buffer that was added and meets one, once.
    pub(crate) fn each(&self, i: u32, mut tell: impl FnMut(u32)) {
        let b = &self.buffers[i as usize];
        let mut node = self.leaves + b.from as usize;
        while node > 0 {
            self.throughout[node].iter().for_each(|&other| tell(other));
            node /= 2;
        }
        let during = self.born.range((b.from + 1, 0)..(b.to + 1, 0));
        during.for_each(|&(_, other)| tell(other));
    }
}
