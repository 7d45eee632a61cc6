//! How much a search may do.
//!
//! Programs of many steps repeat themselves, and each of their walks takes longer. So their searches are allowed as
//! much work as those of one length, and walk at fewer rungs: the time grows with what one walk takes, nearly
//! linearly. Walks are mended there ([`crate::simulate`]), so that the same work tries far more settings.

use crate::program::Program;
use crate::search::evict::Rule;
use crate::search::settings::Cuts;
use crate::simulate::LONG;

/// Runs that may be simulated, per step of the program; three times that if it is no chain.
const WORK: u64 = 8_000;
/// A program is a chain if every so many steps there is a cut.
const CHAIN: usize = 40;

/// Steps that a long program counts for, and in the last refinement.
const STEPS: usize = LONG / 2;
const AGAIN: usize = LONG / 4;
/// The lowest rungs, at which each rule walks a long program, so that the least that fits is found; the others are
/// taken in turn.
const LOWEST: usize = 12;

/// So many times what a rung may be polished with it may be reached with: who does not reach it ends there.
const REACH: u64 = 4;

/// The bounds of one search.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    is_long: bool,
    /// Runs for ways down, and for walks.
    pub(super) share: u64,
    /// Runs to get down to a rung, as a multiple of those for a rung of a way.
    pub(super) reach: u64,
    /// Runs for the last refinement.
    pub(super) again: u64,
}

impl Bounds {
    pub(super) fn new(program: &Program, cuts: &Cuts) -> Bounds {
        let steps = program.steps.len();
        let is_chain = cuts.values.len() * CHAIN >= steps;
        let each = if is_chain { WORK } else { 3 * WORK };
        let is_long = steps >= LONG;
        let (share, again) = if is_long {
            (STEPS, AGAIN)
        } else {
            (steps, steps)
        };
        Bounds {
            is_long,
            share: each * share as u64,
            reach: if is_long { REACH } else { 0 },
            again: each * again as u64,
        }
    }

    /// The rungs at which a rule walks.
    pub(super) fn walks(self, rungs: &[u64], rule: Rule) -> Vec<u64> {
        let lowest = rungs.len().saturating_sub(LOWEST);
        let has_turn = |i: usize| Rule::ALL[i % Rule::ALL.len()] == rule;
        let all = (0..).zip(rungs);
        let taken = all.filter(|&(i, _)| !self.is_long || i >= lowest || has_turn(i));
        taken.map(|(_, &rung)| rung).collect()
    }
}
