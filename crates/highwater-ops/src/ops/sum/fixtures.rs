//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{Mean, Sum, SumTo};
use serde_json::Value;

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    if builder.name == "sum_to" {
        let shape = builder.shape("shape");
        return builder.add(SumTo { shape }, x);
    }
    let rank = x[0].shape().rank() as i64;
    let listed = builder.attrs["dim"].as_array().into_iter().flatten();
    let dims = listed
        .filter_map(Value::as_i64)
        .map(|dim| dim.rem_euclid(rank) as usize)
        .collect();
    let keepdim = builder.flag("keepdim");
    match builder.name {
        "sum" => builder.add(Sum { dims, keepdim }, x),
        _ => builder.add(Mean { dims, keepdim }, x),
    }
}
