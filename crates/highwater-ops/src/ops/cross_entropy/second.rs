//! Gradients of the gradient, from other operations.

use super::{CrossEntropyBackward, Reduction};
use crate::ops::gradients::times;
use crate::{Div, Full, Neg, NllLoss, Softmax, SoftmaxBackward, Sum};
use highwater_graph::{Backward, OpError, Operand, Shape};

/// Of `h`, the gradient of `c g (p - onehot)`, where `p` is the softmax of a row and `c` is 0 where the label is
/// ignored, else one, over the number of such rows if losses are averaged:
/// - in `g`: the sum of `h c (p - onehot)`
/// - in `x`: `c g p (h - sum(h p))`
pub(super) fn emit(op: CrossEntropyBackward, backward: &mut Backward<'_>) -> Result<(), OpError> {
    let Some(h) = backward.grad(0) else {
        return Ok(());
    };
    let [x, labels, g] = [0, 1, 2].map(|i| backward.input(i));
    if backward.needs(2) {
        let one = ones(backward, &g, g.shape().clone())?;
        let of_one = backward.emit_one(op, &[x.clone(), labels.clone(), one])?;
        let product = times(backward, &h, &of_one)?;
        let (dims, keepdim) = (Vec::new(), false);
        let sum = backward.emit_one(Sum { dims, keepdim }, &[product])?;
        let grad = seen_as(&sum, g.shape())?;
        backward.set(2, grad);
    }
    if backward.needs(0) {
        let factor = factor(op, backward, &x, labels)?;
        let g = seen_as(&g, &Shape::scalar())?;
        let factor = times(backward, &factor, &g)?;
        let of_rows = times(backward, &h, &factor)?;
        let dim = x.shape().rank() - 1;
        let p = backward.emit_one(Softmax { dim }, &[x])?;
        let grad = backward.emit_one(SoftmaxBackward { dim }, &[of_rows, p])?;
        backward.set(0, grad);
    }
    Ok(())
}

/// `c`, a column: what each row counts.
fn factor(
    op: CrossEntropyBackward,
    backward: &mut Backward<'_>,
    x: &Operand,
    labels: Operand,
) -> Result<Operand, OpError> {
    let column: Shape = labels.shape().iter().copied().chain([1]).collect();
    let one = ones(backward, x, Shape::scalar())?;
    let repeated = one.spec.layout.expand(x.shape());
    let refused = || OpError::shape("cross_entropy", x.spec.to_string(), one.spec.to_string());
    let ones = one.with_layout(repeated.ok_or_else(refused)?);
    let ignore_index = op.ignore_index;
    let losses = backward.emit_one(NllLoss { ignore_index }, &[ones, labels])?;
    let counts = backward.emit_one(Neg, &[losses])?;
    let counts = seen_as(&counts, &column)?;
    if op.reduction == Reduction::Sum {
        return Ok(counts);
    }
    let dim = column.rank() - 1;
    let all = Sum {
        dims: (0..=dim).collect(),
        keepdim: true,
    };
    let all = backward.emit_one(all, std::slice::from_ref(&counts))?;
    backward.emit_one(Div, &[counts, all])
}

fn ones(backward: &mut Backward<'_>, like: &Operand, shape: Shape) -> Result<Operand, OpError> {
    let (value, dtype) = (1.0, like.spec.dtype);
    let one = Full {
        value,
        dtype,
        shape,
    };
    backward.emit_one(one, &[])
}

fn seen_as(x: &Operand, shape: &Shape) -> Result<Operand, OpError> {
    let layout = x.spec.layout.reshape(shape);
    let refused = || OpError::shape("cross_entropy", shape.to_string(), x.spec.to_string());
    Ok(x.with_layout(layout.ok_or_else(refused)?))
}
