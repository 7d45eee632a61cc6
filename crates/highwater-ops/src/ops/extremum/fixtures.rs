//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Extremum, ExtremumAt};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let (dims, keepdim) = (builder.dims(&x[0]), builder.flag("keepdim"));
    let largest = builder.name.ends_with("max");
    match builder.name {
        "amax" | "amin" => builder.add(
            Extremum {
                largest,
                dims,
                keepdim,
            },
            x,
        ),
        _ => builder.add(
            ExtremumAt {
                largest,
                dims,
                keepdim,
            },
            x,
        ),
    }
}
