//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{LinearCrossEntropy, default_chunk_rows};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let rows = x[2].shape().numel();
    let op = LinearCrossEntropy {
        chunk_rows: default_chunk_rows(rows, x[1].shape()[0]),
        grad_x: true,
        grad_w: true,
        ignore_index: builder.number("ignore_index") as i64,
    };
    Ok(vec![builder.add_one(op, x)?])
}
