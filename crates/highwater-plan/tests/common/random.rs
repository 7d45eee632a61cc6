//! Random training-like graphs: a forward DAG, a mirrored backward, updates, guards.

use super::Builder;
use highwater_plan::*;

/// Numbers from a seed (splitmix64).
pub(crate) struct Source(pub(crate) u64);

impl Source {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 8) as usize % n.max(1)
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn bytes(&mut self) -> u64 {
        if self.chance(8) {
            0
        } else {
            1 + self.below(2000) as u64
        }
    }

    fn seconds(&mut self) -> f64 {
        self.below(50) as f64 / 8.0
    }
}

struct Layer {
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
    cell: Option<CellId>,
}

/// A graph made from a seed; `nodes` forward nodes.
pub(crate) fn random(seed: u64, nodes: usize) -> Problem {
    let mut s = Source(seed);
    let mut b = Builder::default();
    let input = b.value(64, Home::External);
    let cells: Vec<CellId> = (0..=nodes / 3).map(|_| b.cell()).collect();
    let mut values = vec![input];
    let mut layers: Vec<Layer> = Vec::new();
    for _ in 0..nodes {
        layers.push(layer(&mut s, &mut b, &cells, &mut values));
    }
    let loss = if s.chance(50) {
        b.arena(4)
    } else {
        b.value(4, Home::External)
    };
    b.problem.values[loss.index()].wanted = true;
    let last = *layers[nodes - 1]
        .outputs
        .first()
        .expect("layers have outputs");
    b.node(&[last], &[loss], 1.0);
    let running = s.chance(30).then(|| b.cell());
    if let Some(cell) = running {
        b.update(&[last], cell, 0.5);
    }
    if s.chance(70) {
        b.guard(&[loss]);
    }
    let norm = backward(&mut s, &mut b, &layers, &cells);
    if let Some(gradients) = norm {
        b.guard(&gradients);
    }
    for v in 0..b.problem.values.len() {
        let value = &mut b.problem.values[v];
        if value.home == Home::Arena && s.chance(4) {
            value.wanted = true;
        }
        value.pin = match s.below(20) {
            0 => Pin::Keep,
            1 => Pin::Recompute,
            _ => Pin::Free,
        };
    }
    b.problem
}

fn layer(s: &mut Source, b: &mut Builder, cells: &[CellId], values: &mut Vec<ValueId>) -> Layer {
    let near = |s: &mut Source, values: &[ValueId]| {
        let back = if s.chance(80) {
            s.below(3)
        } else {
            s.below(values.len())
        };
        values[values.len() - 1 - back.min(values.len() - 1)]
    };
    let inputs: Vec<ValueId> = (0..=s.below(3)).map(|_| near(s, values)).collect();
    let bytes = b.problem.values[inputs[0].index()].bytes;
    let alike = s.chance(40) && bytes > 0;
    let first = if alike { bytes } else { s.bytes() };
    let mut outputs = vec![b.arena(first)];
    while s.chance(25) {
        let bytes = s.bytes();
        let home = if s.chance(10) {
            Home::External
        } else {
            Home::Arena
        };
        outputs.push(b.value(bytes, home));
    }
    let cell = s.chance(50).then(|| cells[s.below(cells.len())]);
    let seconds = s.seconds();
    let scratch = if s.chance(20) { s.bytes() } else { 0 };
    let once = s.chance(3);
    let optional = !once && s.chance(30);
    let node = b.node(&inputs, &outputs, seconds);
    node.scratch_bytes = scratch;
    node.reads.extend(cell.map(|c| (c, 0)));
    if alike {
        node.in_place.push((0, 0));
    }
    if optional {
        let part = seconds / (outputs.len() + 1) as f64;
        node.optional = (0..outputs.len() as u32).map(|o| (o, part)).collect();
    }
    if once {
        node.effect = Effect::Once;
    }
    values.extend(&outputs);
    Layer {
        inputs,
        outputs,
        cell,
    }
}

/// In how many pieces a cell is updated.
fn pieces(cell: CellId) -> u32 {
    1 + cell.index() as u32 % 3
}

/// Returns the gradients of cells if a guard is to look at all of them.
fn backward(
    s: &mut Source,
    b: &mut Builder,
    layers: &[Layer],
    cells: &[CellId],
) -> Option<Vec<ValueId>> {
    let mut gradient: Vec<Option<ValueId>> = vec![None; b.problem.values.len()];
    let mut total: Vec<Option<ValueId>> = vec![None; cells.len()];
    let seed = b.arena(64);
    b.node(&[], &[seed], 0.5);
    let late = s.chance(30);
    for (i, layer) in layers.iter().enumerate().rev() {
        let above = layer
            .outputs
            .iter()
            .find_map(|&o| gradient[o.index()])
            .unwrap_or(seed);
        let mut read = vec![above];
        read.extend(layer.inputs.iter().filter(|_| s.chance(70)));
        read.extend(layer.outputs.iter().filter(|_| s.chance(30)));
        for &v in &layer.inputs {
            let bytes = b.problem.values[v.index()].bytes;
            let g = b.arena(bytes);
            let seconds = s.seconds();
            let node = b.node(&read, &[g], seconds);
            node.reads.extend(layer.cell.map(|c| (c, 0)));
            let new = match gradient[v.index()] {
                Some(old) if old != g => {
                    let sum = b.arena(bytes);
                    let node = b.node(&[old, g], &[sum], 0.25);
                    node.in_place = vec![(0, 0), (1, 0)];
                    sum
                }
                _ => g,
            };
            gradient[v.index()] = Some(new);
        }
        if let Some(cell) = layer.cell {
            let g = b.arena(700);
            b.node(&read, &[g], 1.0);
            let slot = &mut total[cell.index()];
            *slot = Some(match *slot {
                Some(old) => {
                    let sum = b.arena(700);
                    b.node(&[old, g], &[sum], 0.25).in_place = vec![(0, 0)];
                    sum
                }
                None => g,
            });
            let again = layers[..i].iter().any(|l| l.cell == Some(cell));
            if let Some(g) = total[cell.index()].filter(|_| !again && !late) {
                b.pieces(&[g], cell, 0.5, pieces(cell));
            }
        }
    }
    let gradients: Vec<(CellId, ValueId)> = cells
        .iter()
        .filter_map(|&c| total[c.index()].map(|g| (c, g)))
        .collect();
    for &(cell, g) in gradients.iter().filter(|_| late) {
        b.pieces(&[g], cell, 0.5, pieces(cell));
    }
    late.then(|| gradients.into_iter().map(|(_, g)| g).collect())
}

/// The second half of a problem whose first `nodes` nodes have run under a plan of their own: what
/// is still wanted of them is resident, or gone.
pub(crate) fn half_done(seed: u64, nodes: usize) -> Problem {
    let mut problem = random(seed, nodes);
    let mut s = Source(!seed);
    let mut offset = 0;
    for n in 0..nodes {
        let node = &mut problem.nodes[n];
        node.done = true;
        let repeatable = node.effect == Effect::Repeatable;
        for &v in &node.outputs.clone() {
            let value = &mut problem.values[v.index()];
            if value.home == Home::Arena && (!repeatable || s.chance(60)) {
                value.home = Home::Resident { offset };
                offset += footprint(value.bytes) + 64 * s.below(3) as u64;
            }
        }
    }
    problem
}
