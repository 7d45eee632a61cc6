//! Runs in two lanes, and alignments other than that of processors.

use crate::common::Builder;
use crate::common::random::random;
use highwater_plan::*;

/// A training step of a chain whose gradients are summed over machines before updates read them.
fn reduced(layers: usize) -> Problem {
    let mut b = Builder::default();
    let mut made = vec![b.value(512, Home::External)];
    let cells: Vec<CellId> = (0..layers).map(|_| b.cell()).collect();
    for (i, &cell) in cells.iter().enumerate() {
        let output = b.arena(512);
        b.node(&[made[i]], &[output], 1.0).reads.push((cell, 0));
        made.push(output);
    }
    b.guard(&made[layers..]);
    let mut gradient = made[layers];
    for (i, &cell) in cells.iter().enumerate().rev() {
        let [own, all, next] = [0; 3].map(|_| b.arena(512));
        b.node(&[gradient, made[i]], &[own], 1.0);
        let node = b.node(&[own], &[all], 1.0);
        (node.lane, node.effect, node.scratch_bytes) = (Lane::Communicate, Effect::Once, 128);
        if i % 2 == 0 {
            node.in_place.push((0, 0));
        }
        b.node(&[gradient, made[i]], &[next], 1.0)
            .reads
            .push((cell, 0));
        gradient = next;
        b.update(&[all], cell, 1.0);
    }
    b.problem
}

/// Every plan of a family that a few budgets get.
fn plans(problem: &Problem) -> Vec<Plan> {
    let Ok(family) = Family::build(problem, Policy::Auto) else {
        return Vec::new();
    };
    let floor = family.floor(problem).arena_bytes;
    let plan = |i| family.choose(problem, floor + floor * i / 4);
    (0..8)
        .map(|i| plan(i).expect("not below the floor"))
        .collect()
}

#[test]
fn every_wait_between_lanes_of_runs_is_needed() {
    let problem = reduced(4);
    let mut dropped = 0;
    for plan in plans(&problem) {
        verify(&problem, &plan, plan.arena_bytes).expect("sound");
        for i in 0..plan.instructions.len() {
            let lane = plan.instructions[i].lane;
            let waits = plan.instructions[i].waits.clone();
            let crosses = |&w: &u32| plan.instructions[w as usize].lane != lane;
            assert!(waits.iter().all(crosses), "a lane is in order by itself");
            // Collectives wait for all that was computed before, needed or not.
            if lane == Lane::Compute && !waits.is_empty() {
                let mut tampered = plan.clone();
                tampered.instructions[i].waits.clear();
                let found = verify(&problem, &tampered, plan.arena_bytes);
                assert!(found.is_err(), "instruction {i} of {:?}", plan.instructions);
                dropped += 1;
            }
        }
    }
    assert!(dropped >= 16, "{dropped}");
}

#[test]
fn collectives_run_beside_what_is_computed_after_them() {
    let problem = reduced(6);
    let family = Family::build(&problem, Policy::Auto).expect("sound");
    let plan = family.choose(&problem, 1 << 30).expect("it fits");
    let list = &plan.instructions;
    let beside = (1..list.len()).filter(|&i| {
        let runs = matches!(list[i].action, Action::Run { .. });
        runs && list[i].lane == Lane::Compute && list[i - 1].lane == Lane::Communicate
    });
    // Where bytes that a collective uses are not needed at once.
    assert!(beside.filter(|&i| list[i].waits.is_empty()).count() > 0);
}

#[test]
fn random_nodes_in_another_lane() {
    let (mut dropped, mut rejected) = (0, 0);
    for seed in 0..10 {
        let mut problem = random(seed, 10);
        for (i, node) in problem.nodes.iter_mut().enumerate() {
            if (i as u64 + seed).is_multiple_of(3) {
                node.lane = Lane::Communicate;
            }
        }
        for plan in plans(&problem) {
            let proof = verify(&problem, &plan, plan.arena_bytes);
            assert!(proof.is_ok(), "seed {seed}: {proof:?}");
            for i in 0..plan.instructions.len() {
                if !plan.instructions[i].waits.is_empty() {
                    let mut tampered = plan.clone();
                    tampered.instructions[i].waits.clear();
                    dropped += 1;
                    rejected += u32::from(verify(&problem, &tampered, u64::MAX).is_err());
                }
            }
        }
    }
    assert!(
        dropped > 200 && rejected * 10 >= dropped * 8,
        "{rejected} of {dropped}"
    );
}

#[test]
fn a_node_stands_in_its_own_lane() {
    let problem = reduced(2);
    let plan = &plans(&problem)[0];
    let at = plan
        .instructions
        .iter()
        .position(|i| i.lane == Lane::Communicate);
    let mut tampered = plan.clone();
    tampered.instructions[at.expect("there are collectives")].lane = Lane::Compute;
    let found = verify(&problem, &tampered, u64::MAX);
    assert!(
        matches!(found, Err(Violation::WrongLane { .. })),
        "{found:?}"
    );
    let mut wrong = problem;
    wrong.nodes[0].lane = Lane::Read;
    let found = Family::build(&wrong, Policy::Auto).map(|_| ());
    let lane = Lane::Read;
    let node = NodeId::new(0);
    assert_eq!(found, Err(ProblemError::BadLane { node, lane }));
}

#[test]
fn buffers_start_where_the_problem_says() {
    for (seed, align) in (0..12).flat_map(|seed| [64, 256, 4096].map(|align| (seed, align))) {
        let mut problem = random(seed, 10);
        problem.align = align;
        for plan in plans(&problem) {
            verify(&problem, &plan, plan.arena_bytes).expect("sound");
            for instruction in &plan.instructions {
                if let Action::Run {
                    outputs, scratch, ..
                } = &instruction.action
                {
                    let mut offsets = outputs.iter().chain([scratch]).flatten();
                    assert!(offsets.all(|offset| offset % align == 0));
                }
            }
        }
    }
}

#[test]
fn a_plan_for_another_alignment_is_rejected() {
    let mut problem = reduced(4);
    let plan = plans(&problem).remove(0);
    problem.align = 4096;
    assert!(verify(&problem, &plan, u64::MAX).is_err());
    problem.align = 96;
    let found = Family::build(&problem, Policy::Auto).map(|_| ());
    assert_eq!(found, Err(ProblemError::BadAlign { align: 96 }));
}
