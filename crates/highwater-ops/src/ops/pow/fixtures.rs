//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Pow, PowScalar};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    if builder.name == "pow" {
        return builder.add(Pow, x);
    }
    let exponent = builder.number("exponent");
    builder.add(PowScalar { exponent }, x)
}
