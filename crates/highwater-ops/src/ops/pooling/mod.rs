//! Pools of images: `max_pool2d` and `avg_pool2d`, over windows of one size or so many of them.
//!
//! Images are `[N, C, H, W]`. A maximum remembers where in its window it was found, in a byte for windows
//! of up to 256 elements, so that backward needs nothing else.

mod average;
mod cpu;
mod maximum;
mod reference;
mod row;
mod samples;
mod windows;

pub use average::{AvgPool2d, AvgPool2dBackward};
pub use maximum::{MaxPool2d, MaxPool2dBackward, MaxPool2dSelect};
pub use windows::{PoolSettings, Windows};

use crate::Entry;
use crate::kernels::pointwise::held_bytes;
use highwater_graph::{Cost, Spec};

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[
    maximum::ENTRY,
    maximum::BACKWARD,
    maximum::SELECT,
    average::ENTRY,
    average::BACKWARD,
];

/// One pass, with so many operations.
fn cost(inputs: &[Spec], outputs: &[Spec], flops: usize) -> Cost {
    Cost {
        vector_flops: flops as f64,
        read_bytes: inputs.iter().map(held_bytes).sum(),
        written_bytes: outputs.iter().map(Spec::bytes).sum(),
        ..Cost::default()
    }
}

/// Height and width.
fn sides(shape: &[usize]) -> [usize; 2] {
    [shape[shape.len() - 2], shape[shape.len() - 1]]
}
