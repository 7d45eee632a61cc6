//! Step 5: no two things are in the same bytes at the same time.

use super::Violation;
use super::clock::Clocks;
use super::holding::{Close, Holding};
use crate::plan::Plan;

/// Checks all pairs, and returns the live bytes at each instruction: of all that was opened up to
/// it in the list and whose closing is not known to have happened before it.
pub(super) fn check(
    plan: &Plan,
    clocks: &Clocks,
    holdings: &[Holding],
) -> Result<Vec<u64>, Violation> {
    let mut opening: Vec<Vec<usize>> = vec![Vec::new(); plan.instructions.len()];
    let mut open: Vec<usize> = Vec::new();
    for (h, holding) in holdings.iter().enumerate().filter(|(_, h)| h.bytes > 0) {
        if let Some(i) = holding.open {
            opening[i as usize].push(h);
            continue;
        }
        if let Some(&o) = open.iter().find(|&&o| holdings[o].overlaps(holding)) {
            let (value, other) = (holding.value, holdings[o].value);
            return Err(Violation::OverlapAtStart { value, other });
        }
        open.push(h);
    }
    let mut front = clocks.front();
    let mut live = Vec::with_capacity(plan.instructions.len().max(1));
    for (i, opening) in (0..).zip(&opening) {
        for &h in opening {
            let clear = |&&o: &&usize| {
                let other = &holdings[o];
                let closed = match other.close {
                    Close::Never => false,
                    Close::At(c) => clocks.before(c, i),
                    Close::TakenBy(c, by) => by == h || clocks.before(c, i),
                };
                !closed && other.overlaps(&holdings[h])
            };
            if let Some(&o) = open.iter().find(clear) {
                let (value, other) = (holdings[h].value, holdings[o].value);
                return Err(Violation::Overlap {
                    instruction: i,
                    value,
                    other,
                });
            }
            open.push(h);
        }
        let alive = |&&o: &&usize| match holdings[o].close {
            Close::Never => true,
            Close::At(c) => !clocks.before(c, i),
            Close::TakenBy(c, _) => c != i && !clocks.before(c, i),
        };
        live.push(open.iter().filter(alive).map(|&o| holdings[o].bytes).sum());
        front.advance(i);
        open.retain(|&o| {
            holdings[o]
                .close
                .instruction()
                .is_none_or(|c| c > i || !front.passed(c))
        });
    }
    if live.is_empty() {
        live.push(open.iter().map(|&o| holdings[o].bytes).sum());
    }
    Ok(live)
}
