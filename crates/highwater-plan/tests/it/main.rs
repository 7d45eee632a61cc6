//! The planner from outside: laws of all plans, and comparisons with others and with what is optimal.

#![allow(
    clippy::print_stdout,
    reason = "tables and curves are there to be looked at"
)]

#[path = "../common/mod.rs"]
mod common;

mod alive;
mod baselines;
mod crossing;
mod curve;
mod lanes;
mod laws;
mod linear;
mod monotone;
mod mutations;
mod optimality;
mod tiers;
