//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{CrossEntropy, Reduction};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let op = CrossEntropy {
        reduction: match builder.text("reduction") {
            "sum" => Reduction::Sum,
            _ => Reduction::Mean,
        },
        ignore_index: builder.number("ignore_index") as i64,
    };
    builder.add(op, x)
}
