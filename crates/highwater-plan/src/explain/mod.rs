//! What a plan decided, what each decision saves and what it costs: read from the list alone.

mod floor;
mod holders;

pub use floor::{Floor, Refusal};
pub use holders::{Holders, holders, running};

use crate::explain::holders::Places;
use crate::plan::{Action, Plan};
use crate::problem::{Effect, NodeId, Problem, ValueId};
use serde::{Deserialize, Serialize};

/// What a decision is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// The node runs again, so that its outputs need not be held from use to use.
    Recompute,
    /// An output is written over an input that nobody reads any more.
    InPlace,
    /// A node that writes cells runs before nodes that stand before it in the program, so that what
    /// it reads need not be held.
    Early,
}

/// One decision of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What was decided.
    pub choice: Choice,
    /// The node that runs again, writes in place, or runs early.
    pub node: NodeId,
    /// How often: repetitions of a node, runs in place, or 1.
    pub times: u32,
    /// Bytes that are free because of it, for `lasts_seconds`.
    pub bytes: u64,
    /// For how many predicted seconds of the plan they are free, on average over the bytes.
    pub lasts_seconds: f64,
    /// Predicted seconds that it costs.
    pub seconds: f64,
}

/// Lists what a plan decided: by kind, then in the order of nodes.
#[must_use]
pub fn explain(problem: &Problem, plan: &Plan) -> Vec<Decision> {
    let mut reader = Reader::new(problem);
    for step in &plan.instructions {
        reader.read(&step.action);
    }
    let mut decisions: Vec<Decision> = reader.early();
    let tallies = [
        (Choice::Recompute, &reader.again),
        (Choice::InPlace, &reader.in_place),
    ];
    for (choice, tallies) in tallies {
        let taken = NodeId::numbered(tallies).filter(|(_, tally)| tally.times > 0);
        decisions.extend(taken.map(|(node, tally)| tally.decision(choice, node)));
    }
    decisions.sort_by_key(|decision| (decision.choice, decision.node));
    decisions
}

/// Sums for one node.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    times: u32,
    seconds: f64,
    /// Bytes, and the integral of them over the seconds that they are free.
    bytes: u64,
    byte_seconds: f64,
}

impl Tally {
    fn decision(&self, choice: Choice, node: NodeId) -> Decision {
        let lasts_seconds = match self.bytes {
            0 => 0.0,
            bytes => self.byte_seconds / bytes as f64,
        };
        Decision {
            choice,
            node,
            times: self.times,
            bytes: self.bytes,
            lasts_seconds,
            seconds: self.seconds,
        }
    }
}

/// Goes through a plan's list.
struct Reader<'a> {
    problem: &'a Problem,
    places: Places,
    /// Predicted seconds up to here.
    clock: f64,
    /// Per value: when it left the arena.
    left: Vec<Option<f64>>,
    /// Per value: whether its bytes have been counted as free.
    counted: Vec<bool>,
    /// Per value: when a run last read it.
    read: Vec<f64>,
    /// Per node: position among the runs, and when it first ran.
    first: Vec<Option<(u32, f64)>>,
    runs: u32,
    again: Vec<Tally>,
    in_place: Vec<Tally>,
}

