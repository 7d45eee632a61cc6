//! Random forward graphs with a mirrored backward that reads forward values; no cells, no guards.

use super::Builder;
use super::random::Source;
use highwater_plan::*;

/// A graph of exactly so many nodes, made from a seed. Node `i` of the backward reads the
/// gradients of what its forward node made, and of the forward node's inputs and outputs some.
/// Where the number is odd, the first forward node has no mirror.
pub(crate) fn mirrored(seed: u64, nodes: usize) -> Problem {
    let mut s = Source(seed);
    let mut b = Builder::default();
    let forward = nodes.div_ceil(2);
    let input = b.value(64, Home::External);
    let mut made: Vec<ValueId> = vec![input];
    let mut layers: Vec<(Vec<ValueId>, ValueId)> = Vec::new();
    for i in 0..forward {
        let mut inputs = vec![made[i]];
        if s.below(100) < 50 {
            inputs.push(made[i - s.below(i.min(4) + 1)]);
        }
        inputs.dedup();
        let output = if s.below(100) < 25 && i > 0 {
            b.arena(b.problem.values[made[i] as usize].bytes)
        } else {
            b.arena(1 + s.below(2000) as u64)
        };
        run(&mut s, &mut b, &inputs, &[output]);
        made.push(output);
        layers.push((inputs, output));
    }
    let mut gradients: Vec<Vec<ValueId>> = vec![Vec::new(); b.problem.values.len()];
    for (inputs, output) in layers[forward - nodes / 2..].iter().rev() {
        let mut reads = gradients[*output as usize].clone();
        let saved = inputs.iter().chain([output]);
        reads.extend(saved.filter(|_| s.below(100) < 60));
        let outputs: Vec<ValueId> = inputs
            .iter()
            .map(|&v| b.arena(b.problem.values[v as usize].bytes))
            .collect();
        run(&mut s, &mut b, &reads, &outputs);
        for (&v, &gradient) in inputs.iter().zip(&outputs) {
            gradients[v as usize].push(gradient);
        }
    }
    let last = b.problem.values.len() - 1;
    b.problem.values[last].wanted = s.below(2) == 0;
    b.problem
}

/// Adds a node; a third may work in place, some take scratch memory.
fn run(s: &mut Source, b: &mut Builder, inputs: &[ValueId], outputs: &[ValueId]) {
    let scratch = if s.below(6) == 0 { s.below(1000) } else { 0 };
    let seconds = (1 + s.below(80)) as f64 / 8.0;
    let node = b.node(inputs, outputs, seconds);
    node.scratch_bytes = scratch as u64;
    if !inputs.is_empty() && s.below(3) == 0 {
        node.in_place.push((0, 0));
    }
}
