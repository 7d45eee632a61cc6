//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Sort, TopK};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let (dim, descending) = (builder.dim(&x[0]), builder.flag("descending"));
    if builder.name == "sort" {
        return builder.add(Sort { dim, descending }, x);
    }
    let (k, largest) = (builder.number("k") as usize, descending);
    builder.add(TopK { k, dim, largest }, x)
}
