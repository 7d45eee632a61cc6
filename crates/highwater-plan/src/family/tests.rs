use super::*;
use crate::plan::{Action, Instruction};
use crate::problem::{CellId, Effect, Home, Lane, Link, Node, NodeId, Pin, Value, ValueId};

fn node(inputs: &[usize], outputs: &[usize]) -> Node {
    let ids = |list: &[usize]| -> Vec<ValueId> { list.iter().copied().map(ValueId::new).collect() };
    Node::new(&ids(inputs), &ids(outputs), 1.0)
}

/// in -> a -> b -> c, then c, b, a are read again in turn.
fn chain(bytes: u64) -> Problem {
    let arena = Value {
        bytes,
        home: Home::Arena,
        pin: Pin::Free,
        wanted: false,
    };
    let input = Value {
        home: Home::External,
        ..arena.clone()
    };
    let mut nodes = vec![
        node(&[0], &[1]),
        node(&[1], &[2]),
        node(&[2], &[3]),
        node(&[3], &[]),
        node(&[2], &[]),
        node(&[1], &[]),
    ];
    // These may not go early, as what only condenses would.
    nodes[3..].iter_mut().for_each(|n| n.effect = Effect::Once);
    Problem {
        nodes,
        values: vec![input, arena.clone(), arena.clone(), arena],
        ..Problem::default()
    }
}

#[test]
fn fewer_bytes_cost_more_seconds() {
    let family = Family::build(&chain(100), Policy::Auto).expect("sound");
    let all: Vec<(u64, f64)> = family
        .plans(&chain(100))
        .iter()
        .map(|p| (p.arena_bytes, p.seconds))
        .collect();
    assert_eq!(all, [(384, 6.0), (256, 7.0)]);
    assert_eq!(
        family
            .choose(&chain(100), u64::MAX)
            .expect("fits")
            .recomputed_nodes,
        0
    );
    assert_eq!(
        family
            .choose(&chain(100), 383)
            .expect("fits")
            .recomputed_nodes,
        1
    );
}

#[test]
fn a_refusal_says_need_have_and_holder() {
    let family = Family::build(&chain(100), Policy::Keep).expect("sound");
    let refusal = family.choose(&chain(100), 300).expect_err("too little");
    assert_eq!(
        refusal.to_string(),
        "need at least 384 bytes (set by node 2), have 300; \
         the largest holder is value 1 with 128 bytes"
    );
    assert_eq!(refusal.floor, *family.floor(&chain(100)));
}

#[test]
fn an_output_takes_over_a_dying_input() {
    let mut problem = chain(100);
    problem.nodes.truncate(3);
    problem.nodes[1].in_place.push((0, 0));
    problem.nodes[2].in_place.push((0, 0));
    let family = Family::build(&problem, Policy::Auto).expect("sound");
    assert_eq!(family.floor(&problem).arena_bytes, 128);
}

#[test]
fn an_output_takes_nothing_over_from_an_empty_input() {
    let mut problem = chain(100);
    problem.nodes.truncate(3);
    problem.values[1].bytes = 0;
    problem.nodes[1].in_place.push((0, 0));
    let family = Family::build(&problem, Policy::Auto).expect("sound");
    let floor = family.floor(&problem).arena_bytes;
    for budget in [floor, u64::MAX] {
        let plan = family.choose(&problem, budget).expect("fits");
        crate::verify(&problem, &plan, budget).expect("sound");
    }
}

#[test]
fn runs_of_both_lanes_count_beside_transfers() {
    let mut problem = chain(1 << 20);
    problem.nodes[1].lane = Lane::Communicate;
    problem.nodes[4].lane = Lane::Communicate;
    problem.tiers.host = Some(Link {
        bytes: 1 << 30,
        read: 1e9,
        write: 1e9,
        read_while_writing: 1e9,
        write_while_reading: 1e9,
        lost: 0.0,
        writable: true,
    });
    let family = Family::build(&problem, Policy::Auto).expect("sound");
    let floor = family.floor(&problem).arena_bytes;
    let plan = family.choose(&problem, floor).expect("fits");
    crate::verify(&problem, &plan, floor).expect("sound");
    let moves = |i: &Instruction| matches!(i.action, Action::Fetch { .. });
    assert!(plan.instructions.iter().any(moves));
    assert!((6.0..6.1).contains(&plan.seconds), "{}", plan.seconds);
}

