//! Optimizers, schedules, averages of parameters, initialisers.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod initialisers;
mod optimizers;
mod steps;
