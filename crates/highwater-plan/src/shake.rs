//! Random steps away from what was found, for problems small enough to try many.

use crate::search::Search;
use crate::simulate::{KEEP, NEVER, RELEASE};

/// Settings that a random step may choose.
const CHOICES: [u8; 6] = [KEEP, 1, 2, 3, RELEASE, NEVER];

/// A linear congruential generator, so that planning is a function of the problem.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new() -> Dice {
        Dice(0x9e37_79b9_7f4a_7c15)
    }

    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % n.max(1) as u64) as usize
    }
}

impl Search<'_> {
    /// Changes one to three settings of the best there is for a budget (of the smallest there is, if
    /// there is none), and descends and polishes from there.
    pub(crate) fn shake(&mut self, budget: u64, dice: &mut Dice) {
        let best = self.archive.within(budget);
        let Some(found) = best.or_else(|| self.archive.all().next()).cloned() else {
            return;
        };
        let mut settings = found.settings;
        for _ in 0..=dice.below(3) {
            let gap = dice.below(settings.len());
            let choice = CHOICES[dice.below(CHOICES.len())];
            if self.free(gap) {
                settings[gap] = choice;
            }
        }
        let Some(found) = self.repair(settings) else {
            return;
        };
        if let Some(found) = self.lower(found, budget) {
            self.polish(found, budget);
        }
    }
}
