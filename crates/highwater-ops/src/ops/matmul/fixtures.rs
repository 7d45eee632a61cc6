//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::{Operand, Shape};
use highwater_ops::MatMul;

/// PyTorch's product takes vectors, ours wants them as rows and columns.
pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let reshape = |operand: &Operand, dims: [usize; 2]| {
        let layout = operand.spec.layout.reshape(&Shape::from(dims));
        operand.with_layout(layout.expect("a vector has every shape"))
    };
    let a = match x[0].shape().dims() {
        &[n] => reshape(&x[0], [1, n]),
        _ => x[0].clone(),
    };
    let b = match x[1].shape().dims() {
        &[n] => reshape(&x[1], [n, 1]),
        _ => x[1].clone(),
    };
    builder.add(MatMul::default(), &[a, b])
}
