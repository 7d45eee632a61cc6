//! Sample problems with realistic bytes, and seconds from a roofline.

pub(crate) mod densenet;
pub(crate) mod gpt;
pub(crate) mod llama;
pub(crate) mod resnet;
pub(crate) mod shared;
pub(crate) mod tangle;
pub(crate) mod tape;
pub(crate) mod unet;

use gpt::{Shape, gpt};
use highwater_plan::*;
use std::ops::Range;

/// Operations per second.
pub(crate) const FLOPS: f64 = 390e9;
/// Bytes per second.
pub(crate) const BANDWIDTH: f64 = 15e9;

/// A problem, and what one has to know about it for checkpointing by hand.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) problem: Problem,
    /// The nodes of each block of the forward part; where there are no blocks, each node is one.
    pub(crate) blocks: Vec<Range<usize>>,
    /// The forward part ends before this node.
    pub(crate) turn: usize,
    /// Bytes that the forward part makes and the rest reads.
    pub(crate) saved_bytes: u64,
}

impl Sample {
    /// A problem whose forward part ends before node `turn`.
    fn new(name: &'static str, problem: Problem, blocks: Vec<Range<usize>>, turn: usize) -> Sample {
        let mut read = vec![false; problem.values.len()];
        for n in &problem.nodes[turn..] {
            n.inputs.iter().for_each(|&v| read[v.index()] = true);
        }
        let forward = problem.nodes[..turn].iter();
        let saved = forward
            .flat_map(|n| &n.outputs)
            .filter(|&&v| read[v.index()] && problem.values[v.index()].home == Home::Arena);
        Sample {
            name,
            saved_bytes: saved
                .map(|&v| footprint(problem.values[v.index()].bytes))
                .sum(),
            blocks,
            problem,
            turn,
        }
    }
}

/// All of them.
pub(crate) fn samples() -> Vec<Sample> {
    let shape = |blocks, width, batch, length| Shape {
        blocks,
        width,
        batch,
        length,
    };
    vec![
        gpt("GPT-2 small, 12 blocks, 4 x 512", shape(12, 768, 4, 512)),
        gpt(
            "Deep and narrow GPT, 48 blocks, 4 x 512",
            shape(48, 384, 4, 512),
        ),
        gpt("GPT-2 XL, 48 blocks, 1 x 1024", shape(48, 1600, 1, 1024)),
        llama::llama(),
        resnet::resnet(),
        densenet::densenet(),
        unet::unet(),
        shared::shared(),
        tangle::tangle("Random graph, 150 + 150 nodes", 300, 4),
        tangle::tangle("Random graph without cuts, 100 + 100 nodes", 200, 24),
    ]
}
