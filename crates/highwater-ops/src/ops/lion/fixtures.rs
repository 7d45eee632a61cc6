//! The cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Formats, Lion};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let op = Lion {
        lr: builder.number("lr"),
        beta1: builder.attrs["betas"][0].as_f64().unwrap(),
        beta2: builder.attrs["betas"][1].as_f64().unwrap(),
        weight_decay: builder.number("weight_decay"),
        formats: Formats::PLAIN,
    };
    builder.update(op, &[&x[0], &x[2]], &x[1])
}
