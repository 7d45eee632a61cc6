//! Packing by skylines (Sekiyama et al., 2018): the lowest stretch of time is filled first, with a
//! buffer that lives within it; which one goes first is searched for.

use crate::dice::Dice;
use crate::pack::{Buffer, Packing};

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
    let mut best = raise(buffers, &keys);
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
        let packing = raise(buffers, &next);
        if packing.height <= best.height {
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

/// Fills the lowest stretch with the buffer of the highest key that lives within it; if there is none,
/// lifts it to its lower neighbour.
fn raise(buffers: &[Buffer], keys: &[f64]) -> Packing {
    let to = buffers.iter().map(|b| b.to).max().unwrap_or(0);
    let mut line = vec![Stretch {
        from: 0,
        to,
        height: 0,
    }];
    let all = 0..buffers.len() as u32;
    let mut left: Vec<u32> = all.filter(|&i| buffers[i as usize].bytes > 0).collect();
    left.sort_by(|&a, &b| {
        let (first, second) = (keys[a as usize], keys[b as usize]);
        second.total_cmp(&first).then(a.cmp(&b))
    });
    let mut packing = Packing {
        offsets: vec![0; buffers.len()],
        height: 0,
    };
    while !left.is_empty() {
        let lowest = (0..line.len()).min_by_key(|&k| line[k].height);
        let at = lowest.expect("the line has a stretch at least");
        let stretch = line[at];
        let within = |&i: &u32| {
            let b = &buffers[i as usize];
            b.from >= stretch.from && b.to <= stretch.to
        };
        if let Some(k) = left.iter().position(within) {
            let i = left.remove(k) as usize;
            packing.offsets[i] = stretch.height;
            packing.height = packing.height.max(stretch.height + buffers[i].bytes);
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
    packing
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
