//! What values and cells hold, as hashes: what program order gives, which any plan has to give too.

use crate::problem::{CellId, Node, NodeId, Problem, ValueId, Version};
use std::collections::BTreeMap;

/// What there is when nodes run once, in program order, on the versions they name.
pub(super) struct Right {
    /// The contents of each value; of cells, at the end.
    pub(super) values: Vec<u64>,
    /// What a node makes of the cell at a position of its inputs.
    pub(super) rewritten: BTreeMap<(NodeId, u32), u64>,
}

impl Right {
    pub(super) fn new(problem: &Problem) -> Right {
        let mut values: Vec<u64> = ValueId::below(problem.values.len()).map(initial).collect();
        let mut all = BTreeMap::new();
        for (node, n) in NodeId::numbered(&problem.nodes) {
            let inputs: Vec<u64> = n.inputs.iter().map(|&v| values[v.index()]).collect();
            let versions: Vec<Version> = n.reads.iter().map(|r| r.1).collect();
            for (o, &v) in (0..).zip(&n.outputs) {
                values[v.index()] = hash(node, o, &inputs, &versions);
            }
            // What an earlier plan did is there from the start.
            for &at in n.rewrites.iter().filter(|_| !n.done) {
                let contents = rewritten(n, node, at, &inputs, &versions);
                values[n.inputs[at as usize].index()] = contents;
                all.insert((node, at), contents);
            }
        }
        Right {
            values,
            rewritten: all,
        }
    }
}

/// The contents of a value that no node of the plan fills.
pub(super) fn initial(value: ValueId) -> u64 {
    mix(value.index() as u64, u64::MAX)
}

pub(super) fn rewritten(
    n: &Node,
    node: NodeId,
    at: u32,
    inputs: &[u64],
    versions: &[Version],
) -> u64 {
    hash(node, n.outputs.len() as u32 + at, inputs, versions)
}

pub(super) fn hash(node: NodeId, output: u32, inputs: &[u64], versions: &[Version]) -> u64 {
    let seed = mix(node.index() as u64, u64::from(output));
    let seed = inputs.iter().fold(seed, |h, &input| mix(h, input));
    versions
        .iter()
        .fold(seed, |h, &version| mix(h, u64::from(version)))
}

fn mix(a: u64, b: u64) -> u64 {
    let h = (a.rotate_left(23) ^ b).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

/// The version of each cell at the start: one past what nodes that are done wrote; if they wrote
/// none, the least that the others name; if they name none, the highest read.
pub(super) fn start(problem: &Problem) -> BTreeMap<CellId, Version> {
    let mut cells: BTreeMap<CellId, (u8, Version)> = BTreeMap::new();
    let mut note = |cell, rank, version| {
        let entry = cells.entry(cell).or_insert((rank, version));
        let least = rank == 1;
        if rank > entry.0 || rank == entry.0 && (version < entry.1) == least {
            *entry = (rank, version);
        }
    };
    for n in &problem.nodes {
        for &(cell, version) in &n.reads {
            note(cell, u8::from(!n.done), version);
        }
        for &(cell, version) in &n.writes {
            let (rank, version) = if n.done {
                (2, version + 1)
            } else {
                (1, version)
            };
            note(cell, rank, version);
        }
    }
    cells
        .into_iter()
        .map(|(cell, (_, version))| (cell, version))
        .collect()
}
