//! The most bytes of each step, in blocks: what a stretch has at most is found without a look at each of its steps.

use std::ops::Range;

/// Steps of a block.
const BLOCK: usize = 64;

/// Bytes of each step.
#[derive(Debug)]
pub(super) struct Levels {
    steps: Vec<u64>,
    /// Per block: what each of its steps has besides, and the most of all, that included.
    besides: Vec<u64>,
    most: Vec<u64>,
}

impl Levels {
    pub(super) fn new(steps: &[u64]) -> Levels {
        let most = |block: &[u64]| block.iter().copied().max().unwrap_or(0);
        Levels {
            steps: steps.to_vec(),
            besides: vec![0; steps.len().div_ceil(BLOCK)],
            most: steps.chunks(BLOCK).map(most).collect(),
        }
    }

    /// Whether some step of a stretch has more than so many bytes.
    pub(super) fn exceed(&self, stretch: Range<usize>, bytes: u64) -> bool {
        let mut parts = parts(stretch);
        parts.any(|(block, part)| {
            if part.len() == BLOCK {
                return self.most[block] > bytes;
            }
            let besides = self.besides[block];
            let most = self.steps[part].iter().copied().max();
            most.is_some_and(|most| most + besides > bytes)
        })
    }

    /// Adds bytes to each step of a stretch.
    pub(super) fn raise(&mut self, stretch: Range<usize>, bytes: u64) {
        for (block, part) in parts(stretch) {
            if part.len() == BLOCK {
                self.besides[block] += bytes;
                self.most[block] += bytes;
                continue;
            }
            for step in &mut self.steps[part] {
                *step += bytes;
                self.most[block] = self.most[block].max(*step + self.besides[block]);
            }
        }
    }
}

/// The parts of a stretch that lie in one block each, with the block.
fn parts(stretch: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let blocks = stretch.start / BLOCK..stretch.end.div_ceil(BLOCK);
    blocks.map(move |block| {
        let from = stretch.start.max(block * BLOCK);
        (block, from..stretch.end.min((block + 1) * BLOCK))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn blocks_have_what_their_steps_have() {
        let mut dice = Dice::new();
        for _ in 0..200 {
            let count = 1 + dice.below(400);
            let mut plain: Vec<u64> = (0..count).map(|_| dice.below(1000) as u64).collect();
            let mut levels = Levels::new(&plain);
            for _ in 0..50 {
                let from = dice.below(count + 1);
                let stretch = from..from + dice.below(count - from + 1);
                let bytes = dice.below(1500) as u64;
                let most = plain[stretch.clone()].iter().copied().max();
                let exceeds = most.is_some_and(|most| most > bytes);
                assert_eq!(levels.exceed(stretch.clone(), bytes), exceeds);
                plain[stretch.clone()]
                    .iter_mut()
                    .for_each(|step| *step += bytes / 10);
                levels.raise(stretch, bytes / 10);
            }
        }
    }
}
