//! What became of a plan: how far it was to run, and what ran.

use crate::problem::clock::Work;
use crate::problem::compiled::Compiled;
use crate::problem::offsets::Offsets;
use crate::store::io::Io;
use highwater_graph::ValueId;
use highwater_plan::{self as plan, Action, Plan};
use std::collections::BTreeSet;

/// How far a plan is to run: until all of these were produced or run. Numbers of the problem.
#[derive(Debug)]
pub(crate) struct Until {
    pub(crate) values: BTreeSet<plan::ValueId>,
    pub(crate) nodes: BTreeSet<plan::NodeId>,
}

impl Until {
    /// Where a run may stop that is to produce some of the graph's values, and every effect. What
    /// earlier runs produced was moved to where it is to be.
    pub(crate) fn of(compiled: &Compiled, ids: &BTreeSet<ValueId>) -> Self {
        let nodes =
            || plan::NodeId::numbered(&compiled.problem.nodes).filter(|(_, node)| !node.done);
        let made = nodes().flat_map(|(_, node)| node.outputs.iter().copied());
        let is_wanted = |&value: &plan::ValueId| {
            let value = compiled.value(value);
            value.is_some_and(|id| ids.contains(&id))
        };
        let effects = nodes().filter(|(_, node)| node.effect != plan::Effect::Repeatable);
        Self {
            values: made.filter(is_wanted).collect(),
            nodes: effects.map(|(id, _)| id).collect(),
        }
    }

    pub(crate) fn is_reached(&self) -> bool {
        self.values.is_empty() && self.nodes.is_empty()
    }

    pub(crate) fn note(&mut self, compiled: &Compiled, action: &Action) {
        if let Action::Run { node, .. } | Action::Guard { node } = action {
            self.nodes.remove(node);
            for output in &compiled.problem.nodes[node.index()].outputs {
                self.values.remove(output);
            }
        }
    }
}

/// What happened when a plan ran.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) offsets: Offsets,
    /// The problem's nodes that ran, in order.
    pub(crate) nodes: Vec<plan::NodeId>,
    /// The outputs that each left out, a bit for each.
    pub(crate) left_out: Vec<u32>,
    /// Seconds from the end of the node before to the end of each of those, so that they add up.
    pub(crate) seconds: Vec<f64>,
    /// One past the highest byte of the arena that was handed to a kernel.
    pub(crate) peak_arena_bytes: u64,
    /// Seconds spent running nodes again.
    pub(crate) recompute_seconds: f64,
    /// What was moved to and from disk.
    pub(crate) io: Io,
    /// What was moved to and from host memory.
    pub(crate) host_io: Io,
    /// What a guard found, because of which updates were left out.
    pub(crate) skipped: Option<&'static str>,
}

impl Ran {
    /// What ran, and how many seconds it took. Without what plans may leave out, which is predicted
    /// to take nothing.
    pub(crate) fn runs<'a>(
        &'a self,
        compiled: &'a Compiled,
    ) -> impl Iterator<Item = (&'a Work, f64)> {
        let runs = self.nodes.iter().zip(&self.seconds).zip(&self.left_out);
        let soft = |node: plan::NodeId| compiled.problem.nodes[node.index()].soft;
        let runs = runs.filter(move |((node, _), _)| !soft(**node));
        runs.map(|((&node, &seconds), &left_out)| {
            let mut variants = compiled.variants[node.index()].iter();
            let variant = variants.find(|(mask, _)| *mask == left_out);
            let work = variant.map_or(&compiled.work[node.index()], |(_, work)| work);
            (work, seconds)
        })
    }

    /// Predicted seconds that these runs of a plan wait for transfers.
    pub(crate) fn predicted_wait(&self, compiled: &Compiled, plan: &Plan) -> f64 {
        let (problem, mut all, mut some) = (&compiled.problem, 0.0, 0.0);
        for instruction in &plan.instructions {
            all += match &instruction.action {
                Action::Run { node, outputs, .. } => problem.run_seconds(*node, outputs),
                Action::Guard { node } => problem.nodes[node.index()].seconds,
                _ => 0.0,
            };
        }
        if plan.seconds <= all || all <= 0.0 {
            return 0.0;
        }
        for (&node, left_out) in self.nodes.iter().zip(&self.left_out) {
            some += problem.nodes[node.index()].seconds_without(|o| left_out >> o & 1 == 1);
        }
        (plan.seconds - all) * (some / all).min(1.0)
    }

    /// The problem's values that are in the arena now, with their offsets.
    pub(crate) fn present(&self) -> impl Iterator<Item = (plan::ValueId, u64)> {
        let values = plan::ValueId::numbered(self.offsets.all());
        values.filter_map(|(value, offset)| Some((value, (*offset)?)))
    }
}
