//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::Rotary;

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let op = Rotary {
        interleaved: builder.flag("interleaved"),
        inverse: false,
    };
    Ok(vec![builder.add_one(op, x)?])
}
