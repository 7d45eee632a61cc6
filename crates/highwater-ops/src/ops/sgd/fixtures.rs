//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Formats, Sgd};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let op = Sgd {
        lr: builder.number("lr"),
        momentum: builder.number("momentum"),
        dampening: builder.number("dampening"),
        weight_decay: builder.number("weight_decay"),
        nesterov: builder.flag("nesterov"),
        maximize: false,
        first: false,
        formats: Formats::PLAIN,
    };
    let cells: Vec<&Operand> = x[..1].iter().chain(&x[2..]).collect();
    builder.update(op, &cells, &x[1])
}
