//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::Prod;

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let (dims, keepdim) = (builder.dims(&x[0]), builder.flag("keepdim"));
    builder.add(Prod { dims, keepdim }, x)
}
