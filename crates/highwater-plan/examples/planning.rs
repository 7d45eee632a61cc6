//! Prints what planning takes for each node where keeping all fits: posing, choosing, verifying.
//!
//! `cargo run --release -p highwater-plan --example planning [part of a name]`
#![allow(clippy::print_stdout, reason = "the table is what it is for")]
#![allow(
    clippy::wildcard_imports,
    reason = "it shares its problems with the tests"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::samples::samples;
use common::shapes::{chain, recurrent, trained, wide};
use common::tiered::{link, with_cells};
use highwater_plan::*;
use std::time::Instant;

/// A problem of so many nodes.
type Shape = fn(usize) -> Problem;

/// Numbers of nodes.
const SIZES: [usize; 5] = [1_000, 2_000, 5_000, 10_000, 20_000];
/// More than any of the problems needs.
const PLENTY: u64 = 1 << 40;
/// Each is planned so often; the least counts.
const ATTEMPTS: usize = 3;

/// Microseconds for each node of posing, choosing and verifying, and what packing lost, in percent.
fn planned(problem: &Problem) -> [f64; 4] {
    let mut least = [f64::INFINITY; 4];
    let each = problem.nodes.len() as f64 / 1e6;
    for _ in 0..ATTEMPTS {
        let start = Instant::now();
        let family = Family::build(problem, Policy::Auto).expect("a sound problem");
        let posed = start.elapsed().as_secs_f64();
        let plan = family.choose(problem, PLENTY).expect("it fits");
        let chosen = start.elapsed().as_secs_f64();
        verify(problem, &plan, PLENTY).expect("a sound plan");
        let verified = start.elapsed().as_secs_f64();
        assert!(!family.is_searched());
        let lost = 100.0 * (plan.arena_bytes as f64 / plan.live_bytes.max(1) as f64 - 1.0);
        let now = [
            posed / each,
            (chosen - posed) / each,
            (verified - chosen) / each,
            lost,
        ];
        least = std::array::from_fn(|i| least[i].min(now[i]));
    }
    least
}

fn print(name: &str, problem: &Problem) {
    let [posed, chosen, verified, lost] = planned(problem);
    println!(
        "| {name} | {} | {posed:.1} | {chosen:.1} | {verified:.1} | {:.1} | {lost:.1}% |",
        problem.nodes.len(),
        posed + chosen + verified,
    );
}

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    println!("| problem | nodes | posed | chosen | verified | µs a node | packing |");
    println!("|---|---|---|---|---|---|---|");
    let tiers = Tiers {
        disk: Some(link(2e9)),
        ..Tiers::default()
    };
    let shapes: [(&str, Shape); 4] = [
        ("chain", chain),
        ("trained chain", trained),
        ("recurrent", |nodes| recurrent(nodes / 25)),
        ("wide", wide),
    ];
    for (name, shape) in shapes {
        for nodes in SIZES.into_iter().filter(|_| name.contains(&*wanted)) {
            print(name, &shape(nodes));
        }
    }
    for nodes in SIZES
        .into_iter()
        .filter(|_| "with a disk".contains(&*wanted))
    {
        print("with a disk", &with_cells(&trained(nodes), tiers, None));
    }
    for sample in samples()
        .iter()
        .filter(|sample| sample.name.contains(&*wanted))
    {
        print(sample.name, &sample.problem);
    }
    if "lengths in turn".contains(&*wanted) {
        let start = Instant::now();
        let nodes: f64 = (40..60)
            .map(|steps| {
                let problem = recurrent(steps);
                let per_node: f64 = planned(&problem)[..3].iter().sum();
                per_node * problem.nodes.len() as f64
            })
            .sum();
        println!(
            "\n20 lengths in turn: {:.1} ms ({:.1} s)",
            nodes / 1e3,
            start.elapsed().as_secs_f64()
        );
    }
}
