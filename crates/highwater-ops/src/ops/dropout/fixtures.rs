//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::Dropout;

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let op = Dropout {
        p: builder.number("p"),
        seed: builder.number("seed") as u64,
        offset: builder.number("offset") as u64,
    };
    builder.add(op, x)
}
