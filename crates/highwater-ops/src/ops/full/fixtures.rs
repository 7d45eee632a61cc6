//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::{DType, Operand};
use highwater_ops::Full;

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let (value, shape) = (builder.number("value"), builder.shape("shape"));
    let dtype = DType::F32;
    builder.add(
        Full {
            value,
            dtype,
            shape,
        },
        x,
    )
}
