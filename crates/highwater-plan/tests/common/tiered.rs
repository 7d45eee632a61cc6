//! Problems whose cells may wait on tiers: any training step, with bytes for its cells and two moments
//! beside each.

use highwater_plan::*;
use std::collections::BTreeMap;

/// A link of so many bytes per second, half of that each way at once.
pub(crate) fn link(rate: f64) -> Link {
    Link {
        bytes: 1 << 50,
        read: rate,
        write: rate,
        read_while_writing: rate / 2.0,
        write_while_reading: rate / 2.0,
        lost: 0.2 / rate,
        writable: true,
    }
}

/// Makes the cells of a problem values of a home, each as large as the gradient that its update reads,
/// and adds two cells of that size that only the update touches.
pub(crate) fn with_cells(problem: &Problem, tiers: Tiers, home: Option<Tier>) -> Problem {
    let mut tiered = problem.clone();
    tiered.tiers = tiers;
    let mut bytes: BTreeMap<CellId, u64> = BTreeMap::new();
    for n in &problem.nodes {
        let largest = n
            .inputs
            .iter()
            .map(|&v| problem.values[v.index()].bytes)
            .max();
        for write in &n.writes {
            bytes.insert(write.0, largest.unwrap_or(64).max(1));
        }
    }
    let mut add = |bytes| {
        tiered.values.push(Value {
            bytes,
            home: Home::Cell(home),
            pin: Pin::Free,
            wanted: false,
        });
        ValueId::new(tiered.values.len() - 1)
    };
    let cells: BTreeMap<CellId, [ValueId; 3]> = bytes
        .iter()
        .map(|(&cell, &bytes)| (cell, [add(bytes), add(bytes), add(bytes)]))
        .collect();
    let last = cells.keys().last().map_or(0, |cell| cell.index());
    let mut fresh = (last + 1..).map(CellId::new);
    for n in &mut tiered.nodes {
        let read = n.reads.iter().filter_map(|read| cells.get(&read.0));
        let read: Vec<ValueId> = read.map(|values| values[0]).collect();
        n.inputs.extend(read);
        let written: Vec<CellId> = n.writes.iter().map(|write| write.0).collect();
        for cell in written {
            for &value in &cells[&cell] {
                n.rewrites.push(n.inputs.len() as u32);
                n.inputs.push(value);
            }
            n.writes
                .extend(fresh.by_ref().take(2).map(|cell| (cell, 0)));
        }
    }
    tiered
}
