//! Step 3 for transfers: copies on tiers, who made them and who reads them.

use super::Violation;
use super::form::taken;
use super::replay::{Replay, holding};
use crate::problem::{Tier, ValueId};

/// The last copy of a value on a tier, and who uses it.
#[derive(Debug)]
pub(super) struct Copied {
    /// `None` if it is there from the start.
    pub(super) evict: Option<u32>,
    pub(super) contents: u64,
    pub(super) fetches: Vec<u32>,
    /// The range that it takes among what is spilled; `None` for cells.
    pub(super) range: Option<(u64, u64)>,
}

impl Replay<'_> {
    pub(super) fn evict(
        &mut self,
        i: u32,
        value: ValueId,
        tier: Tier,
        place: Option<u64>,
    ) -> Result<(), Violation> {
        let h = self.open(i, value)?;
        self.end.holdings[h].uses.push((i, false));
        self.close(i, value)?;
        let contents = self.end.holdings[h].contents;
        let bytes = self.problem.values[value.index()].bytes;
        let range = place.map(|place| (place, place + bytes.max(1)));
        self.overwrite(i, value, tier, range)?;
        let copy = Copied {
            evict: Some(i),
            contents,
            fetches: Vec::new(),
            range,
        };
        if let Some(old) = self.end.copies.insert((value, tier), copy) {
            let mut users = old.fetches.into_iter().chain(old.evict);
            if let Some(first) = users.find(|&u| !self.clocks.before(u, i)) {
                return Err(Violation::Race {
                    first,
                    second: i,
                    value,
                });
            }
        }
        Ok(())
    }

    /// Gives up the copies of other values in a range of a tier.
    fn overwrite(
        &mut self,
        i: u32,
        value: ValueId,
        tier: Tier,
        range: Option<(u64, u64)>,
    ) -> Result<(), Violation> {
        let Some((from, to)) = range else {
            return Ok(());
        };
        let meets = |copy: &Copied| copy.range.is_some_and(|(f, t)| f < to && from < t);
        let others = self.end.copies.iter();
        let others = others.filter(|&(&(v, t), copy)| v != value && t == tier && meets(copy));
        let others: Vec<ValueId> = others.map(|(&(v, _), _)| v).collect();
        for other in others {
            let Some(copy) = self.end.copies.remove(&(other, tier)) else {
                continue;
            };
            let mut users = copy.fetches.into_iter().chain(copy.evict);
            if users.any(|u| !self.clocks.before(u, i)) {
                return Err(Violation::CopiesOverlap {
                    instruction: i,
                    value,
                    other,
                    tier,
                });
            }
        }
        Ok(())
    }

    pub(super) fn fetch(
        &mut self,
        i: u32,
        value: ValueId,
        tier: Tier,
        offset: u64,
    ) -> Result<(), Violation> {
        let copy = self.end.copies.get_mut(&(value, tier));
        let copy = copy.ok_or(Violation::NoCopy {
            instruction: i,
            value,
            tier,
        })?;
        if let Some(opened) = copy.evict.filter(|&e| !self.clocks.before(e, i)) {
            return Err(Violation::MissingWait {
                instruction: i,
                opened,
                value,
            });
        }
        copy.fetches.push(i);
        if let Some(h) = self.end.open[value.index()] {
            let other = self.end.holdings[h].value;
            return Err(Violation::Overlap {
                instruction: i,
                value: Some(value),
                other,
            });
        }
        let bytes = self.problem.values[value.index()].bytes;
        self.end.open[value.index()] = Some(self.end.holdings.len());
        let bytes = taken(self.problem, bytes);
        self.end
            .holdings
            .push(holding(Some(value), offset, bytes, copy.contents, i));
        Ok(())
    }
}
