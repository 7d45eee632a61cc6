//! What a chain of transformer blocks costs under ever smaller budgets.

use crate::common::samples::gpt::gpt2;
use highwater_plan::{Family, Plan, Policy, verify};
use std::time::Instant;

fn curve(blocks: usize) {
    let problem = gpt2(blocks);
    let start = Instant::now();
    let family = Family::build(&problem, Policy::Auto).expect("a sound problem");
    println!(
        "{blocks} blocks, {} nodes: {:?}",
        problem.nodes.len(),
        start.elapsed()
    );
    let plans = family.plans(&problem);
    let top = &plans[0];
    let unit = 4 * 512 * 768 * 4;
    let activations = unit * 16 * blocks as u64;
    let cost = |p: &Plan| 100.0 * (p.seconds / top.seconds - 1.0);
    for percent in [100, 90, 75, 60, 50, 40, 25, 15, 10, 8, 6, 5, 4, 3, 2, 1, 0] {
        let budget = top.arena_bytes - activations * (100 - percent) / 100;
        match family.choose(&problem, budget) {
            Ok(p) => {
                let loss = 100.0 * (p.arena_bytes as f64 / p.live_bytes as f64 - 1.0);
                println!(
                    "{percent:3}% {:7.1} MB of {:7.1}: {:5.1}% more, {} again, packing {loss:.1}%",
                    p.arena_bytes as f64 / 1e6,
                    budget as f64 / 1e6,
                    cost(&p),
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

/// Half the activations for at most 6% more time, a quarter for 13%; many plans, each of which
/// recomputes more than the one above it; packing within 2%.
#[test]
fn the_curve_is_good() {
    let problem = gpt2(12);
    let family = Family::build(&problem, Policy::Auto).expect("a sound problem");
    let plans = family.plans(&problem);
    let top = &plans[0];
    let at = |share: f64| {
        let saved = (1.0 - share) * f64::from(4 * 512 * 768 * 4 * 16 * 12);
        let plan = family
            .choose(&problem, top.arena_bytes - saved as u64)
            .expect("far above the floor");
        plan.seconds / top.seconds
    };
    assert!(
        at(0.5) < 1.06 && at(0.25) < 1.13,
        "{} {}",
        at(0.5),
        at(0.25)
    );
    let floor = family.floor(&problem).arena_bytes;
    let budgets = (0..12).map(|i| top.arena_bytes - (top.arena_bytes - floor) * i / 11);
    let plans: Vec<Plan> = budgets
        .map(|b| family.choose(&problem, b).expect("above the floor"))
        .collect();
    let mut distinct = plans.clone();
    distinct.dedup();
    assert!(distinct.len() >= 8, "{}", distinct.len());
    for pair in plans.windows(2) {
        assert!(pair[0].recompute_seconds <= pair[1].recompute_seconds);
    }
    for plan in &family.plans(&problem) {
        assert!(plan.arena_bytes * 100 <= plan.live_bytes * 102, "packing");
        verify(&problem, plan, plan.arena_bytes).expect("sound");
    }
}

/// The policies bound the curve from both ends.
#[test]
fn policies() {
    let problem = gpt2(12);
    let build = |policy| Family::build(&problem, policy).expect("a sound problem");
    let (auto, keep) = (build(Policy::Auto), build(Policy::Keep));
    let blocks = build(Policy::Recompute);
    let plans = |family: &Family| family.plans(&problem);
    assert_eq!(plans(&keep).len(), 1);
    assert_eq!(plans(&keep)[0].recomputed_nodes, 0);
    assert_eq!(plans(&keep)[0].arena_bytes, plans(&auto)[0].arena_bytes);
    let fastest = &plans(&blocks)[0];
    println!(
        "between cuts: {:.1} MB, {:.1}% more",
        fastest.arena_bytes as f64 / 1e6,
        100.0 * (fastest.seconds / plans(&keep)[0].seconds - 1.0)
    );
    assert!(fastest.arena_bytes * 3 < plans(&keep)[0].arena_bytes);
    assert!(fastest.seconds < plans(&keep)[0].seconds * 1.25);
    let same = auto
        .choose(&problem, fastest.arena_bytes)
        .expect("the planner may do the same");
    assert!(same.seconds <= fastest.seconds);
}

#[test]
#[ignore = "prints only"]
fn forty_eight_blocks() {
    curve(48);
}
