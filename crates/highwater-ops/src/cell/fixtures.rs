//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Accumulate, Assign};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    match builder.name {
        "add_" => builder.update(Accumulate, &[&x[0]], &x[1]),
        _ => builder.update(Assign, &[&x[0]], &x[1]),
    }
}
