//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Softmax, SoftmaxBackward};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let dim = builder.dim(&x[0]);
    match builder.name {
        "softmax" => builder.add(Softmax { dim }, x),
        _ => builder.add(SoftmaxBackward { dim }, x),
    }
}
