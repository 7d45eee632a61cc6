//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Accumulate, Assign, LerpCell};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    match builder.name {
        "lerp_" => {
            let weight = builder.number("weight");
            builder.update(LerpCell { weight }, &[&x[0]], &x[1])
        }
        "add_" => builder.update(Accumulate, &[&x[0]], &x[1]),
        _ => builder.update(Assign, &[&x[0]], &x[1]),
    }
}
