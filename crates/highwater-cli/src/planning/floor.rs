//! The floor: the least budget that a step fits into.
//!
//! One plan states its floor. A step of several plans is refused by the first that does not fit, with what that one
//! needs after those before it; so its floor is searched for, by planning under other budgets.

use highwater::Forecast;
use highwater_memory::Bytes;

use super::assumptions::PLENTY;
use super::planner::Planner;
use crate::error::Failure;

/// How often what a refusal asks for is tried, before halving; and how often a little less than a floor.
const TRIES: usize = 8;
/// Of a budget into which no step fits, so many shares above the floor are tried.
const SHARES: u64 = 4;
/// Halving ends when what is left is one part in so many, and at most so many bytes.
const NEAR: u64 = 256;
const NEAR_BYTES: u64 = 512 << 10;
/// So much less than a floor is tried, as often as that does after all.
const UNIT_BYTES: u64 = 1 << 20;

/// What was learnt of a floor in some tries.
#[derive(Debug)]
pub struct NearFloor {
    /// With the floor, or the least that it is above.
    pub forecast: Forecast,
    /// A budget that does not do, in bytes; the floor itself where one plan tells it.
    pub refused: u64,
    /// Whether the floor of the forecast does.
    pub found: bool,
}

impl NearFloor {
    /// Takes a budget for the floor, as a plan under it is. Where the step does not fit, the forecast becomes that of
    /// this plan.
    fn take(&mut self, least: Forecast, floor_bytes: u64) {
        let forecast = &mut self.forecast;
        if !forecast.fits {
            *forecast = Forecast {
                fits: false,
                budget_bytes: forecast.budget_bytes,
                ..least.clone()
            };
        }
        forecast.floor_bytes = floor_bytes;
        forecast.floor_at = least.floor_at;
        forecast.floor_held = least.floor_held;
    }

    /// How far the floor may be above the least budget.
    fn span(&self) -> u64 {
        self.forecast.floor_bytes.saturating_sub(self.refused)
    }
}

impl Planner<'_> {
    /// The floor in so many tries: what a refusal asks for is tried next.
    ///
    /// # Errors
    /// As [`Planner::forecast`].
    pub fn near_floor(&mut self, tries: usize) -> Result<NearFloor, Failure> {
        let forecast = self.forecast()?;
        let mut near = NearFloor {
            refused: forecast.floor_bytes,
            found: self.config.training.accumulate == 1,
            forecast,
        };
        let mut memory = 1;
        for _ in 0..tries {
            if near.found {
                break;
            }
            let least = self.anew(Bytes(memory))?;
            near.found = least.fits;
            // What the first plan asks for of nothing is its floor; what later ones ask for depends on
            // what those before them left.
            if !near.found {
                near.refused = if memory == 1 {
                    least.floor_bytes.saturating_sub(1)
                } else {
                    memory
                };
            }
            memory = memory.max(least.floor_bytes);
            near.take(least, memory);
        }
        Ok(near)
    }

    /// What a step takes, with the floor of all of it; where it does not fit, of the plan at its floor.
    ///
    /// # Errors
    /// As [`Planner::forecast`].
    pub fn with_floor(&mut self) -> Result<Forecast, Failure> {
        let mut near = self.near_floor(TRIES)?;
        if !near.found {
            let plenty = self.at(PLENTY)?.peak_bytes;
            near.found = self.try_floor(&mut near, plenty)?;
        }
        if near.found {
            self.halve(&mut near)?;
            self.lower(&mut near)?;
        }
        Ok(near.forecast)
    }

    /// What a step takes under the most of the budget that one was found to fit into, with its floor. Of
    /// several plans the later ones may do with the floor and not with somewhat more, as the earlier ones
    /// leave less room then: the forecast is of a smaller budget where there is one that does.
    ///
    /// # Errors
    /// As [`Planner::forecast`].
    pub fn within(&mut self) -> Result<Forecast, Failure> {
        let stated = self.with_floor()?;
        let floor = stated.floor_bytes;
        let spare = stated.budget_bytes.saturating_sub(floor);
        if stated.fits || stated.budget_bytes < floor {
            return Ok(stated);
        }
        for share in (0..SHARES).rev() {
            let less = self.anew(Bytes(floor + spare * share / SHARES))?;
            if less.fits {
                return Ok(Forecast {
                    floor_bytes: floor,
                    floor_at: stated.floor_at,
                    floor_held: stated.floor_held,
                    ..less
                });
            }
        }
        Ok(stated)
    }

    /// Halves what lies between the floor and a budget that does not do. Where there is no end to the refusals, or
    /// one asked for too much, what is found so is near the least.
    fn halve(&mut self, near: &mut NearFloor) -> Result<(), Failure> {
        while near.span() > (near.refused / NEAR).min(NEAR_BYTES) {
            let middle = near.refused.midpoint(near.forecast.floor_bytes);
            if !self.try_floor(near, middle)? {
                near.refused = middle;
            }
        }
        Ok(())
    }

    /// Tries a little less than the floor of several plans: later ones may do with less and not with a little more,
    /// as the earlier ones left them more or less; and with tiers what a plan asks for of nothing may be more than it
    /// needs.
    fn lower(&mut self, near: &mut NearFloor) -> Result<(), Failure> {
        let several = self.config.training.accumulate > 1;
        for _ in 0..TRIES {
            let less = near.forecast.floor_bytes.saturating_sub(UNIT_BYTES);
            if !(several && self.try_floor(near, less)?) {
                break;
            }
        }
        Ok(())
    }

    /// Takes a budget for the floor if a step fits into it.
    fn try_floor(&mut self, near: &mut NearFloor, memory: u64) -> Result<bool, Failure> {
        let least = self.anew(Bytes(memory))?;
        let fits = least.fits;
        if fits {
            near.take(least, memory);
        }
        Ok(fits)
    }
}
