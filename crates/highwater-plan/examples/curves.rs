//! Prints, for each sample problem, what ever smaller budgets cost, beside what others do.
//!
//! `cargo run --release -p highwater-plan --example curves [part of a name]`
#![allow(clippy::print_stdout, reason = "the tables are what it is for")]
#![allow(
    clippy::wildcard_imports,
    reason = "it shares its sample problems with the tests"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::baselines::measure::Measured;
use common::baselines::{dtr, segments};
use common::chosen;
use common::samples::{Sample, samples};
use highwater_plan::{Family, Policy, Problem};
use std::time::Instant;

/// Shares of the saved bytes that budgets leave.
const SHARES: [f64; 8] = [0.75, 0.6, 0.5, 0.4, 0.25, 0.15, 0.1, 0.05];

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// The family, and the least seconds in which three attempts made it.
fn planned(problem: &Problem) -> (Family, f64) {
    let attempt = || {
        let start = Instant::now();
        let family = Family::build(problem, Policy::Auto).expect("a sound problem");
        // Nothing is searched before somebody asks for less than all.
        family.floor(problem);
        (family, start.elapsed().as_secs_f64())
    };
    let attempts = [attempt(), attempt(), attempt()].into_iter();
    let least = attempts.min_by(|a, b| a.1.total_cmp(&b.1));
    least.expect("there are three")
}

fn print(sample: &Sample) {
    let (family, planning) = planned(&sample.problem);
    let all = chosen(&family, &sample.problem, u64::MAX).expect("no budget is too small");
    let floor = chosen(
        &family,
        &sample.problem,
        family.floor(&sample.problem).arena_bytes,
    )
    .expect("the floor");
    let others = segments(sample);
    println!(
        "\n### {}\n\n{} nodes, planned in {planning:.2} s; all kept {:.0} MB, of which the backward \
         reads {:.0} MB; least found {:.0} MB\n",
        sample.name,
        sample.problem.nodes.len(),
        megabytes(all.live_bytes),
        megabytes(sample.saved_bytes),
        megabytes(floor.arena_bytes),
    );
    println!("| share kept | budget | planner | packing | DTR | per block | sqrt(N) |");
    println!("|---|---|---|---|---|---|---|");
    let extra = |seconds: f64| format!("{:.1}%", 100.0 * (seconds / all.seconds - 1.0));
    let cell = |m: Option<Measured>| m.map_or("-".to_owned(), |m| extra(m.seconds));
    for share in SHARES {
        let less = ((1.0 - share) * sample.saved_bytes as f64) as u64;
        let budget = all.live_bytes.saturating_sub(less);
        let plan = chosen(&family, &sample.problem, budget);
        let (own, packing) = plan.map_or(("-".to_owned(), "-".to_owned()), |p| {
            let lost = 100.0 * (p.arena_bytes as f64 / p.live_bytes as f64 - 1.0);
            (extra(p.seconds), format!("{lost:.1}%"))
        });
        let [block, root] = others.map(|o| cell(Some(o.1).filter(|m| m.peak <= budget)));
        let online = cell(dtr(sample, budget));
        let budget = megabytes(budget);
        println!("| {share} | {budget:.0} MB | {own} | {packing} | {online} | {block} | {root} |");
    }
    let least = others
        .map(|(name, m)| format!("{name} {:.0} MB at {}", megabytes(m.peak), extra(m.seconds)));
    println!(
        "\nAt least: planner {:.0} MB at {}, {}",
        megabytes(floor.arena_bytes),
        extra(floor.seconds),
        least.join(", ")
    );
}

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    samples()
        .iter()
        .filter(|s| s.name.contains(&wanted))
        .for_each(print);
}
