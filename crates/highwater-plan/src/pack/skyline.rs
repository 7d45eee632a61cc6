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
    let births = births(buffers);
    let mut keys = blend(buffers, 1.0);
    let mut best = raise(buffers, &births, &keys, u64::MAX).expect("no height is too much");
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
        if let Some(packing) = raise(buffers, &births, &next, best.height) {
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

/// A buffer in the order of births.
#[derive(Debug, Clone, Copy)]
struct Born {
    buffer: u32,
    from: u32,
    to: u32,
    /// Its place in the order of keys.
    rank: u32,
}

/// Buffers by birth, whatever their keys are.
fn births(buffers: &[Buffer]) -> Vec<Born> {
    let numbered = (0..).zip(buffers).filter(|(_, b)| b.bytes > 0);
    let born = numbered.map(|(buffer, b)| Born {
        buffer,
        from: b.from,
        to: b.to,
        rank: 0,
    });
    let mut born: Vec<Born> = born.collect();
    born.sort_by_key(|b| b.from);
    born
}

/// Buffers that are not placed yet.
struct Waiting<'a> {
    buffers: &'a [Buffer],
    /// By key, the highest first.
    ranked: Vec<u32>,
    born: Vec<Born>,
    /// Per buffer.
    is_placed: Vec<bool>,
    count: usize,
}

impl<'a> Waiting<'a> {
    fn new(buffers: &'a [Buffer], births: &[Born], keys: &[f64]) -> Self {
        let keyed = births.iter().map(|b| (keys[b.buffer as usize], b.buffer));
        let mut keyed: Vec<(f64, u32)> = keyed.collect();
        keyed.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let ranked: Vec<u32> = keyed.into_iter().map(|(_, buffer)| buffer).collect();
        let mut rank = vec![0; buffers.len()];
        for (place, &i) in (0..).zip(&ranked) {
            rank[i as usize] = place;
        }
        let born = births.iter().map(|&b| Born {
            rank: rank[b.buffer as usize],
            ..b
        });
        Self {
            buffers,
            count: ranked.len(),
            ranked,
            born: born.collect(),
            is_placed: vec![false; buffers.len()],
        }
    }

    /// Takes the buffer of the highest key that lives within a stretch. Those that are born in it are looked through,
    /// or all by their keys, whichever are fewer.
    fn take(&mut self, stretch: Stretch) -> Option<u32> {
        let (buffers, is_placed) = (self.buffers, &self.is_placed);
        let first = self.born.partition_point(|b| b.from < stretch.from);
        let end = self.born.partition_point(|b| b.from <= stretch.to);
        let found = if 2 * (end - first) < self.ranked.len() {
            let born = self.born[first..end].iter();
            let within = |b: &&Born| b.to <= stretch.to && !is_placed[b.buffer as usize];
            born.filter(within).min_by_key(|b| b.rank).map(|b| b.buffer)
        } else {
            let within = |&i: &u32| {
                let b = &buffers[i as usize];
                !is_placed[i as usize] && b.from >= stretch.from && b.to <= stretch.to
            };
            self.ranked.iter().copied().find(within)
        };
        let found = found?;
        self.is_placed[found as usize] = true;
        self.count -= 1;
        if 2 * self.count < self.ranked.len() {
            let is_placed = &self.is_placed;
            self.ranked.retain(|&i| !is_placed[i as usize]);
            self.born.retain(|b| !is_placed[b.buffer as usize]);
        }
        Some(found)
    }
}

/// Fills the lowest stretch with the buffer of the highest key that lives within it; if there is none,
/// lifts it to its lower neighbour. `None` if that comes to more than `most`.
fn raise(buffers: &[Buffer], births: &[Born], keys: &[f64], most: u64) -> Option<Packing> {
    let mut line = vec![Stretch {
        from: 0,
        to: buffers.iter().map(|b| b.to).max().unwrap_or(0),
        height: 0,
    }];
    let mut waiting = Waiting::new(buffers, births, keys);
    let mut packing = Packing {
        offsets: vec![0; buffers.len()],
        height: 0,
    };
    while waiting.count > 0 {
        let lowest = (0..line.len()).min_by_key(|&k| line[k].height);
        let mut at = lowest.expect("the line has a stretch at least");
        let stretch = line[at];
        if let Some(i) = waiting.take(stretch) {
            let (i, b) = (i as usize, &buffers[i as usize]);
            packing.offsets[i] = stretch.height;
            packing.height = packing.height.max(stretch.height + b.bytes);
            if packing.height > most {
                return None;
            }
            if b.from > stretch.from {
                let to = b.from - 1;
                line.insert(at, Stretch { to, ..stretch });
                at += 1;
            }
            line[at] = Stretch {
                from: b.from,
                to: b.to,
                height: stretch.height + b.bytes,
            };
            if b.to < stretch.to {
                let from = b.to + 1;
                line.insert(at + 1, Stretch { from, ..stretch });
            }
        } else {
            let before = at.checked_sub(1).map(|k| line[k].height);
            let after = line.get(at + 1).map(|s| s.height);
            let lower = before.into_iter().chain(after).min();
            line[at].height = lower.expect("each buffer lives within the whole line");
        }
        level(&mut line, at);
        if let Some(before) = at.checked_sub(1) {
            level(&mut line, before);
        }
    }
    Some(packing)
}

/// Makes one stretch of two neighbours of one height.
fn level(line: &mut Vec<Stretch>, at: usize) {
    if line
        .get(at + 1)
        .is_some_and(|next| next.height == line[at].height)
    {
        line[at].to = line.remove(at + 1).to;
    }
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
            let births = births(&buffers);
            let raised = |most| raise(&buffers, &births, &keys, most);
            assert_eq!(raised(u64::MAX), Some(expected.clone()), "{round}");
            assert_eq!(raised(height), Some(expected), "{round}");
            if height > 0 {
                assert_eq!(raised(height - 1), None, "{round}");
            }
        }
    }
}
