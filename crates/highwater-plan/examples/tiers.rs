//! Prints what smaller budgets cost where cells and values may wait on disk.
//!
//! `cargo run --release -p highwater-plan --example tiers [GB/s each way]`
#![allow(clippy::print_stdout, reason = "the tables are what it is for")]
#![allow(
    clippy::wildcard_imports,
    reason = "it shares its sample problems with the tests"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::samples::gpt::{Shape, gpt};
use common::tiered::{link, with_cells};
use highwater_plan::*;
use std::time::Instant;

fn main() {
    let rate = std::env::args().nth(1).and_then(|rate| rate.parse().ok());
    let rate: f64 = rate.unwrap_or(1.5) * 1e9;
    let shape = |blocks, width, batch| Shape {
        blocks,
        width,
        batch,
        length: 512,
    };
    let cases = [
        (
            "gpt2 4 x 512",
            shape(12, 768, 4),
            vec![2500, 1500, 1000, 912, 668, 412],
        ),
        (
            "gpt2-xl 1 x 512",
            shape(48, 1600, 1),
            vec![20000, 8000, 3996, 2460, 1600],
        ),
    ];
    for (name, shape, budgets) in cases {
        let tiers = Tiers {
            host: None,
            disk: Some(link(2.0 * rate)),
        };
        let problem = with_cells(&gpt("", shape).problem, tiers, None);
        let start = Instant::now();
        let family = Family::build(&problem, Policy::Auto).expect("a sound problem");
        let planning = start.elapsed().as_secs_f64();
        let floor = family.floor(&problem).arena_bytes >> 20;
        println!(
            "{name}: {} nodes, planned in {planning:.2} s, floor {floor} MiB",
            problem.nodes.len()
        );
        for budget in budgets {
            let start = Instant::now();
            match family.choose(&problem, budget << 20) {
                Err(_) => println!("{budget:6} MiB: -"),
                Ok(plan) => {
                    let all = timeline(&problem, &plan);
                    let moved = (plan.disk.read_bytes.max(plan.disk.written_bytes)) as f64 / rate;
                    let least = all.compute_seconds.max(moved);
                    println!(
                        "{budget:6} MiB: {:7.3} s = {:.3} x the larger of {:.3} s of runs and {moved:.3} s of transfers; \
                         {:.2} GB read, {:.2} GB written, {:.3} s again, arena {} MiB, homes {} MiB, chosen in {:.3} s",
                        plan.seconds,
                        plan.seconds / least,
                        all.compute_seconds,
                        plan.disk.read_bytes as f64 / 1e9,
                        plan.disk.written_bytes as f64 / 1e9,
                        plan.recompute_seconds,
                        plan.arena_bytes >> 20,
                        plan.home_bytes >> 20,
                        start.elapsed().as_secs_f64()
                    );
                }
            }
        }
    }
}
