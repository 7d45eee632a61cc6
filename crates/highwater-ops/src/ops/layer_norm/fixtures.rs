//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::LayerNorm;

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let op = LayerNorm {
        eps: builder.number("eps"),
        affine: builder.flag("weight"),
    };
    Ok(vec![builder.add_one(op, x)?])
}
