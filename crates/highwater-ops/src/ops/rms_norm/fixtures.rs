//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::RmsNorm;

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let eps = builder.number("eps");
    Ok(vec![builder.add_one(RmsNorm { eps }, x)?])
}
