//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{AdamW, Formats};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let op = AdamW {
        lr: builder.number("lr"),
        beta1: builder.attrs["betas"][0].as_f64().unwrap(),
        beta2: builder.attrs["betas"][1].as_f64().unwrap(),
        eps: builder.number("eps"),
        weight_decay: builder.number("weight_decay"),
        decoupled: builder.name == "adamw",
        amsgrad: builder.flag("amsgrad"),
        maximize: builder.flag("maximize"),
        step: builder.number("step") as u64,
        formats: Formats::PLAIN,
    };
    let cells: Vec<&Operand> = x[..1].iter().chain(&x[2..]).collect();
    builder.update(op, &cells, &x[1])
}