#[test]
fn updates_follow_the_guard_and_replays() {
    let mut problem = chain(100);
    problem.nodes[1].reads.push((CellId::new(7), 0));
    let mut guard = node(&[3], &[]);
    guard.effect = Effect::Guard;
    let mut update = node(&[3], &[]);
    (update.effect, update.writes) = (Effect::Once, vec![(CellId::new(7), 0)]);
    problem.nodes.extend([update, guard]);
    let family = Family::build(&problem, Policy::Auto).expect("sound");
    for plan in &family.plans(&problem) {
        let at = |wanted: usize| {
            let runs = plan.instructions.iter().rposition(|i| match i.action {
                Action::Run { node, .. } | Action::Guard { node } => node.index() == wanted,
                _ => false,
            });
            runs.expect("it runs")
        };
        assert!(at(7) < at(6) && at(1) < at(6));
    }
}

#[test]
fn all_updates_of_one_cell_follow_replays() {
    let mut problem = chain(100);
    problem.nodes[0].reads.push((CellId::new(7), 0));
    let first = problem.nodes.len();
    for version in 0..3 {
        let mut update = node(&[3], &[]);
        (update.effect, update.writes) = (Effect::Once, vec![(CellId::new(7), version)]);
        problem.nodes.push(update);
    }
    let family = Family::build(&problem, Policy::Auto).expect("sound");
    let mut replayed = false;
    for plan in &family.plans(&problem) {
        let runs = plan.instructions.iter().filter_map(|i| match i.action {
            Action::Run { node, .. } => Some(node.index()),
            _ => None,
        });
        let runs: Vec<usize> = runs.filter(|&n| n == 0 || n >= first).collect();
        let (replays, updates) = runs.split_at(runs.len() - 3);
        assert_eq!(updates, [first, first + 1, first + 2]);
        assert!(replays.iter().all(|&n| n == 0));
        replayed |= replays.len() > 1;
    }
    assert!(replayed);
}

#[test]
fn malformed_problems_are_typed_errors() {
    let build = |change: fn(&mut Problem)| {
        let mut problem = chain(100);
        change(&mut problem);
        Family::build(&problem, Policy::Auto).expect_err("malformed")
    };
    assert_eq!(
        build(|p| p.nodes[0].inputs[0] = ValueId::new(9)),
        ProblemError::NoSuchValue {
            node: NodeId::new(0),
            value: ValueId::new(9)
        }
    );
    assert_eq!(
        build(|p| p.nodes[3].outputs.push(ValueId::new(1))),
        ProblemError::TwoProducers {
            value: ValueId::new(1),
            first: NodeId::new(0),
            second: NodeId::new(3)
        }
    );
    assert_eq!(
        build(|p| p.nodes[0].inputs[0] = ValueId::new(3)),
        ProblemError::UsedBeforeFilled {
            node: NodeId::new(0),
            value: ValueId::new(3)
        }
    );
    assert_eq!(
        build(|p| p.nodes[1].in_place.push((0, 4))),
        ProblemError::BadInPlace {
            node: NodeId::new(1),
            input: 0,
            output: 4
        }
    );
    assert_eq!(
        build(|p| p.nodes[1].writes.push((CellId::new(0), 0))),
        ProblemError::RepeatableWrites {
            node: NodeId::new(1)
        }
    );
    assert_eq!(
        build(|p| p.nodes[2].seconds = f64::NAN),
        ProblemError::BadSeconds {
            node: NodeId::new(2)
        }
    );
    assert_eq!(
        build(|p| p.values[1].bytes = u64::MAX),
        ProblemError::TooLarge
    );
    let circle = build(|p| {
        p.nodes[0].effect = Effect::Once;
        p.nodes[0].writes.push((CellId::new(0), 0));
        p.nodes[3].effect = Effect::Guard;
    });
    assert!(matches!(circle, ProblemError::NoOrder { .. }));
    let lost = build(|p| {
        p.nodes[0].effect = Effect::Once;
        p.nodes[0].done = true;
    });
    assert_eq!(
        lost,
        ProblemError::Lost {
            value: ValueId::new(1)
        }
    );
}

