//! What a chain of transformer blocks costs under ever smaller budgets.

mod common;

use common::gpt2;
use highwater_plan::{Family, Plan, Policy};
use std::time::Instant;

fn curve(blocks: usize) {
    let problem = gpt2(blocks);
    let start = Instant::now();
    let family = Family::build(&problem, Policy::Auto).unwrap();
    println!(
        "{blocks} blocks, {} nodes: {:?}",
        problem.nodes.len(),
        start.elapsed()
    );
    let top = &family.plans()[0];
    let unit = 4 * 512 * 768 * 4;
    let activations = unit * 16 * blocks as u64;
    let cost = |p: &Plan| 100.0 * (p.seconds / top.seconds - 1.0);
    for percent in [100, 90, 75, 60, 50, 40, 25, 15, 10, 8, 6, 5, 4, 3, 2, 1, 0] {
        let budget = top.arena_bytes - activations * (100 - percent) / 100;
        match family.choose(budget) {
            Ok(p) => {
                let loss = 100.0 * (p.arena_bytes as f64 / p.live_bytes as f64 - 1.0);
                println!(
                    "{percent:3}% {:7.1} MB of {:7.1}: {:5.1}% more, {} again, packing {loss:.1}%",
                    p.arena_bytes as f64 / 1e6,
                    budget as f64 / 1e6,
                    cost(p),
                    p.recomputed_nodes
                );
            }
            Err(refusal) => println!("{percent:3}% {refusal}"),
        }
    }
}

#[test]
fn twelve_blocks() {
    curve(12);
}

#[test]
#[ignore = "prints only"]
fn forty_eight_blocks() {
    curve(48);
}
