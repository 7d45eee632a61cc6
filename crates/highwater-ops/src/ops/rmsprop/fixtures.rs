//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Formats, RmsProp};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let op = RmsProp {
        lr: builder.number("lr"),
        alpha: builder.number("alpha"),
        eps: builder.number("eps"),
        weight_decay: builder.number("weight_decay"),
        momentum: builder.number("momentum"),
        centered: builder.flag("centered"),
        maximize: builder.flag("maximize"),
        formats: Formats::PLAIN,
    };
    let cells: Vec<&Operand> = x[..1].iter().chain(&x[2..]).collect();
    builder.update(op, &cells, &x[1])
}
