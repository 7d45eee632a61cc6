//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{AddScalar, DivScalar, MulScalar, SubScalar};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let value = builder.number("value");
    match builder.name {
        "add_scalar" => builder.add(AddScalar { value }, x),
        "sub_scalar" => builder.add(SubScalar { value }, x),
        "mul_scalar" => builder.add(MulScalar { value }, x),
        _ => builder.add(DivScalar { value }, x),
    }
}
