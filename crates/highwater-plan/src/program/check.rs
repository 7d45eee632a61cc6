//! What makes a problem malformed. The planner may index freely after this has passed.

use crate::problem::{CellId, Effect, Home, Lane, Node, NodeId, Problem, ValueId, Version};
use thiserror::Error;

/// A problem that cannot be planned because it makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProblemError {
    /// A node names a value that does not exist.
    #[error("node {node} names value {value}, which does not exist")]
    NoSuchValue {
        /// The node.
        node: NodeId,
        /// The value.
        value: ValueId,
    },
    /// A value is filled by two nodes, or twice by one.
    #[error("value {value} is filled by node {first} and by node {second}")]
    TwoProducers {
        /// The value.
        value: ValueId,
        /// Its first producer.
        first: NodeId,
        /// Its second producer.
        second: NodeId,
    },
    /// A node reads a value that a later node fills.
    #[error("node {node} reads value {value} before it is filled")]
    UsedBeforeFilled {
        /// The node.
        node: NodeId,
        /// The value.
        value: ValueId,
    },
    /// A value in the arena that no node fills and that is not there from the start.
    #[error("value {value} lives in the arena, but no node fills it")]
    NeverFilled {
        /// The value.
        value: ValueId,
    },
    /// A value is said to be resident although its producer has yet to run.
    #[error("value {value} is resident, but its producer, node {node}, is not done")]
    ResidentNotDone {
        /// The value.
        value: ValueId,
        /// Its producer.
        node: NodeId,
    },
    /// A resident value at an offset that is not a multiple of [`Problem::align`], or beyond 2^62.
    #[error("value {value} is resident at offset {offset}, which is misaligned or out of range")]
    BadOffset {
        /// The value.
        value: ValueId,
        /// The offset.
        offset: u64,
    },
    /// Two resident values share bytes.
    #[error("resident values {first} and {second} overlap")]
    ResidentsOverlap {
        /// One value.
        first: ValueId,
        /// The other.
        second: ValueId,
    },
    /// An in-place pair names a position that does not exist.
    #[error("node {node} has an in-place pair ({input}, {output}) out of range")]
    BadInPlace {
        /// The node.
        node: NodeId,
        /// Position in its inputs.
        input: u32,
        /// Position in its outputs.
        output: u32,
    },
    /// An optional output that does not exist, is listed twice, or belongs to a node that may run
    /// only once; or savings that are no part of the node's seconds.
    #[error("node {node} wrongly lists output {output} as optional")]
    BadOptional {
        /// The node.
        node: NodeId,
        /// Position in its outputs.
        output: u32,
    },
    /// A cell's value that a node fills, that is wanted at the end, or whose tier there is not.
    #[error("value {value} is a cell's, and filled, wanted, or on a tier that there is not")]
    BadCell {
        /// The value.
        value: ValueId,
    },
    /// A node overwrites what is no cell's value, or may run more than once.
    #[error("node {node} wrongly overwrites its input {input}")]
    BadRewrite {
        /// The node.
        node: NodeId,
        /// Position in its inputs.
        input: u32,
    },
    /// A node that may be left out is no guard.
    #[error("node {node} may be left out and is no guard")]
    SoftEffect {
        /// The node.
        node: NodeId,
    },
    /// A guard that fills values, writes cells or asks for scratch memory.
    #[error("guard node {node} has outputs, writes or scratch memory")]
    GuardFills {
        /// The node.
        node: NodeId,
    },
    /// A node that writes a cell but says that it may be repeated.
    #[error("node {node} writes a cell and so must have effect Once")]
    RepeatableWrites {
        /// The node.
        node: NodeId,
    },
    /// Two nodes write the same version of a cell.
    #[error("version {version} of cell {cell} is overwritten by node {first} and by node {second}")]
    WrittenTwice {
        /// The cell.
        cell: CellId,
        /// The version that both replace.
        version: Version,
        /// One writer.
        first: NodeId,
        /// The other.
        second: NodeId,
    },
    /// A node needs a version of a cell that is neither there at the start nor made by the plan.
    #[error("node {node} needs version {version} of cell {cell}, which is never current")]
    WrongVersion {
        /// The node.
        node: NodeId,
        /// The cell.
        cell: CellId,
        /// The version.
        version: Version,
    },
    /// Predicted seconds that are negative or not a number.
    #[error("node {node} has predicted seconds that are negative or not finite")]
    BadSeconds {
        /// The node.
        node: NodeId,
    },
    /// Guards, data and cell versions leave no order in which this node can run.
    #[error("node {node} can never run: guards, data and cell versions form a circle")]
    NoOrder {
        /// The node.
        node: NodeId,
    },
    /// Something needed is gone and cannot be made again.
    #[error("value {value} is needed, but it is gone and cannot be made again")]
    Lost {
        /// The value.
        value: ValueId,
    },
    /// A node in a lane of transfers.
    #[error("node {node} is said to run in the lane {lane:?}, which is for transfers")]
    BadLane {
        /// The node.
        node: NodeId,
        /// The lane.
        lane: Lane,
    },
    /// An alignment that is no power of two, or absurd.
    #[error("buffers cannot start at multiples of {align} bytes: it is no power of two below 2^30")]
    BadAlign {
        /// The alignment.
        align: u64,
    },
    /// Sizes whose sum does not fit 62 bits.
    #[error("the sizes of values and scratch are too large to be added up")]
    TooLarge,
}

