//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Pad, PadBackward, PadMode};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let mode = match builder.text("mode") {
        "constant" => PadMode::Constant(builder.number("value")),
        "reflect" => PadMode::Reflect,
        "replicate" => PadMode::Replicate,
        _ => PadMode::Circular,
    };
    let numbers = builder.attrs["pad"].as_array().into_iter().flatten();
    let numbers: Vec<isize> = numbers
        .filter_map(serde_json::Value::as_i64)
        .map(|number| number as isize)
        .collect();
    let mut pads = vec![[0; 2]; x[0].shape().rank()];
    for (pads, pair) in pads.iter_mut().rev().zip(numbers.as_chunks::<2>().0) {
        *pads = *pair;
    }
    let pad = Pad { pads, mode };
    if builder.name == "pad" {
        return builder.add(pad, x);
    }
    let shape = builder.shape("shape");
    builder.add(PadBackward { pad, shape }, x)
}
