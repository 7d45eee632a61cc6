//! What others do, as lists of runs over the same problem.

pub(crate) mod checkpoint;
pub(crate) mod dtr;
pub(crate) mod measure;

use super::samples::Sample;
use measure::{Measured, measure};

/// Checkpointing per block, and of about as many segments as each has blocks.
pub(crate) fn segments(sample: &Sample) -> [(&'static str, Measured); 2] {
    let root = (sample.blocks.len() as f64).sqrt().round() as usize;
    [("per block", 1), ("sqrt(N)", root.max(1))].map(|(name, blocks)| {
        let runs = checkpoint::runs(sample, blocks);
        (name, measure(&sample.problem, &runs))
    })
}

/// Dynamic tensor rematerialisation under a budget, if it gets through.
pub(crate) fn dtr(sample: &Sample, budget: u64) -> Option<Measured> {
    let runs = dtr::runs(&sample.problem, budget)?;
    let measured = measure(&sample.problem, &runs);
    assert!(measured.peak <= budget, "it kept to its budget");
    Some(measured)
}
