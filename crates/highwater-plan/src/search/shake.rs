//! Random steps away from what was found, for problems small enough to try many.

use crate::dice::Dice;
use crate::problem::{NodeId, ValueId};
use crate::search::Search;
use crate::simulate::setting::{KEEP, LATEST, NEVER, RELEASE, released};

/// Rounds without a gain after which it ends.
const VAIN: u32 = 100;

/// Settings that a random step may choose.
const CHOICES: [u8; 7] = [KEEP, 1, 2, 3, RELEASE, released(2), NEVER];

impl Search<'_> {
    /// The settings that matter: of values that take room, and of nodes with inputs to choose from.
    fn choices(&self) -> Vec<usize> {
        let program = self.program;
        let values = ValueId::below(program.size.len()).filter(|&v| program.size[v.index()] > 0);
        let gaps = values.flat_map(|v| program.gap(v)..=program.gap(v) + program.uses(v).len());
        let nodes = NodeId::below(program.nodes() + 1).filter(|&n| program.inputs.row(n).len() > 1);
        gaps.filter(|&gap| self.free(gap))
            .chain(nodes.map(|n| program.order(n)))
            .collect()
    }

    /// Shakes what was found at each rung, until that has been in vain for long.
    pub(crate) fn shake(&mut self, rungs: &[u64]) {
        let choices = self.choices();
        let (mut dice, mut vain) = (Dice::new(), 0);
        while vain < VAIN && !choices.is_empty() && !self.spent() {
            let taken = self.archive.taken;
            for &rung in rungs {
                self.shake_one(rung, &mut dice, &choices);
            }
            vain = if self.archive.taken > taken {
                0
            } else {
                vain + 1
            };
        }
    }

    /// Changes one to three settings of the best there is for a budget (of the smallest there is, if
    /// there is none), and descends and polishes from there.
    fn shake_one(&mut self, budget: u64, dice: &mut Dice, choices: &[usize]) {
        let best = self.archive.within(budget);
        let Some(found) = best.or_else(|| self.archive.all().next()).cloned() else {
            return;
        };
        let mut settings = found.settings;
        for _ in 0..=dice.below(3) {
            let at = choices[dice.below(choices.len())];
            settings[at] = match self.limits.high[at] {
                LATEST => settings[at] ^ LATEST,
                _ => CHOICES[dice.below(CHOICES.len())],
            };
        }
        let Some(found) = self.repair(settings) else {
            return;
        };
        if let Some(found) = self.lower(found, budget) {
            self.polish(found, budget);
        }
    }
}
