//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::CumExtremum;

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let (largest, dim) = (builder.name == "cummax", builder.dim(&x[0]));
    builder.add(CumExtremum { largest, dim }, x)
}
