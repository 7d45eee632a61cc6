//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::{DType, Operand};
use highwater_ops::OneHot;

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let (classes, dtype) = (builder.number("classes") as usize, DType::I64);
    builder.add(OneHot { classes, dtype }, x)
}