impl<'a> Reader<'a> {
    fn new(problem: &'a Problem) -> Reader<'a> {
        let (nodes, values) = (problem.nodes.len(), problem.values.len());
        Reader {
            problem,
            places: Places::new(problem),
            clock: 0.0,
            left: vec![None; values],
            counted: vec![false; values],
            read: vec![0.0; values],
            first: vec![None; nodes],
            runs: 0,
            again: vec![Tally::default(); nodes],
            in_place: vec![Tally::default(); nodes],
        }
    }

    fn bytes(&self, v: ValueId) -> u64 {
        self.problem.footprint(self.problem.values[v.index()].bytes)
    }

    fn read(&mut self, action: &Action) {
        match action {
            Action::Run { node, outputs, .. } => self.run(*node, outputs),
            Action::Guard { node } => self.run(*node, &[]),
            Action::Free { value } | Action::Evict { value, .. } => {
                self.places.0[value.index()] = None;
                self.left[value.index()] = Some(self.clock);
            }
            Action::Fetch { value, offset, .. } => {
                self.places.0[value.index()] = Some(*offset);
                self.left[value.index()] = None;
            }
        }
    }

    fn run(&mut self, node: NodeId, outputs: &[Option<u64>]) {
        let n = &self.problem.nodes[node.index()];
        let i = node.index();
        let seconds = self.problem.run_seconds(node, outputs);
        let done = n.done && n.effect == Effect::Repeatable;
        if done || self.first[i].is_some() {
            self.again[i].times += 1;
            self.again[i].seconds += seconds;
        }
        for (&v, _) in n.outputs.iter().zip(outputs).filter(|(_, o)| o.is_some()) {
            if let Some(left) = self.left[v.index()].take() {
                let bytes = self.bytes(v);
                if !std::mem::replace(&mut self.counted[v.index()], true) {
                    self.again[i].bytes += bytes;
                }
                self.again[i].byte_seconds += bytes as f64 * (self.clock - left);
            }
        }
        self.clock += seconds;
        // What is left out is free from here on, as if it had been dropped.
        for &(o, _) in &n.optional {
            let v = n.outputs[o as usize];
            if outputs[o as usize].is_none() && self.places.0[v.index()].is_none() {
                self.left[v.index()].get_or_insert(self.clock);
            }
        }
        let mut shared = Vec::new();
        let mut note = |input, output| shared.push((input, output));
        self.places.run(self.problem, node, outputs, &mut note);
        for (input, output) in shared {
            self.left[input.index()] = Some(self.clock);
            let bytes = self.bytes(output);
            let tally = &mut self.in_place[i];
            tally.times += 1;
            tally.bytes = tally.bytes.max(bytes);
            tally.byte_seconds = tally.bytes as f64 * seconds;
        }
        for &v in &n.inputs {
            self.read[v.index()] = self.clock;
        }
        self.first[i].get_or_insert((self.runs, self.clock));
        self.runs += 1;
    }

    /// The nodes that write cells and run before others that the program has before them.
    fn early(&self) -> Vec<Decision> {
        // For each node: the latest first run among those before it in the program.
        let mut latest = (0, 0.0);
        let mut decisions = Vec::new();
        for (node, n) in NodeId::numbered(&self.problem.nodes) {
            let Some(ran) = self.first[node.index()] else {
                continue;
            };
            if n.effect == Effect::Once && ran.0 < latest.0 {
                let spared = |v: &&ValueId| {
                    let value = &self.problem.values[v.index()];
                    let last = self.read[v.index()] <= ran.1;
                    last && !value.wanted && value.home != crate::Home::External
                };
                decisions.push(Decision {
                    choice: Choice::Early,
                    node,
                    times: 1,
                    bytes: n.inputs.iter().filter(spared).map(|&v| self.bytes(v)).sum(),
                    lasts_seconds: latest.1 - ran.1,
                    seconds: 0.0,
                });
            }
            if ran.0 > latest.0 {
                latest = ran;
            }
        }
        decisions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CellId, Family, Home, Node, Pin, Policy, Value};

    fn value(home: Home) -> Value {
        Value {
            bytes: 100,
            home,
            pin: Pin::Free,
            wanted: false,
        }
    }

    fn node(inputs: &[usize], outputs: &[usize]) -> Node {
        let ids =
            |list: &[usize]| -> Vec<ValueId> { list.iter().copied().map(ValueId::new).collect() };
        Node::new(&ids(inputs), &ids(outputs), 1.0)
    }

    /// in -> a -> b -> c over b, and g; then c, a are read again in turn; an update reads g.
    fn problem() -> Problem {
        let mut update = node(&[5], &[]);
        (update.effect, update.writes) = (Effect::Once, vec![(CellId::new(0), 0)]);
        // It may not go early, as what only condenses would.
        let mut last = node(&[4, 1], &[]);
        last.effect = Effect::Once;
        let mut over = node(&[2], &[3, 5]);
        over.in_place.push((0, 0));
        Problem {
            nodes: vec![
                node(&[0], &[1]),
                node(&[1], &[2]),
                over,
                node(&[3], &[4]),
                last,
                update,
            ],
            values: [
                Home::External,
                Home::Arena,
                Home::Arena,
                Home::Arena,
                Home::Arena,
                Home::Arena,
            ]
            .map(value)
            .to_vec(),
            ..Problem::default()
        }
    }

    #[test]
    fn each_kind_of_decision_is_found_with_its_bytes_and_seconds() {
        let mut problem = problem();
        problem.values[1].pin = Pin::Recompute;
        let family = Family::build(&problem, Policy::Auto).expect("sound");
        let plan = family.choose(&problem, u64::MAX).expect("fits");
        let decision = |choice, node, lasts_seconds, seconds| Decision {
            choice,
            node: NodeId::new(node),
            times: 1,
            bytes: 128,
            lasts_seconds,
            seconds,
        };
        // a is away while nodes 2, the update and 3 run; the update runs right after g is there,
        // and would have been last.
        let expected = [
            decision(Choice::Recompute, 0, 3.0, 1.0),
            decision(Choice::InPlace, 2, 1.0, 0.0),
            decision(Choice::Early, 5, 3.0, 0.0),
        ];
        assert_eq!(explain(&problem, &plan), expected);
    }
}
