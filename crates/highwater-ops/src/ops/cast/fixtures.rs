//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::{DType, Operand};
use highwater_ops::Cast;

/// There and back.
pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let dtype = match builder.text("via") {
        "F64" => DType::F64,
        "BF16" => DType::BF16,
        _ => DType::F16,
    };
    let there = builder.add_one(Cast { dtype }, x)?;
    builder.add(Cast { dtype: DType::F32 }, &[there])
}