#[test]
fn nothing_to_do_is_a_plan() {
    let family = Family::build(&Problem::default(), Policy::Auto).expect("sound");
    let plan = family.choose(&Problem::default(), 0).expect("fits");
    assert!(plan.instructions.is_empty());
    crate::verify(&Problem::default(), &plan, 0).expect("sound");
}

/// Two gradients, each updated as soon as it is there, and a soft guard over each.
fn softly_guarded() -> Problem {
    let mut problem = Problem::default();
    let gradient = Value {
        bytes: 1 << 10,
        home: Home::Arena,
        pin: Pin::Free,
        wanted: false,
    };
    problem.values = vec![gradient; 2];
    for value in 0..2 {
        problem.nodes.push(node(&[], &[value]));
    }
    for value in 0..2 {
        let mut guard = node(&[value], &[]);
        (guard.effect, guard.soft, guard.seconds) = (Effect::Guard, true, 0.0);
        problem.nodes.push(guard);
    }
    for value in 0..2 {
        let mut update = node(&[value], &[]);
        update.effect = Effect::Once;
        update.writes = vec![(CellId::new(value), 0)];
        problem.nodes.push(update);
    }
    problem
}

#[test]
fn soft_guards_are_there_where_all_they_look_at_fits() {
    let problem = softly_guarded();
    let families = crate::Families::build(&problem, Policy::Auto).unwrap();
    let guards = |plan: &Plan| {
        let guards = plan.instructions.iter();
        guards
            .filter(|i| matches!(i.action, Action::Guard { .. }))
            .count()
    };
    let with = families.choose(&problem, 2 << 10).unwrap();
    crate::verify(&problem, &with, 2 << 10).unwrap();
    assert_eq!(guards(&with), 2);
    // One gradient at a time: nothing is held for a guard, nor refused.
    let (without, until) = families.choose_until(&problem, (2 << 10) - 1).unwrap();
    crate::verify(&problem, &without, (2 << 10) - 1).unwrap();
    assert_eq!((guards(&without), without.recomputed_nodes), (0, 0));
    assert_eq!(until, 2 << 10);
    assert_eq!(families.floor(&problem).arena_bytes, 1 << 10);
    assert!((with.seconds - without.seconds).abs() < 1e-12);
    // A guard that is listed comes before every write.
    let mut late = with.clone();
    let at = |plan: &Plan, guard: bool| {
        let is = |i: &Instruction| match i.action {
            Action::Guard { .. } => guard,
            Action::Run { node, .. } => !guard && node.index() >= 4,
            _ => false,
        };
        plan.instructions.iter().position(is).unwrap()
    };
    let (guard, write) = (at(&late, true), at(&late, false));
    let guard = late.instructions.remove(guard);
    late.instructions.insert(write, guard);
    assert!(crate::verify(&problem, &late, 2 << 10).is_err());
}

/// Deep enough that a search's parts go side by side.
#[test]
fn parts_of_a_search_come_to_the_same_on_any_threads() {
    let values = (0..=150).map(|v: u64| Value {
        bytes: 64 * (1 + v * 7 % 5),
        home: if v == 0 { Home::External } else { Home::Arena },
        pin: Pin::Free,
        wanted: v == 150,
    });
    let forward = (0..150).map(|v| node(&[v], &[v + 1]));
    let backward = (1..150).rev().map(|v| {
        let mut node = node(&[v, v + 1], &[]);
        node.effect = Effect::Once;
        node
    });
    let problem = Problem {
        values: values.collect(),
        nodes: forward.chain(backward).collect(),
        ..Problem::default()
    };
    let searched = || {
        let family = Family::build(&problem, Policy::Auto).expect("sound");
        assert!(family.found().len() > 20);
        family
    };
    let family = searched();
    for _ in 0..8 {
        assert!(family == searched());
    }
}
