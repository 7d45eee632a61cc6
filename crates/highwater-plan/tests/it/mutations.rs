//! The verifier's law: plans that were tampered with are rejected, and for the right reason.

use crate::common::random::{half_done, random};
use crate::common::samples::gpt::gpt2;
use crate::common::tamper::{self, Counts};
use highwater_plan::*;

/// Tampers with some plans of a problem; returns how often each kind was tried.
fn tamper(problem: &Problem, seed: u64, rounds: usize) -> Counts {
    let family = Family::build(problem, Policy::Auto).expect("a sound problem");
    let mut tried = Counts::default();
    let plans = family.plans(problem);
    for plan in [&plans[0], &plans[plans.len() / 2], &plans[plans.len() - 1]] {
        let counts = tamper::tamper(problem, plan, seed, rounds);
        tried.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
    }
    tried
}

#[test]
fn tampered_chains_are_rejected() {
    let tried = tamper(&gpt2(3), 1, 12);
    assert!(tried.iter().sum::<usize>() >= 400, "{tried:?}");
    assert!(
        tried[..13].iter().all(|&n| n > 0),
        "every kind was tried: {tried:?}"
    );
}

#[test]
fn tampered_graphs_are_rejected() {
    for seed in 0..24 {
        let tried = tamper(&random(seed, 12), seed, 8);
        assert!(tried.iter().sum::<usize>() >= 200, "{seed}: {tried:?}");
    }
}

#[test]
fn tampered_second_halves_are_rejected() {
    let mut sum = 0;
    for seed in 0..24 {
        let problem = half_done(seed, 10);
        if Family::build(&problem, Policy::Auto).is_ok() {
            sum += tamper(&problem, seed, 8).iter().sum::<usize>();
        }
    }
    assert!(sum >= 2000, "{sum}");
}
