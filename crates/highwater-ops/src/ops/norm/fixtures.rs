//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{DivOrZero, Norm, NormSlope};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let p = || match builder.attrs["p"].as_f64() {
        Some(p) => p,
        None if builder.text("p") == "inf" => f64::INFINITY,
        None => f64::NEG_INFINITY,
    };
    match builder.name {
        "div_or_zero" => builder.add(DivOrZero, x),
        "norm_slope" => builder.add(NormSlope { p: p() }, x),
        _ => {
            let (p, dims, keepdim) = (p(), builder.dims(&x[0]), builder.flag("keepdim"));
            builder.add(Norm { p, dims, keepdim }, x)
        }
    }
}
