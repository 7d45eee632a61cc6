//! Plans that move values and cells to tiers: sound under every budget, and worth it.

use crate::common::random::random;
use crate::common::samples::gpt::gpt2;
use crate::common::tiered::{link, with_cells};
use highwater_plan::*;

fn disk(rate: f64) -> Tiers {
    Tiers {
        host: None,
        disk: Some(link(rate)),
    }
}

/// Budgets from the floor to plenty.
fn budgets(problem: &Problem, family: &Family, count: u64) -> Vec<u64> {
    let floor = family.floor(problem).arena_bytes;
    let top: u64 = problem.values.iter().map(|v| v.bytes + 4096).sum();
    (0..=count)
        .map(|i| floor + (top - floor) * i * i / count / count)
        .collect()
}

fn sound(problem: &Problem, policy: Policy, count: u64) -> Vec<(u64, Plan)> {
    let family = Family::build(problem, policy).expect("a sound problem");
    let plans = budgets(problem, &family, count).into_iter().map(|budget| {
        let plan = family.choose(problem, budget).expect("at least the floor");
        assert!(
            plan.memory_bytes() <= budget,
            "{} > {budget}",
            plan.memory_bytes()
        );
        let proof = verify(problem, &plan, budget);
        assert!(proof.is_ok(), "{proof:?} under {budget}");
        (budget, plan)
    });
    let plans = plans.collect();
    let below = family.floor(problem).arena_bytes - 1;
    assert!(family.choose(problem, below).is_err());
    plans
}

#[test]
fn random_steps_are_sound_with_a_disk() {
    for seed in 0..12 {
        let problem = with_cells(&random(seed, 24), disk(1e4), None);
        sound(&problem, Policy::Auto, 6);
    }
}

/// What a disk moves in a second changes what is fast, not what fits.
#[test]
fn the_least_budget_does_not_depend_on_rates() {
    for seed in 0..6 {
        let floors = [1e2, 1e4, 1e6, 1e9].map(|rate| {
            let problem = with_cells(&random(seed, 24), disk(rate), None);
            let family = Family::build(&problem, Policy::Auto).expect("a sound problem");
            family.floor(&problem).arena_bytes
        });
        let (least, most) = (floors.iter().min().unwrap(), floors.iter().max().unwrap());
        println!("{floors:?}");
        assert!(most * 10 <= least * 11, "{seed}: {floors:?}");
    }
}

/// Each plan with one thing wrong is rejected: what a run waits for, a copy that is not made or made
/// elsewhere, a home or traffic that is not what is said.
#[test]
fn tampered_transfers_are_noticed() {
    let mut tampered = [0; 4];
    for seed in 0..4 {
        let problem = with_cells(&random(seed, 70), disk(1e5), None);
        for (budget, plan) in sound(&problem, Policy::Auto, 3) {
            let rejected = |bad: &Plan, what: &str| {
                let verdict = verify(&problem, bad, budget);
                assert!(verdict.is_err(), "{seed}, {budget}: {what}");
            };
            for (i, instruction) in plan.instructions.iter().enumerate() {
                if matches!(instruction.action, Action::Run { .. }) {
                    for wait in 0..instruction.waits.len() {
                        let mut bad = plan.clone();
                        bad.instructions[i].waits.remove(wait);
                        rejected(&bad, "a run that does not wait");
                        tampered[0] += 1;
                    }
                }
                if let Action::Evict { value, .. } = instruction.action {
                    let mut bad = plan.clone();
                    bad.instructions[i].action = Action::Free { value };
                    bad.instructions[i].lane = Lane::Compute;
                    bad.disk.written_bytes -= problem.values[value.index()].bytes;
                    rejected(&bad, "a copy that is not made");
                    tampered[1] += 1;
                }
            }
            for home in 0..plan.homes.len() {
                let mut bad = plan.clone();
                bad.homes[home].1 = match plan.homes[home].1 {
                    Some(_) => None,
                    None => Some(Tier::Disk),
                };
                rejected(&bad, "another home");
                tampered[2] += 1;
            }
            let mut bad = plan.clone();
            bad.disk.read_bytes += 1;
            rejected(&bad, "other traffic");
            tampered[3] += 1;
        }
    }
    assert!(tampered.iter().sum::<u32>() >= 200, "{tampered:?}");
    assert!(tampered.iter().all(|&count| count > 10), "{tampered:?}");
}

/// Many of them: `cargo test --release -p highwater-plan --test it tiers -- --ignored`.
#[test]
#[ignore = "minutes"]
fn many_random_steps_are_sound_with_tiers() {
    for seed in 0..150 {
        let rate = [1e2, 1e4, 1e6][seed as usize % 3];
        let mut tiers = disk(rate);
        if seed % 2 == 0 {
            tiers.host = Some(Link {
                bytes: 1 << (6 + seed % 12),
                ..link(10.0 * rate)
            });
        }
        let problem = with_cells(&random(seed, 65 + seed as usize % 30), tiers, None);
        sound(&problem, Policy::Auto, 5);
    }
}

#[test]
fn homes_that_are_given_are_kept() {
    for seed in 0..4 {
        let problem = with_cells(&random(seed, 24), disk(1e4), Some(Tier::Disk));
        for (_, plan) in sound(&problem, Policy::Auto, 4) {
            assert!(plan.homes.iter().all(|home| home.1 == Some(Tier::Disk)));
        }
    }
}

#[test]
fn a_disk_that_may_not_be_written_holds_no_updated_cell() {
    for seed in 0..4 {
        let mut tiers = disk(1e4);
        tiers.disk.as_mut().expect("there is one").writable = false;
        let problem = with_cells(&random(seed, 24), tiers, None);
        for (_, plan) in sound(&problem, Policy::Auto, 4) {
            assert_eq!(plan.disk.written_bytes, 0);
        }
    }
}

#[test]
fn gpt2_trains_in_less_than_its_weights_and_moments() {
    let problem = with_cells(&gpt2(4), disk(1.5e9), None);
    let all: u64 = problem
        .values
        .iter()
        .filter(|v| matches!(v.home, Home::Cell(_)))
        .map(|v| v.bytes)
        .sum();
    let plans = sound(&problem, Policy::Auto, 8);
    let (least, fastest) = (&plans[0].1, &plans[8].1);
    assert!(
        least.memory_bytes() < all,
        "{} of {all}",
        least.memory_bytes()
    );
    assert_eq!(
        fastest.disk,
        Traffic {
            spill_bytes: 0,
            ..Traffic::default()
        }
    );
    for (budget, plan) in &plans {
        println!(
            "{} MB: {:.3} s, read {} MB, written {} MB, {:.3} s again",
            budget >> 20,
            plan.seconds,
            plan.disk.read_bytes >> 20,
            plan.disk.written_bytes >> 20,
            plan.recompute_seconds
        );
    }
}
