//! Plans with copies in lanes of their own, made by hand: every wait in them is needed, so dropping
//! any one must be noticed.

use crate::common::Builder;
use crate::common::random::Source;
use highwater_plan::*;

/// Roomy and slow ones.
fn tiers() -> Tiers {
    let link = Link {
        bytes: 1 << 40,
        read: 100.0,
        write: 100.0,
        read_while_writing: 50.0,
        write_while_reading: 50.0,
        lost: 0.0,
        writable: true,
    };
    Tiers {
        host: Some(link),
        disk: Some(link),
    }
}

/// `n` values made one after the other, then read in reverse order.
fn mirrored(n: usize) -> (Problem, Vec<ValueId>) {
    let mut b = Builder::default();
    let input = b.value(8, Home::External);
    let values: Vec<ValueId> = (0..n).map(|_| b.arena(100)).collect();
    for &v in &values {
        b.node(&[input], &[v], 1.0);
    }
    for &v in values.iter().rev() {
        b.node(&[v], &[], 1.0);
    }
    b.problem.tiers = tiers();
    (b.problem, values)
}

/// The lanes to a tier and back.
fn lanes_of(tier: Tier) -> (Lane, Lane) {
    match tier {
        Tier::Host => (Lane::DeviceToHost, Lane::HostToDevice),
        Tier::Disk => (Lane::Write, Lane::Read),
    }
}

/// `n` values are made one after the other in `slots` places, moved out, and come back in reverse
/// order to be read.
fn there_and_back(n: usize, slots: usize, tier: Tier) -> (Problem, Plan) {
    let (problem, values) = mirrored(n);
    let (out, back) = lanes_of(tier);
    let mut list: Vec<Instruction> = Vec::new();
    let mut push = |lane, waits: Vec<u32>, action| {
        list.push(Instruction {
            lane,
            waits,
            action,
        });
        list.len() as u32 - 1
    };
    let place = |i: usize| (i % slots * 128) as u64;
    let mut evicts: Vec<u32> = Vec::new();
    for (i, &value) in values.iter().enumerate() {
        let waits = i
            .checked_sub(slots)
            .map(|j| evicts[j])
            .into_iter()
            .collect();
        let outputs = vec![Some(place(i))];
        let run = Action::Run {
            node: NodeId::new(i),
            outputs,
            scratch: None,
        };
        let run = push(Lane::Compute, waits, run);
        let evict = Action::Evict {
            value,
            tier,
            place: Some(128 * i as u64),
        };
        evicts.push(push(out, vec![run], evict));
    }
    let mut frees: Vec<u32> = Vec::new();
    for (k, i) in (0..n).rev().enumerate() {
        let waits = match k.checked_sub(slots) {
            Some(j) => vec![frees[j]],
            None if k == 0 => vec![evicts[n - 1]],
            None => Vec::new(),
        };
        let (value, offset) = (values[i], place(i));
        let fetch = push(
            back,
            waits,
            Action::Fetch {
                value,
                tier,
                offset,
            },
        );
        let run = Action::Run {
            node: NodeId::new(n + k),
            outputs: Vec::new(),
            scratch: None,
        };
        push(Lane::Compute, vec![fetch], run);
        frees.push(push(Lane::Compute, Vec::new(), Action::Free { value }));
    }
    let mut plan = Plan {
        instructions: list,
        arena_bytes: (slots.min(n) * 128) as u64,
        seconds: 2.5 * n as f64,
        ..Plan::default()
    };
    move_all(&mut plan, tier, n as u64);
    figures(&problem, &mut plan);
    (problem, plan)
}

/// States that so many values went to a tier and came back.
fn move_all(plan: &mut Plan, tier: Tier, n: u64) {
    let moved = Traffic {
        read_bytes: 100 * n,
        written_bytes: 100 * n,
        spill_bytes: 128 * n,
        home_bytes: 0,
    };
    match tier {
        Tier::Host => plan.host = moved,
        Tier::Disk => plan.disk = moved,
    }
}

/// States the live bytes; the verifier looks at them last, and tells them once the rest holds.
fn figures(problem: &Problem, plan: &mut Plan) {
    if let Err(Violation::WrongLiveBytes { found, .. }) = verify(problem, plan, u64::MAX) {
        plan.live_bytes = found;
    }
    if let Err(Violation::WrongPeak { found, .. }) = verify(problem, plan, u64::MAX) {
        plan.peak_instruction = found;
    }
}

