//! How far the planner is from the best that there is, where that can be known.

use crate::common::chosen;
use crate::common::exact::Exact;
use crate::common::mirrored::mirrored;
use highwater_plan::{Family, Policy, verify};

/// What was seen: cases are (seed, percent), excess is over the best seconds.
#[derive(Default)]
struct Row {
    cases: usize,
    /// No plan whose live bytes fit, though there is one.
    lost: Vec<(u64, u64)>,
    /// There is one, but no arena of that height for it, or only for a slower one.
    unpacked: usize,
    excess: Vec<(f64, (u64, u64))>,
}

impl Row {
    fn mean(&self) -> f64 {
        self.excess.iter().map(|e| e.0).sum::<f64>() / self.excess.len() as f64
    }

    fn print(&self, name: &str) {
        let optimal = self.excess.iter().filter(|e| e.0 < 1e-9).count();
        let worst = self.excess.iter().max_by(|a, b| a.0.total_cmp(&b.0));
        let (max, (seed, percent)) = *worst.expect("some were found");
        println!(
            "| {name} | {} | {} | {optimal} | {:.2}% | {:.1}% (seed {seed} at {percent}%) | {} |",
            self.cases,
            self.lost.len(),
            100.0 * self.mean(),
            100.0 * max,
            self.unpacked,
        );
    }

    fn add(&mut self, mut other: Row) {
        self.cases += other.cases;
        self.unpacked += other.unpacked;
        self.lost.append(&mut other.lost);
        self.excess.append(&mut other.excess);
    }
}

fn compare(seed: u64, nodes: usize, row: &mut Row) {
    let problem = mirrored(seed, nodes);
    let exact = Exact::new(&problem);
    let family = Family::build(&problem, Policy::Auto).expect("a sound problem");
    let all = chosen(&family, &problem, u64::MAX).expect("no budget is too small");
    let least = exact.least_bytes();
    for percent in [0, 20, 40, 60, 80] {
        let budget = least + (all.live_bytes - least) * percent / 100;
        let best = exact.seconds(budget);
        let found = family.outcomes().find(|&(bytes, _)| bytes <= budget);
        let Some(best) = best else {
            assert!(found.is_none(), "seed {seed}: a plan where none can be");
            continue;
        };
        row.cases += 1;
        let Some((_, seconds)) = found else {
            row.lost.push((seed, percent));
            continue;
        };
        assert!(seconds >= best - 1e-9, "seed {seed}: beyond the best");
        row.excess.push((seconds / best - 1.0, (seed, percent)));
        let packed = chosen(&family, &problem, budget);
        if let Some(plan) = &packed {
            verify(&problem, plan, budget).expect("sound");
        }
        row.unpacked += usize::from(packed.is_none_or(|p| p.seconds > seconds));
    }
}

/// 200 graphs of 10 to 14 nodes under five budgets each, from the largest single run to all kept.
fn table() -> Row {
    println!("| nodes | cases | not found | optimal | mean excess | most | not packed |");
    println!("|---|---|---|---|---|---|---|");
    let mut whole = Row::default();
    for nodes in 10..=14 {
        let mut row = Row::default();
        for seed in 0..40 {
            compare(seed * 100 + nodes as u64, nodes, &mut row);
        }
        row.print(&nodes.to_string());
        whole.add(row);
    }
    whole.print("all");
    println!("not found (seed, percent): {:?}", whole.lost);
    whole
}

/// On average within 1% of the best.
#[test]
fn close_to_the_best() {
    let mean = table().mean();
    assert!(mean <= 0.01, "{mean}");
}

/// At most 2% of what can be done is not found.
#[test]
fn found_where_there_is_one() {
    let whole = table();
    assert!(whole.lost.len() * 50 <= whole.cases);
}

/// The solver itself: three values made from each other in a chain and read back in turn.
#[test]
fn the_best_is_known_for_a_chain() {
    let mut b = crate::common::Builder::default();
    let v = [100, 100, 100].map(|bytes| b.arena(bytes));
    b.node(&[], &[v[0]], 1.0);
    b.node(&[v[0]], &[v[1]], 2.0);
    b.node(&[v[1]], &[v[2]], 4.0);
    for &v in v.iter().rev() {
        b.node(&[v], &[], 1.0);
    }
    let exact = Exact::new(&b.problem);
    assert_eq!(exact.least_bytes(), 256);
    let seconds = [127, 255, 256, 383, 384].map(|budget| exact.seconds(budget));
    assert_eq!(seconds, [None, None, Some(11.0), Some(11.0), Some(10.0)]);
}

/// Neither the bound nor freeing only where it is needed loses anything.
#[test]
fn the_best_is_that_of_a_plain_search() {
    for seed in 0..60 {
        let exact = Exact::new(&mirrored(seed, 6));
        let least = exact.least_bytes();
        for budget in (0..8).map(|i| least + least * i / 10) {
            let best = exact.seconds(budget);
            assert_eq!(best, exact.plain_seconds(budget), "seed {seed}, {budget}");
        }
    }
}
