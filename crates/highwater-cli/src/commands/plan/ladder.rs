//! What a step costs under budgets from the floor to plenty.

use highwater::{Forecast, Price};
use highwater_memory::Bytes;
use serde::Serialize;

use crate::error::Failure;
use crate::planning::{PLENTY, Planner};

/// Steps from the floor to plenty, at most.
const STEPS: u64 = 8;

/// A budget and what a step costs under it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rung {
    /// The budget.
    pub bytes: u64,
    /// Predicted seconds of a step.
    pub seconds_per_step: f64,
    /// Share of them that computes again what was dropped.
    pub recomputed_share: f64,
    /// Seconds less than with the budget before.
    pub saved_seconds: f64,
    /// Bytes that a step reads from disk.
    pub bytes_read: u64,
    /// Bytes that a step writes to disk.
    pub bytes_written: u64,
}

/// What the budgets between the floor and plenty cost, fastest first, where each is to be planned: in a
/// step of several plans, what one leaves in memory for the next depends on the budget; with tiers
/// below memory, so does what is fetched ahead.
pub(super) fn several(
    forecast: &Forecast,
    planner: &mut Planner<'_>,
) -> Result<Vec<Price>, Failure> {
    let top = planner.at(PLENTY)?.peak_bytes;
    let mut prices = Vec::new();
    for bytes in budgets(forecast, top).into_iter().rev() {
        let found = planner.at(Bytes(bytes))?;
        if found.fits {
            prices.push(Price {
                bytes,
                seconds_per_step: found.seconds_per_step,
                recomputed_nodes: found.recomputed_nodes,
                recompute_seconds: found.recompute_seconds,
                bytes_read: found.bytes_read,
                bytes_written: found.bytes_written,
                host_bytes_read: found.host_bytes_read,
                host_bytes_written: found.host_bytes_written,
            });
        }
    }
    Ok(prices)
}

/// Budgets at even steps, with the floor, the given budget, and the least that more would not help.
fn budgets(forecast: &Forecast, top: u64) -> Vec<u64> {
    let floor = forecast.floor_bytes;
    let mut budgets = vec![floor, top];
    let step = step(top.saturating_sub(floor));
    let between = (floor / step + 1..).map(|i| i * step);
    // What is next to another rung tells nothing.
    let apart = |bytes: &u64| *bytes - floor > step / 4 && top - *bytes > step / 4;
    budgets.extend(between.take_while(|&bytes| bytes < top).filter(apart));
    if (floor..top).contains(&forecast.budget_bytes) {
        budgets.push(forecast.budget_bytes);
    }
    budgets.sort_unstable();
    budgets.dedup();
    budgets
}

/// What budgets cost, less first.
pub(super) fn ladder(forecast: &Forecast) -> Vec<Rung> {
    let Some(top) = forecast.curve.first().map(|price| price.bytes) else {
        return Vec::new();
    };
    let prices = budgets(forecast, top)
        .into_iter()
        .filter_map(|bytes| Some((bytes, price(forecast, bytes)?)));
    let mut before: Option<f64> = None;
    let rung = |(bytes, price): (u64, Price)| {
        let seconds = price.seconds_per_step;
        let saved = before
            .replace(seconds)
            .map_or(0.0, |before| before - seconds);
        Rung {
            bytes,
            seconds_per_step: seconds,
            recomputed_share: share(price.recompute_seconds, seconds),
            saved_seconds: saved,
            bytes_read: price.bytes_read,
            bytes_written: price.bytes_written,
        }
    };
    prices.map(rung).collect()
}

/// The price of the fastest way within a budget.
fn price(forecast: &Forecast, bytes: u64) -> Option<Price> {
    let mut prices = forecast.curve.iter();
    prices.find(|price| price.bytes <= bytes).copied()
}

/// A part of seconds; none of none.
pub(crate) fn share(part: f64, all: f64) -> f64 {
    if all > 0.0 { part / all } else { 0.0 }
}

/// The least power of two of bytes that divides a span in few enough steps.
fn step(span: u64) -> u64 {
    (span / STEPS).next_power_of_two().max(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_even_and_few() {
        assert_eq!(step(0), 1 << 20);
        assert_eq!(step(8 << 30), 1 << 30);
        assert_eq!(step(9 << 30), 2 << 30);
    }
}
