//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Gelu, GeluApproximate};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    if builder.name == "gelu_backward" {
        return builder.of_table(x);
    }
    let approximate = match builder.text("approximate") {
        "tanh" => GeluApproximate::Tanh,
        _ => GeluApproximate::None,
    };
    builder.add(Gelu { approximate }, x)
}