/// The producer of every value.
pub(crate) fn producers(problem: &Problem) -> Vec<Option<NodeId>> {
    let mut producer = vec![None; problem.values.len()];
    for (node, n) in NodeId::numbered(&problem.nodes) {
        for &v in &n.outputs {
            producer[v.index()] = Some(node);
        }
    }
    producer
}

/// Checks everything that can be checked without planning.
pub(crate) fn check(problem: &Problem) -> Result<(), ProblemError> {
    let align = problem.align;
    if !align.is_power_of_two() || align >= 1 << 30 {
        return Err(ProblemError::BadAlign { align });
    }
    sizes(problem)?;
    edges(problem)?;
    for (node, n) in NodeId::numbered(&problem.nodes) {
        for &(input, output) in &n.in_place {
            if input as usize >= n.inputs.len() || output as usize >= n.outputs.len() {
                return Err(ProblemError::BadInPlace {
                    node,
                    input,
                    output,
                });
            }
        }
        optional(node, n)?;
        if !matches!(n.lane, Lane::Compute | Lane::Communicate) {
            let lane = n.lane;
            return Err(ProblemError::BadLane { node, lane });
        }
        let fills = !n.outputs.is_empty() || !n.writes.is_empty() || n.scratch_bytes > 0;
        if n.soft && n.effect != Effect::Guard {
            return Err(ProblemError::SoftEffect { node });
        }
        if n.effect == Effect::Guard && fills {
            return Err(ProblemError::GuardFills { node });
        }
        if n.effect == Effect::Repeatable && !n.writes.is_empty() {
            return Err(ProblemError::RepeatableWrites { node });
        }
    }
    writers(problem)?;
    residents(problem)
}

/// Seconds of a node, and of what a run of it may leave out.
fn optional(node: NodeId, n: &Node) -> Result<(), ProblemError> {
    if !n.seconds.is_finite() || n.seconds < 0.0 {
        return Err(ProblemError::BadSeconds { node });
    }
    let mut left = n.seconds;
    for (i, &(output, seconds)) in n.optional.iter().enumerate() {
        left -= seconds;
        let twice = n.optional[..i].iter().any(|&(o, _)| o == output);
        let there = (output as usize) < n.outputs.len() && !twice;
        // Not `<`, so that NaN is wrong as well; rounding may leave a little less than nothing.
        let part = seconds >= 0.0 && left >= -1e-9 * n.seconds;
        if !(there && part && n.effect == Effect::Repeatable) {
            return Err(ProblemError::BadOptional { node, output });
        }
    }
    Ok(())
}

