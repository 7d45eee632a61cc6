//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Interpolate, InterpolateBackward, Interpolation};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let pair = |key: &str| {
        let pair = builder.shape(key);
        [pair[0], pair[1]]
    };
    let mode = match builder.text("mode") {
        "nearest" => Interpolation::Nearest,
        _ => Interpolation::Bilinear {
            align_corners: builder.flag("align_corners"),
        },
    };
    let scale = &builder.attrs["scale"];
    let forward = Interpolate {
        size: pair("size"),
        scale: scale[0]
            .as_f64()
            .zip(scale[1].as_f64())
            .map(<[f64; 2]>::from),
        mode,
    };
    if builder.name == "interpolate" {
        return builder.add(forward, x);
    }
    let sides = pair("sides");
    builder.add(InterpolateBackward { forward, sides }, x)
}
