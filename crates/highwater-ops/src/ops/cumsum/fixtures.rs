//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::CumSum;

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let (dim, reverse) = (builder.dim(&x[0]), false);
    builder.add(CumSum { dim, reverse }, x)
}
