//! Random graphs of hundreds of nodes with values of up to 64 MB.

use super::Sample;
use crate::common::mirrored::{Kind, mirrored_of};

/// A graph whose forward nodes read, besides the one before, one of up to `reach` before it.
pub(crate) fn tangle(name: &'static str, nodes: usize, reach: usize) -> Sample {
    let kind = Kind {
        nodes,
        reach,
        unit: 32 << 10,
        skips: if reach > 4 { 100 } else { 50 },
    };
    let mut problem = mirrored_of(7, kind);
    // A node takes about as long as its bytes take to move, and at most eight times that.
    let bytes: Vec<u64> = problem.values.iter().map(|v| v.bytes).collect();
    for n in &mut problem.nodes {
        let moved: u64 = n
            .inputs
            .iter()
            .chain(&n.outputs)
            .map(|&v| bytes[v.index()])
            .sum();
        n.seconds *= 0.1 * moved as f64 / super::BANDWIDTH;
    }
    let forward = nodes / 2;
    Sample::new(
        name,
        problem,
        (0..forward).map(|i| i..i + 1).collect(),
        forward,
    )
}
