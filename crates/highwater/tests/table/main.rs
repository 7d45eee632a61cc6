//! Random programs over the whole table of operations: what each of its rows declares, its samples and its
//! plain reference, is all that is known of an operation here. A new operation is tried without a line
//! for it.
//!
//! A program applies samples one after the other to parts of what others made, brought into the range that the
//! sample's inputs have. Its values are compared with the references', in `f64`; its gradients with
//! differences; a backward pass under the least budgets gives the bits that it gives with plenty, and so do some
//! steps of training, also node by node and beside a disk.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "helpers of tests fail as tests do, and numbers are compared bit for bit"
)]

mod interpreter;
mod program;
mod run;
#[path = "../share/mod.rs"]
mod share;
mod train;

use program::{Numbers, Program};
use share::{one_of, some};

/// How many programs are tried.
const PROGRAMS: u64 = 400;

#[test]
fn values_are_the_references() {
    let mut compared = 0;
    for seed in some(0..PROGRAMS) {
        let program = Program::random(&mut Numbers(seed));
        compared += run::compare_values(&program)
            .unwrap_or_else(|what| panic!("{seed}: {what}\n{program:#?}"));
    }
    assert!(
        compared > 10_000 / one_of(),
        "{compared} numbers were compared"
    );
}

#[test]
fn gradients_are_what_differences_say() {
    let mut compared = 0;
    for seed in some(0..PROGRAMS) {
        let program = Program::random(&mut Numbers(1_000_000 + seed));
        compared += run::compare_gradients(&program)
            .unwrap_or_else(|what| panic!("{seed}: {what}\n{program:#?}"));
    }
    assert!(
        compared > 500 / one_of(),
        "{compared} gradients were compared"
    );
}

#[test]
fn budgets_change_no_bit() {
    let mut ran = 0;
    for seed in some(0..PROGRAMS / 8) {
        let program = Program::random(&mut Numbers(2_000_000 + seed));
        ran += run::compare_budgets(&program)
            .unwrap_or_else(|what| panic!("{seed}: {what}\n{program:#?}"));
    }
    assert!(ran > 50 / one_of(), "{ran} runs in budgets");
}

#[test]
fn training_is_the_same_on_every_engine() {
    let mut ran = 0;
    for seed in some(0..PROGRAMS / 8) {
        let program = Program::random(&mut Numbers(3_000_000 + seed));
        ran += train::compare(&program, seed)
            .unwrap_or_else(|what| panic!("{seed}: {what}\n{program:#?}"));
    }
    assert!(ran > 80 / one_of(), "{ran} runs");
}

/// Every operation that can be part of a program is, in some of these programs.
#[test]
fn no_operation_is_left_out() {
    let mut left: std::collections::BTreeSet<&str> = program::names();
    for seed in 0..50 * PROGRAMS {
        for name in Program::random(&mut Numbers(seed)).operations() {
            left.remove(name);
        }
    }
    assert!(left.is_empty(), "{left:?}");
}
