//! The parts of tiers where a plan puts values that are no cells.

use crate::problem::compiled::Compiled;
use crate::run::board::Moved;
use crate::run::machine::Machine;
use crate::store::tiers::Below;
use crate::{Error, Result};
use highwater_memory::spill::{Extent, Tag};
use highwater_plan::{Action, Plan, Tier, ValueId, footprint_on};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tags of values that are no cells start here: cells are numbered by 32 bits.
const NO_CELL: u64 = 1 << 32;

/// A copy of a value that is no cell.
#[derive(Clone)]
pub(super) struct Copy {
    pub(super) below: Arc<dyn Below>,
    pub(super) extent: Extent,
    pub(super) tag: Tag,
}

/// An area on each tier, held until the plan is over.
pub(super) struct Areas {
    run: u64,
    /// By tier: where each starts.
    starts: Vec<(Tier, Arc<dyn Below>, u64)>,
    /// The last copy of each value.
    copies: BTreeMap<(Tier, ValueId), Copy>,
}

impl Areas {
    /// Areas for all that a plan evicts.
    pub(super) fn of(machine: &Machine<'_>, compiled: &Compiled, plan: &Plan) -> Result<Self> {
        // Each run of a plan has a number of its own, so that no copy is taken for one of another run.
        static RUNS: AtomicU64 = AtomicU64::new(1);
        let mut areas = Self {
            run: RUNS.fetch_add(1, Ordering::Relaxed),
            starts: Vec::new(),
            copies: BTreeMap::new(),
        };
        for below in machine.cells.tiers().all() {
            let end = |action: &Action| match *action {
                Action::Evict {
                    value,
                    tier,
                    place: Some(place),
                } if tier == below.tier() => {
                    let bytes = compiled.problem.values[value.index()].bytes;
                    place + footprint_on(tier, bytes)
                }
                _ => 0,
            };
            let ends = plan.instructions.iter().map(|i| end(&i.action));
            let start = below.area(ends.max().unwrap_or(0))?;
            areas.starts.push((below.tier(), below, start));
        }
        Ok(areas)
    }

    /// The copy that an instruction makes of a value.
    pub(super) fn copy(&mut self, moved: Moved, place: u64, bytes: u64) -> Result<Copy> {
        let Moved {
            index, value, tier, ..
        } = moved;
        let area = self.starts.iter().find(|area| area.0 == tier);
        let (_, below, start) = area.ok_or_else(no_tier)?;
        let copy = Copy {
            below: Arc::clone(below),
            extent: Extent {
                offset: start + place,
                capacity: bytes,
            },
            tag: Tag {
                cell: NO_CELL + value.index() as u64,
                version: self.run << 32 | u64::from(index),
            },
        };
        self.copies.insert((tier, value), copy.clone());
        Ok(copy)
    }

    /// The copy of a value that was made last.
    pub(super) fn last_copy(&self, tier: Tier, value: ValueId) -> Result<Copy> {
        let copy = self.copies.get(&(tier, value));
        copy.cloned().ok_or_else(absent)
    }
}

impl Drop for Areas {
    fn drop(&mut self) {
        for (_, below, _) in &self.starts {
            below.leave();
        }
    }
}

pub(super) fn no_tier() -> Error {
    Error::Internal("the plan moves values to a tier that is not there".into())
}

pub(super) fn absent() -> Error {
    Error::Internal("the plan moves a value that is not there".into())
}
