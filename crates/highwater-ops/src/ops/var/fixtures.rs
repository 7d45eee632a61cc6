//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::Var;

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let op = Var {
        root: builder.name == "std",
        correction: builder.number("correction"),
        dims: builder.dims(&x[0]),
        keepdim: builder.flag("keepdim"),
    };
    builder.add(op, x)
}
