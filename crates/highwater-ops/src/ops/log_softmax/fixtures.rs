//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{LogSoftmax, LogSoftmaxBackward};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let dim = builder.dim(&x[0]);
    match builder.name {
        "log_softmax" => builder.add(LogSoftmax { dim }, x),
        _ => builder.add(LogSoftmaxBackward { dim }, x),
    }
}
