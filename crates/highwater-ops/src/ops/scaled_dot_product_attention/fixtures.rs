//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::ScaledDotProductAttention;

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let width = x[0].shape()[3] as f64;
    let scale = builder.attrs["scale"].as_f64();
    let op = ScaledDotProductAttention {
        causal: builder.flag("is_causal"),
        window: builder.attrs["window"].as_u64().map(|n| n as usize),
        documents: x.len() > 3,
        scale: scale.unwrap_or(width.sqrt().recip()),
    };
    Ok(vec![builder.add_one(op, x)?])
}
