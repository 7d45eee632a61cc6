//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Adagrad, Formats};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let op = Adagrad {
        lr: builder.number("lr"),
        lr_decay: builder.number("lr_decay"),
        weight_decay: builder.number("weight_decay"),
        initial: builder.number("initial"),
        eps: builder.number("eps"),
        maximize: builder.flag("maximize"),
        step: builder.number("step") as u64,
        formats: Formats::PLAIN,
    };
    builder.update(op, &[&x[0], &x[2]], &x[1])
}