fn sizes(problem: &Problem) -> Result<(), ProblemError> {
    let values = problem.values.iter().map(|v| v.bytes);
    let scratch = problem.nodes.iter().map(|n| n.scratch_bytes);
    let mut sum: u64 = 0;
    for bytes in values.chain(scratch) {
        sum = sum
            .checked_add(bytes)
            .and_then(|s| s.checked_add(problem.align))
            .filter(|&s| s < 1 << 62)
            .ok_or(ProblemError::TooLarge)?;
    }
    Ok(())
}

fn edges(problem: &Problem) -> Result<(), ProblemError> {
    let mut producer: Vec<Option<NodeId>> = vec![None; problem.values.len()];
    for (node, n) in NodeId::numbered(&problem.nodes) {
        for &value in n.inputs.iter().chain(&n.outputs) {
            if value.index() >= problem.values.len() {
                return Err(ProblemError::NoSuchValue { node, value });
            }
        }
        for &value in &n.outputs {
            if let Some(first) = producer[value.index()] {
                return Err(ProblemError::TwoProducers {
                    value,
                    first,
                    second: node,
                });
            }
            producer[value.index()] = Some(node);
        }
    }
    for (node, n) in NodeId::numbered(&problem.nodes) {
        for &value in &n.inputs {
            if producer[value.index()].is_some_and(|p| p >= node) {
                return Err(ProblemError::UsedBeforeFilled { node, value });
            }
        }
        for &input in &n.rewrites {
            let value = n.inputs.get(input as usize);
            let home = value.map(|&v| problem.values[v.index()].home);
            if n.effect != Effect::Once || !matches!(home, Some(Home::Cell(_))) {
                return Err(ProblemError::BadRewrite { node, input });
            }
        }
    }
    for (value, v) in ValueId::numbered(&problem.values) {
        match (v.home, producer[value.index()]) {
            (Home::Arena, None) => return Err(ProblemError::NeverFilled { value }),
            (Home::Resident { .. }, Some(node)) if !problem.nodes[node.index()].done => {
                return Err(ProblemError::ResidentNotDone { value, node });
            }
            (Home::Cell(tier), producer) => {
                let lost = tier.is_some_and(|tier| problem.tiers.link(tier).is_none());
                if lost || producer.is_some() || v.wanted {
                    return Err(ProblemError::BadCell { value });
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn writers(problem: &Problem) -> Result<(), ProblemError> {
    let mut writes: Vec<_> = NodeId::numbered(&problem.nodes)
        .flat_map(|(node, n)| {
            n.writes
                .iter()
                .map(move |&(cell, version)| (cell, version, node))
        })
        .collect();
    writes.sort_unstable();
    for pair in writes.windows(2) {
        let ((cell, version, first), (c, v, second)) = (pair[0], pair[1]);
        if (cell, version) == (c, v) {
            return Err(ProblemError::WrittenTwice {
                cell,
                version,
                first,
                second,
            });
        }
    }
    Ok(())
}

fn residents(problem: &Problem) -> Result<(), ProblemError> {
    let mut ranges = Vec::new();
    for (value, v) in ValueId::numbered(&problem.values) {
        if let Home::Resident { offset } = v.home {
            if offset % problem.align != 0 || offset >= 1 << 62 {
                return Err(ProblemError::BadOffset { value, offset });
            }
            if v.bytes > 0 {
                ranges.push((offset, offset + problem.footprint(v.bytes), value));
            }
        }
    }
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        if pair[1].0 < pair[0].1 {
            return Err(ProblemError::ResidentsOverlap {
                first: pair[0].2,
                second: pair[1].2,
            });
        }
    }
    Ok(())
}
