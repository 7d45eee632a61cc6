//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::Embedding;

/// PyTorch's indices come first, ours last.
pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    builder.add(Embedding, &[x[1].clone(), x[0].clone()])
}
