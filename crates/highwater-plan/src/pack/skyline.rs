//! Packing by skylines (Sekiyama et al., 2018): the lowest stretch of time is filled first, with a
//! buffer that lives within it; which one goes first is searched for.

use crate::dice::Dice;
use crate::pack::buffer::{Buffer, Packing};

/// Blends of length of life and bytes that are tried first, at most.
const BLENDS: usize = 11;
/// How far a key is moved, on the scale of logarithms, and one of how many keys.
const STEPS: [f64; 3] = [0.1, 0.3, 1.0];
const ONE_IN: [usize; 3] = [2, 8, 32];

/// The lowest of so many skylines of buffers, none of which may have a fixed offset: of blends, then
/// of keys moved by chance, until a result is as low as is good enough.
pub(crate) fn skyline(buffers: &[Buffer], (rounds, good): (usize, u64)) -> Packing {
    let mut dice = Dice::new();
    let mut keys = blend(buffers, 1.0);
    let mut best = raise(buffers, &keys, u64::MAX).expect("no height is too much");
    let blends = BLENDS.min(rounds);
    for round in 1..rounds {
        if best.height <= good {
            break;
        }
        let next = if round < blends {
            blend(buffers, 1.0 - round as f64 / (blends - 1) as f64)
        } else {
            let (step, one_in) = (STEPS[round % 3], ONE_IN[round / 3 % 3]);
            let mut moved = |key: &f64| match dice.below(one_in) {
                0 => key + step * (dice.below(2001) as f64 / 1000.0 - 1.0),
                _ => *key,
            };
            keys.iter().map(&mut moved).collect()
        };
        if let Some(packing) = raise(buffers, &next, best.height) {
            (best, keys) = (packing, next);
        }
    }
    best
}

/// Long lives first, large ones first, or something between.
fn blend(buffers: &[Buffer], share: f64) -> Vec<f64> {
    let key = |b: &Buffer| {
        let life = f64::from(b.to - b.from + 1);
        share * life.ln() + (1.0 - share) * (b.bytes.max(1) as f64).ln()
    };
    buffers.iter().map(key).collect()
}

/// A stretch of time, both ends included, and how high it is filled.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    from: u32,
    to: u32,
    height: u64,
}

/// Buffers that are not placed yet.
struct Waiting<'a> {
    buffers: &'a [Buffer],
    /// By key, the highest first; and the place of each in that order.
    ranked: Vec<u32>,
    rank: Vec<u32>,
    /// By birth.
    born: Vec<u32>,
    /// Per buffer.
    is_placed: Vec<bool>,
    count: usize,
}

impl<'a> Waiting<'a> {
    fn new(buffers: &'a [Buffer], keys: &[f64]) -> Self {
        let all = 0..buffers.len() as u32;
        let mut ranked: Vec<u32> = all.filter(|&i| buffers[i as usize].bytes > 0).collect();
        ranked.sort_by(|&a, &b| {
            let (first, second) = (keys[a as usize], keys[b as usize]);
            second.total_cmp(&first).then(a.cmp(&b))
        });
        let mut rank = vec![0; buffers.len()];
        for (place, &i) in (0..).zip(&ranked) {
            rank[i as usize] = place;
        }
        let mut born = ranked.clone();
        born.sort_by_key(|&i| buffers[i as usize].from);
        Self {
            buffers,
            count: ranked.len(),
            ranked,
            rank,
            born,
            is_placed: vec![false; buffers.len()],
        }
    }

    /// Takes the buffer of the highest key that lives within a stretch. Those that are born in it are looked through,
    /// or all by their keys, whichever are fewer.
    fn take(&mut self, stretch: Stretch) -> Option<u32> {
        let (buffers, is_placed) = (self.buffers, &self.is_placed);
        let within = |&i: &u32| {
            let b = &buffers[i as usize];
            !is_placed[i as usize] && b.from >= stretch.from && b.to <= stretch.to
        };
        let birth = |i: &u32| buffers[*i as usize].from;
        let first = self.born.partition_point(|i| birth(i) < stretch.from);
        let end = self.born.partition_point(|i| birth(i) <= stretch.to);
        let found = if 2 * (end - first) < self.ranked.len() {
            let born = self.born[first..end].iter().copied().filter(within);
            born.min_by_key(|&i| self.rank[i as usize])
        } else {
            self.ranked.iter().copied().find(within)
        };
        let found = found?;
        self.is_placed[found as usize] = true;
        self.count -= 1;
        if 2 * self.count < self.ranked.len() {
            let is_placed = &self.is_placed;
            self.ranked.retain(|&i| !is_placed[i as usize]);
            self.born.retain(|&i| !is_placed[i as usize]);
        }
        Some(found)
    }
}

