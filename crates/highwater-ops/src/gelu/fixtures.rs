//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Gelu, GeluApproximate};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let approximate = match builder.text("approximate") {
        "tanh" => GeluApproximate::Tanh,
        _ => GeluApproximate::None,
    };
    builder.add(Gelu { approximate }, x)
}
