//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::Clamp;

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    if builder.name == "clamp_backward" {
        return builder.of_table(x);
    }
    let bound = |key| builder.attrs[key].as_f64();
    let clamp = Clamp {
        min: bound("min"),
        max: bound("max"),
    };
    builder.add(clamp, x)
}
