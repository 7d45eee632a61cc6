//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{GridMode, GridPadding, GridSample};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let mode = match builder.text("mode") {
        "bilinear" => GridMode::Bilinear,
        _ => GridMode::Nearest,
    };
    let padding = match builder.text("padding") {
        "zeros" => GridPadding::Zeros,
        "border" => GridPadding::Border,
        _ => GridPadding::Reflection,
    };
    let align_corners = builder.flag("align_corners");
    let op = GridSample {
        mode,
        padding,
        align_corners,
    };
    builder.add(op, x)
}
