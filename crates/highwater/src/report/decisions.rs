//! What a plan decided, with names, equal decisions about equal layers as one.

use super::names;
use crate::problem::compiled::Compiled;
use highwater_graph::{Graph, Phase, Source};
use highwater_plan::{Choice, Plan};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A decision of the planner about nodes that are alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// What was decided.
    pub choice: Choice,
    /// The operation.
    pub operation: String,
    /// Path of the modules, such as `transformer.h.[0-8].mlp`; empty outside any.
    pub module: String,
    /// Part of the step that the nodes belong to: `forward`, `backward` or `update`.
    pub phase: String,
    /// What the nodes are computed from.
    pub from: Vec<String>,
    /// How many nodes.
    pub nodes: u32,
    /// How often, over all nodes: repetitions, runs in place, or nodes that run early.
    pub times: u32,
    /// Bytes that are free because of it, over all nodes.
    pub bytes: u64,
    /// For how many predicted seconds they are, on average.
    pub lasts_seconds: f64,
    /// Predicted seconds that it costs.
    pub seconds: f64,
}

/// Decisions are alike that have these in common. The last two are bytes and times of one node.
type Alike = (Choice, String, String, Phase, Vec<String>, u64, u32);

/// The decisions of a plan, by kind, those that free most first.
pub(super) fn decisions(graph: &Graph, compiled: &Compiled, plan: &Plan) -> Vec<Decision> {
    let mut groups: BTreeMap<Alike, (Vec<highwater_plan::Decision>, BTreeSet<u32>)> =
        BTreeMap::new();
    for decision in highwater_plan::explain(&compiled.problem, plan) {
        let id = compiled.nodes[decision.node.index()];
        let node = compiled.node(graph, id);
        let (pattern, number) = names::pattern(&node.site.module);
        let from = match decision.choice {
            Choice::Recompute => sources(graph, compiled, node),
            Choice::InPlace | Choice::Early => Vec::new(),
        };
        let alike = (
            decision.choice,
            pattern,
            node.op.name().to_owned(),
            node.site.phase,
            from,
            decision.bytes,
            decision.times,
        );
        let group = groups.entry(alike).or_default();
        group.0.push(decision);
        group.1.extend(number);
    }
    let mut list: Vec<Decision> = groups.into_iter().map(together).collect();
    list.sort_by_key(|decision| (decision.choice, std::cmp::Reverse(decision.bytes)));
    list
}

fn together(
    ((choice, pattern, operation, phase, from, bytes, _), (members, numbers)): (
        Alike,
        (Vec<highwater_plan::Decision>, BTreeSet<u32>),
    ),
) -> Decision {
    let count = members.len();
    let phase = match phase {
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::Update => "update",
    };
    Decision {
        choice,
        operation,
        module: names::join(&pattern, numbers),
        phase: phase.to_owned(),
        from,
        nodes: count as u32,
        times: members.iter().map(|decision| decision.times).sum(),
        bytes: bytes * count as u64,
        lasts_seconds: members.iter().map(|d| d.lasts_seconds).sum::<f64>() / count as f64,
        seconds: members.iter().map(|decision| decision.seconds).sum(),
    }
}

/// The operations that made what a node reads, without repetition.
fn sources(graph: &Graph, compiled: &Compiled, node: &highwater_graph::Node) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for input in &node.inputs {
        let name = match input.source {
            Source::Cell(..) => continue,
            Source::Value(value) => match graph.value(value).producer {
                Some((producer, _)) => compiled.node(graph, producer).op.name(),
                None => "input",
            },
        };
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}
