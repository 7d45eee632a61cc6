//! Problems of any number of nodes: chains, training steps of chains, recurrent and wide ones.

use super::Builder;
use highwater_plan::*;

/// Bytes of most values.
const BYTES: u64 = 4096;
const SECONDS: f64 = 1e-5;

/// A forward chain of so many nodes, whose end is wanted.
pub(crate) fn chain(nodes: usize) -> Problem {
    let mut b = Builder::default();
    let mut last = b.value(BYTES, Home::External);
    for i in 0..nodes {
        let next = b.arena(BYTES + 64 * (i % 7) as u64);
        let node = b.node(&[last], &[next], SECONDS);
        node.in_place.push((0, 0));
        last = next;
    }
    b.problem.values[last.index()].wanted = true;
    b.problem
}

/// A training step of a chain: forward, backward, an update of a cell for each layer, and a guard; about
/// so many nodes.
pub(crate) fn trained(nodes: usize) -> Problem {
    let layers = nodes / 4;
    let mut b = Builder::default();
    let mut made = vec![b.value(BYTES, Home::External)];
    let cells: Vec<CellId> = (0..layers).map(|_| b.cell()).collect();
    for (i, &cell) in cells.iter().enumerate() {
        let output = b.arena(BYTES + 64 * (i % 5) as u64);
        b.node(&[made[i]], &[output], SECONDS).reads.push((cell, 0));
        made.push(output);
    }
    b.guard(&made[layers..]);
    let mut gradient = made[layers];
    for (i, &cell) in cells.iter().enumerate().rev() {
        let (of_weight, of_input) = (b.arena(BYTES / 2), b.arena(BYTES + 64 * (i % 5) as u64));
        b.node(&[gradient, made[i]], &[of_weight], SECONDS);
        let node = b.node(&[gradient, made[i]], &[of_input], SECONDS);
        node.reads.push((cell, 0));
        gradient = of_input;
        b.update(&[of_weight], cell, SECONDS);
    }
    b.problem
}

/// A training step of a recurrent layer, unrolled: gates that read the state and weights that all steps
/// share, whose gradients are summed up step by step.
pub(crate) fn recurrent(steps: usize) -> Problem {
    const GATES: usize = 3;
    let mut b = Builder::default();
    let cells: Vec<CellId> = (0..GATES).map(|_| b.cell()).collect();
    let mut states = vec![b.value(BYTES, Home::External)];
    let mut gates: Vec<Vec<ValueId>> = Vec::new();
    for t in 0..steps {
        let input = b.value(BYTES, Home::External);
        let mut made: Vec<ValueId> = Vec::new();
        for &cell in &cells {
            let (sum, gate) = (b.arena(BYTES), b.arena(BYTES));
            b.node(&[states[t], input], &[sum], SECONDS)
                .reads
                .push((cell, 0));
            b.node(&[sum], &[gate], SECONDS).in_place.push((0, 0));
            made.push(gate);
        }
        let next = b.arena(BYTES);
        let inputs: Vec<ValueId> = made.iter().copied().chain([states[t]]).collect();
        b.node(&inputs, &[next], SECONDS);
        states.push(next);
        gates.push(made);
    }
    b.guard(&states[steps..]);
    let mut gradient = states[steps];
    let mut sums: Vec<Option<ValueId>> = vec![None; GATES];
    for t in (0..steps).rev() {
        let mut through: Option<ValueId> = None;
        for (g, &cell) in cells.iter().enumerate() {
            let (before, of_weight, of_state) =
                (b.arena(BYTES), b.arena(BYTES * 4), b.arena(BYTES));
            b.node(&[gradient, gates[t][g]], &[before], SECONDS);
            b.node(&[before, states[t]], &[of_weight], SECONDS);
            b.node(&[before], &[of_state], SECONDS)
                .reads
                .push((cell, 0));
            sums[g] = Some(added(&mut b, sums[g], of_weight, BYTES * 4));
            through = Some(added(&mut b, through, of_state, BYTES));
        }
        gradient = through.unwrap_or(gradient);
    }
    for (cell, sum) in cells.into_iter().zip(sums) {
        b.update(&[sum.expect("there is a step")], cell, SECONDS);
    }
    b.problem
}

/// A value added to a sum, in place; the value itself, if it is the first.
fn added(b: &mut Builder, sum: Option<ValueId>, value: ValueId, bytes: u64) -> ValueId {
    let Some(sum) = sum else { return value };
    let total = b.arena(bytes);
    b.node(&[sum, value], &[total], SECONDS)
        .in_place
        .push((0, 0));
    total
}

/// As many branches from one value as come to so many nodes, all held until they are brought together
/// two by two.
pub(crate) fn wide(nodes: usize) -> Problem {
    let mut b = Builder::default();
    let input = b.value(BYTES, Home::External);
    let first = b.arena(BYTES);
    b.node(&[input], &[first], SECONDS);
    let mut open: Vec<ValueId> = Vec::new();
    for i in 0..nodes / 2 {
        let value = b.arena(BYTES + 64 * (i * i % 11) as u64);
        b.node(&[first], &[value], SECONDS);
        open.push(value);
    }
    while open.len() > 1 {
        let mut next = Vec::with_capacity(open.len() / 2 + 1);
        for pair in open.chunks(2) {
            next.push(match *pair {
                [left, right] => {
                    let sum = b.arena(BYTES);
                    b.node(&[left, right], &[sum], SECONDS);
                    sum
                }
                _ => pair[0],
            });
        }
        open = next;
    }
    b.problem.values[open[0].index()].wanted = true;
    b.problem
}

/// The sum of so many losses of one layer, and its gradients: about so many nodes. Gradients of the layer's
/// weights are added up at the end.
pub(crate) fn losses(nodes: usize) -> Problem {
    const FORWARD: usize = 4;
    let count = nodes / 10;
    let mut b = Builder::default();
    let (input, weights) = (b.value(BYTES, Home::External), b.cell());
    let (mut sum, mut made) = (None, Vec::new());
    for _ in 0..count {
        let mut last = input;
        let mut saved = Vec::new();
        for layer in 0..FORWARD {
            let next = b.arena(if layer < 2 { 16 * BYTES } else { 64 });
            b.node(&[last], &[next], SECONDS).reads.push((weights, 0));
            saved.push(next);
            last = next;
        }
        sum = Some(added(&mut b, sum, last, 64));
        made.push(saved);
    }
    let seed = b.arena(64);
    b.node(&[sum.expect("there is a loss")], &[seed], SECONDS);
    let mut gradients = Vec::new();
    for saved in made.iter().rev() {
        let (before, of_weights) = (b.arena(16 * BYTES), b.arena(BYTES));
        b.node(&[seed, saved[2]], &[before], SECONDS);
        let through = b.arena(16 * BYTES);
        let node = b.node(&[before, saved[1]], &[through], SECONDS);
        node.in_place.push((0, 0));
        b.node(&[through, saved[0]], &[of_weights], SECONDS);
        gradients.push(of_weights);
    }
    let mut total = None;
    for gradient in gradients {
        total = Some(added(&mut b, total, gradient, BYTES));
    }
    b.update(&[total.expect("there is a gradient")], weights, SECONDS);
    b.problem
}
