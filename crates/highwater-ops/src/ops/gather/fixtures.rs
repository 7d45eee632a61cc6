//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::{Operand, Shape};
use highwater_ops::{Gather, ScatterAdd};

/// PyTorch's vectors of indices stand for all that is beside them, ours are repeated.
fn repeated(index: &Operand, shape: &Shape, dim: usize) -> Operand {
    let mut alone = vec![1; shape.rank()];
    alone[dim] = index.shape().numel();
    let mut all = shape.to_vec();
    all[dim] = alone[dim];
    let layout = index.spec.layout.reshape(&alone.into());
    let layout = layout.and_then(|layout| layout.expand(&all.into()));
    index.with_layout(layout.expect("a vector repeats"))
}

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let dim = builder.dim(&x[0]);
    let sum = ScatterAdd {
        dim,
        extent: x[0].shape().get(dim).copied().unwrap_or(1),
        accumulate: true,
    };
    match builder.name {
        "gather" => builder.add(Gather { dim }, x),
        "index_select" => {
            let index = repeated(&x[1], x[0].shape(), dim);
            builder.add(Gather { dim }, &[x[0].clone(), index])
        }
        "index_add" => {
            let index = repeated(&x[1], x[0].shape(), dim);
            builder.add(sum, &[x[2].clone(), index, x[0].clone()])
        }
        _ => builder.add(sum, &[x[2].clone(), x[1].clone(), x[0].clone()]),
    }
}
