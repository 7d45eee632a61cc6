//! Random forward graphs with a mirrored backward that reads forward values; no cells, no guards.

use super::Builder;
use super::random::Source;
use highwater_plan::*;

/// What sizes a graph.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) nodes: usize,
    /// How many percent of the forward nodes read a value further back.
    pub(crate) skips: usize,
    /// How far back at most.
    pub(crate) reach: usize,
    /// What sizes are a multiple of, in bytes.
    pub(crate) unit: u64,
}

/// A small graph of exactly so many nodes, made from a seed.
pub(crate) fn mirrored(seed: u64, nodes: usize) -> Problem {
    let kind = Kind {
        nodes,
        skips: 50,
        reach: 4,
        unit: 1,
    };
    mirrored_of(seed, kind)
}

/// A graph made from a seed. Node `i` of the backward reads the
/// gradients of what its forward node made, and of the forward node's inputs and outputs some.
/// Where the number is odd, the first forward node has no mirror.
pub(crate) fn mirrored_of(seed: u64, kind: Kind) -> Problem {
    let Kind { nodes, unit, .. } = kind;
    let mut s = Source(seed);
    let mut b = Builder::default();
    let forward = nodes.div_ceil(2);
    let input = b.value(64, Home::External);
    let mut made: Vec<ValueId> = vec![input];
    let mut layers: Vec<(Vec<ValueId>, ValueId)> = Vec::new();
    for i in 0..forward {
        let mut inputs = vec![made[i]];
        if s.below(100) < kind.skips {
            inputs.push(made[i - s.below(i.min(kind.reach) + 1)]);
        }
        inputs.dedup();
        let output = if s.below(100) < 25 && i > 0 {
            b.arena(b.problem.values[made[i].index()].bytes)
        } else {
            b.arena(unit * (1 + s.below(2000) as u64))
        };
        run(&mut s, &mut b, &inputs, &[output], unit);
        made.push(output);
        layers.push((inputs, output));
    }
    let mut gradients: Vec<Vec<ValueId>> = vec![Vec::new(); b.problem.values.len()];
    for (inputs, output) in layers[forward - nodes / 2..].iter().rev() {
        let mut reads = gradients[output.index()].clone();
        let saved = inputs.iter().chain([output]);
        reads.extend(saved.filter(|_| s.below(100) < 60));
        let outputs: Vec<ValueId> = inputs
            .iter()
            .map(|&v| b.arena(b.problem.values[v.index()].bytes))
            .collect();
        run(&mut s, &mut b, &reads, &outputs, unit);
        for (&v, &gradient) in inputs.iter().zip(&outputs) {
            gradients[v.index()].push(gradient);
        }
    }
    let last = b.problem.values.len() - 1;
    b.problem.values[last].wanted = s.below(2) == 0;
    b.problem
}

/// Adds a node; a third may work in place, some take scratch memory.
fn run(s: &mut Source, b: &mut Builder, inputs: &[ValueId], outputs: &[ValueId], unit: u64) {
    let scratch = if s.below(6) == 0 { s.below(1000) } else { 0 };
    let seconds = (1 + s.below(80)) as f64 / 8.0;
    let node = b.node(inputs, outputs, seconds);
    node.scratch_bytes = unit * scratch as u64;
    if !inputs.is_empty() && s.below(3) == 0 {
        node.in_place.push((0, 0));
    }
}