/// Fills the lowest stretch with the buffer of the highest key that lives within it; if there is none,
/// lifts it to its lower neighbour. `None` if that comes to more than `most`.
fn raise(buffers: &[Buffer], keys: &[f64], most: u64) -> Option<Packing> {
    let to = buffers.iter().map(|b| b.to).max().unwrap_or(0);
    let mut line = vec![Stretch {
        from: 0,
        to,
        height: 0,
    }];
    let mut waiting = Waiting::new(buffers, keys);
    let mut packing = Packing {
        offsets: vec![0; buffers.len()],
        height: 0,
    };
    while waiting.count > 0 {
        let lowest = (0..line.len()).min_by_key(|&k| line[k].height);
        let at = lowest.expect("the line has a stretch at least");
        let stretch = line[at];
        if let Some(i) = waiting.take(stretch) {
            let i = i as usize;
            packing.offsets[i] = stretch.height;
            packing.height = packing.height.max(stretch.height + buffers[i].bytes);
            if packing.height > most {
                return None;
            }
            line.splice(at..=at, parts(stretch, &buffers[i]));
        } else {
            let before = at.checked_sub(1).map(|k| line[k].height);
            let after = line.get(at + 1).map(|s| s.height);
            let lower = before.into_iter().chain(after).min();
            line[at].height = lower.expect("each buffer lives within the whole line");
        }
        line.dedup_by(|next, first| {
            let level = next.height == first.height;
            if level {
                first.to = next.to;
            }
            level
        });
    }
    Some(packing)
}

/// What becomes of a stretch when a buffer is put on it.
fn parts(stretch: Stretch, b: &Buffer) -> impl Iterator<Item = Stretch> {
    let before = (b.from > stretch.from).then(|| Stretch {
        to: b.from - 1,
        ..stretch
    });
    let raised = Stretch {
        from: b.from,
        to: b.to,
        height: stretch.height + b.bytes,
    };
    let after = (b.to < stretch.to).then(|| Stretch {
        from: b.to + 1,
        ..stretch
    });
    before.into_iter().chain([raised]).chain(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [`raise`] by the plainest means.
    fn plain(buffers: &[Buffer], keys: &[f64]) -> Packing {
        let end = buffers.iter().map(|b| b.to).max().unwrap_or(0) as usize;
        let mut heights = vec![0; end + 1];
        let all = 0..buffers.len();
        let mut left: Vec<usize> = all.filter(|&i| buffers[i].bytes > 0).collect();
        left.sort_by(|&a, &b| keys[b].total_cmp(&keys[a]).then(a.cmp(&b)));
        let mut packing = Packing {
            offsets: vec![0; buffers.len()],
            height: 0,
        };
        while !left.is_empty() {
            let low = *heights.iter().min().expect("a moment");
            let from = heights.iter().position(|&h| h == low).expect("it is there");
            let rest = heights[from..].iter();
            let to = from + rest.take_while(|&&h| h == low).count() - 1;
            let within =
                |&i: &usize| buffers[i].from as usize >= from && buffers[i].to as usize <= to;
            if let Some(k) = left.iter().position(within) {
                let b = &buffers[left[k]];
                packing.offsets[left.remove(k)] = low;
                packing.height = packing.height.max(low + b.bytes);
                heights[b.from as usize..=b.to as usize].fill(low + b.bytes);
            } else {
                let before = from.checked_sub(1).map(|at| heights[at]);
                let after = heights.get(to + 1).copied();
                let next = before.into_iter().chain(after).min().expect("a neighbour");
                heights[from..=to].fill(next);
            }
        }
        packing
    }

    #[test]
    fn the_line_is_filled_as_by_the_plainest_means() {
        let mut dice = Dice::new();
        for round in 0..300 {
            let (count, span) = (1 + dice.below(120), 1 + dice.below(200));
            let buffers: Vec<Buffer> = (0..count)
                .map(|_| {
                    let from = dice.below(span) as u32;
                    let life = if dice.below(8) == 0 {
                        span
                    } else {
                        1 + span / 16
                    };
                    let to = from + dice.below(life) as u32;
                    let bytes = 64 * dice.below(20) as u64;
                    let fixed = None;
                    Buffer {
                        bytes,
                        from,
                        to,
                        fixed,
                    }
                })
                .collect();
            let keys: Vec<f64> = buffers.iter().map(|_| dice.below(30) as f64).collect();
            let expected = plain(&buffers, &keys);
            let height = expected.height;
            assert_eq!(
                raise(&buffers, &keys, u64::MAX),
                Some(expected.clone()),
                "{round}"
            );
            assert_eq!(raise(&buffers, &keys, height), Some(expected), "{round}");
            if height > 0 {
                assert_eq!(raise(&buffers, &keys, height - 1), None, "{round}");
            }
        }
    }
}
