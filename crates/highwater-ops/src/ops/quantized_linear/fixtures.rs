//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{QuantizedLinear, WeightFormat};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let op = QuantizedLinear {
        format: if builder.flag("nf4") {
            WeightFormat::Nf4
        } else {
            WeightFormat::Int8
        },
        width: builder.number("width") as usize,
    };
    Ok(vec![builder.add_one(op, x)?])
}
