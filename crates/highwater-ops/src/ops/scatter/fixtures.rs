//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Scatter, ScatterReduce, ScatterReduction};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let dim = builder.dim(&x[0]);
    let inputs = [x[2].clone(), x[1].clone(), x[0].clone()];
    if builder.name == "scatter" {
        return builder.add(Scatter { dim }, &inputs);
    }
    let reduction = match builder.text("reduce") {
        "sum" => ScatterReduction::Sum,
        "prod" => ScatterReduction::Prod,
        "mean" => ScatterReduction::Mean,
        "amax" => ScatterReduction::Amax,
        "amin" => ScatterReduction::Amin,
        other => panic!("no reduction {other}"),
    };
    let include_self = builder.flag("include_self");
    let op = ScatterReduce {
        dim,
        reduction,
        include_self,
    };
    builder.add(op, &inputs)
}