#[test]
fn every_wait_is_needed() {
    let mut dropped = 0;
    for n in 1..9 {
        for slots in 1..4 {
            let tier = if n % 2 == 0 { Tier::Disk } else { Tier::Host };
            let (problem, plan) = there_and_back(n, slots, tier);
            let proof = verify(&problem, &plan, plan.arena_bytes);
            assert!(proof.is_ok(), "{n} {slots}: {proof:?}");
            for i in 0..plan.instructions.len() {
                for w in 0..plan.instructions[i].waits.len() {
                    let mut bad = plan.clone();
                    bad.instructions[i].waits.remove(w);
                    dropped += 1;
                    let verdict = verify(&problem, &bad, plan.arena_bytes);
                    let noticed = matches!(
                        verdict,
                        Err(Violation::MissingWait { .. }
                            | Violation::StillRead { .. }
                            | Violation::Overlap { .. })
                    );
                    assert!(noticed, "{n} {slots}: instruction {i}: {verdict:?}");
                }
            }
        }
    }
    assert!(dropped >= 200, "{dropped}");
}

#[test]
fn dropped_copies_and_wrong_lanes_are_noticed() {
    let mut source = Source(5);
    for _ in 0..200 {
        let (n, slots) = (1 + source.below(8), 1 + source.below(3));
        let (problem, plan) = there_and_back(n, slots, Tier::Disk);
        let mut bad = plan.clone();
        let i = source.below(plan.instructions.len());
        bad.instructions[i].lane = match plan.instructions[i].lane {
            Lane::Compute => Lane::Write,
            Lane::Read => Lane::HostToDevice,
            _ => Lane::Compute,
        };
        let verdict = verify(&problem, &bad, plan.arena_bytes);
        assert!(
            matches!(verdict, Err(Violation::WrongLane { .. })),
            "{verdict:?}"
        );
        let mut bad = plan.clone();
        if let Action::Fetch { tier, .. } = &mut bad.instructions[i].action {
            *tier = Tier::Host;
            bad.instructions[i].lane = Lane::HostToDevice;
            let verdict = verify(&problem, &bad, plan.arena_bytes);
            assert!(
                matches!(verdict, Err(Violation::NoCopy { .. })),
                "{verdict:?}"
            );
        }
    }
}

#[test]
fn rewriting_what_is_being_copied_out_is_a_race() {
    let mut b = Builder::default();
    let input = b.value(8, Home::External);
    b.problem.tiers = tiers();
    let (first, second) = (b.arena(64), b.arena(64));
    b.node(&[input], &[first, second], 1.0);
    let run = |outputs: [Option<u64>; 2]| Action::Run {
        node: NodeId::new(0),
        outputs: outputs.to_vec(),
        scratch: None,
    };
    let free = |value| Action::Free { value };
    let evict = Action::Evict {
        value: first,
        tier: Tier::Disk,
        place: Some(0),
    };
    let plan = |order: &[u32]| Plan {
        instructions: vec![
            (Lane::Compute, vec![], run([Some(0), Some(64)])),
            (Lane::Compute, vec![], free(second)),
            (Lane::Compute, vec![], run([None, Some(64)])),
            (Lane::Write, order.to_vec(), evict.clone()),
            (Lane::Compute, vec![], free(second)),
        ]
        .into_iter()
        .map(|(lane, waits, action)| Instruction {
            lane,
            waits,
            action,
        })
        .collect(),
        arena_bytes: 128,
        live_bytes: 128,
        peak_instruction: 0,
        seconds: 2.0,
        recomputed_nodes: 1,
        recompute_seconds: 1.0,
        disk: Traffic {
            written_bytes: 64,
            spill_bytes: 64,
            ..Traffic::default()
        },
        ..Plan::default()
    };
    let verdict = verify(&b.problem, &plan(&[2]), 128);
    assert!(verdict.is_ok(), "{verdict:?}");
    let verdict = verify(&b.problem, &plan(&[0]), 128);
    assert!(
        matches!(
            verdict,
            Err(Violation::Race { .. } | Violation::StillRead { .. })
        ),
        "{verdict:?}"
    );
}
