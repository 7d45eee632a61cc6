//! Held values in the order of what they are worth, so that not all of them are weighed whenever room is made.
//!
//! What a value is worth mostly rises while it is held: its use comes nearer, and more of what it is made from has
//! gone. So an entry says what it is worth at least, and is weighed again when its turn comes. Where it may have
//! become worth less (its use has passed, it was made anew) it gets a new entry.

use super::{LONG, Walk};
use crate::problem::ValueId;
use std::cmp::Reverse;

/// Of so many held values and fewer each is weighed every time.
pub(super) const MANY: usize = 1_000;

/// The bits of what a value is worth, which are in the order of the numbers; the value; its ticket.
pub(super) type Rank = (u64, ValueId, u32);

impl Walk<'_> {
    /// Whether values are ranked: in short programs each is weighed every time.
    pub(super) fn is_ranked(&self) -> bool {
        self.program.steps.len() >= LONG
    }

    /// Gives a value an entry that comes first.
    pub(super) fn rank(&mut self, v: ValueId) {
        if self.is_ranked() {
            self.rank_at(0.0, v);
        }
    }

    fn rank_at(&mut self, worth: f64, v: ValueId) {
        let life = &mut self.values[v.index()];
        if life.present && self.program.size[v.index()] > 0 {
            life.ticket += 1;
            self.ranked.push(Reverse((worth.to_bits(), v, life.ticket)));
        }
    }

    /// Lets values go, cheapest first, until so many bytes fit. Returns whether they do; where they do not, what
    /// cannot go for now may be in the way.
    pub(super) fn make_room_by_rank(&mut self, bytes: u64) -> bool {
        let mut pinned = Vec::new();
        while self.bytes + bytes > self.budget
            && let Some(Reverse((_, v, ticket))) = self.ranked.pop()
        {
            let life = &self.values[v.index()];
            if !life.present || life.ticket != ticket {
                continue;
            }
            if life.pins > 0 {
                pinned.push(v);
                continue;
            }
            self.looks += 1;
            let Some(worth) = self.worth(v) else {
                continue;
            };
            let next = self.ranked.peek().map_or(u64::MAX, |next| next.0.0);
            if worth.to_bits() <= next {
                self.vanish(v);
            } else {
                self.rank_at(worth, v);
            }
        }
        for v in pinned {
            self.rank(v);
        }
        self.bytes + bytes <= self.budget
    }
}
