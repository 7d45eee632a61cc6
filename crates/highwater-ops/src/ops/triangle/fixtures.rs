//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::Triangle;

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let upper = builder.name == "triu";
    let diagonal = builder.number("diagonal") as i64;
    builder.add(Triangle { upper, diagonal }, x)
}
