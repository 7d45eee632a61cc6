//! What gradients are made of: nodes that most operations' `backward` emits.

use crate::{Add, Full, Mul, Sum, SumTo};
use highwater_graph::{Backward, DType, Op, OpError, Operand, Shape};
use smallvec::SmallVec;

/// Has an operation of one input answer the gradient by `op`, of the output's gradient and the input.
pub(crate) fn from_input(backward: &mut Backward<'_>, op: impl Op) -> Result<(), OpError> {
    let input = backward.input(0);
    from(backward, op, &[input])
}

/// As [`from_input`], of the gradient and the output, so that the input need not be kept.
pub(crate) fn from_output(backward: &mut Backward<'_>, op: impl Op) -> Result<(), OpError> {
    let output = backward.output(0);
    from(backward, op, &[output])
}

/// As [`from_input`], of the gradient alone.
pub(crate) fn from_grad(backward: &mut Backward<'_>, op: impl Op) -> Result<(), OpError> {
    from(backward, op, &[])
}

/// As [`from_input`], of the gradient and other operands.
pub(crate) fn from(
    backward: &mut Backward<'_>,
    op: impl Op,
    others: &[Operand],
) -> Result<(), OpError> {
    if let Some(grad) = backward.grad(0).filter(|_| backward.needs(0)) {
        let inputs: SmallVec<[Operand; 2]> = std::iter::once(grad)
            .chain(others.iter().cloned())
            .collect();
        let grad = backward.emit_one(op, &inputs)?;
        backward.set(0, grad);
    }
    Ok(())
}

/// As [`from`], by an operation that can add to the gradient that the input has so far, which is its last input
/// then. `op` takes whether there is one.
pub(crate) fn added_from<O: Op>(
    backward: &mut Backward<'_>,
    op: impl FnOnce(bool) -> O,
    others: &[Operand],
) -> Result<(), OpError> {
    let Some(existing) = backward.existing(0) else {
        return from(backward, op(false), others);
    };
    if let Some(grad) = backward.grad(0).filter(|_| backward.needs(0)) {
        let others = others.iter().cloned().chain([existing]);
        let inputs: SmallVec<[Operand; 4]> = std::iter::once(grad).chain(others).collect();
        let grad = backward.emit_one(op(true), &inputs)?;
        backward.set_accumulated(0, grad);
    }
    Ok(())
}

/// Sets the gradient of the `i`-th input, made by `emit` of the output's gradient in the output's shape, if
/// it is wanted: summed over the copies of an input that was broadcast.
pub(crate) fn set_reduced(
    backward: &mut Backward<'_>,
    i: usize,
    emit: impl FnOnce(&mut Backward<'_>, Operand) -> Result<Operand, OpError>,
) -> Result<(), OpError> {
    let Some(grad) = backward.grad(0).filter(|_| backward.needs(i)) else {
        return Ok(());
    };
    let grad = emit(backward, grad)?;
    set_summed(backward, i, grad)
}

/// Sets the gradient of the `i`-th input, summed over the copies of an input that was broadcast.
fn set_summed(backward: &mut Backward<'_>, i: usize, grad: Operand) -> Result<(), OpError> {
    let shape = backward.input(i).shape().clone();
    let grad = reduce_to(backward, grad, &shape)?;
    backward.set(i, grad);
    Ok(())
}

/// Of a gradient of inputs `g` and another, its own gradient in `g`: the same operation, of the new gradient.
pub(crate) fn in_grad(backward: &mut Backward<'_>, op: impl Op) -> Result<(), OpError> {
    let other = backward.input(1);
    set_reduced(backward, 0, |backward, grad| {
        backward.emit_one(op, &[grad, other])
    })
}

/// The gradient in the second input, made of the new gradient times `g`, and of that input.
pub(crate) fn in_other(
    backward: &mut Backward<'_>,
    emit: impl FnOnce(&mut Backward<'_>, Operand, Operand) -> Result<Operand, OpError>,
) -> Result<(), OpError> {
    let (g, other) = (backward.input(0), backward.input(1));
    set_reduced(backward, 1, |backward, grad| {
        let product = backward.emit_one(Mul, &[grad, g])?;
        emit(backward, product, other)
    })
}

/// Says that the gradient of the `i`-th input is zero everywhere: one zero, seen in the input's shape.
pub(crate) fn no_slope(backward: &mut Backward<'_>, i: usize) -> Result<(), OpError> {
    if backward.grad(0).is_none() || !backward.needs(i) {
        return Ok(());
    }
    let spec = backward.input(i).spec;
    let zero = zero(backward, spec.dtype)?;
    let layout = zero.spec.layout.expand(spec.shape());
    backward.set(
        i,
        layout.map_or(zero.clone(), |layout| zero.with_layout(layout)),
    );
    Ok(())
}

/// A zero of no dimensions.
pub(crate) fn zero(backward: &mut Backward<'_>, dtype: DType) -> Result<Operand, OpError> {
    let (value, shape) = (0.0, Shape::scalar());
    let zero = Full {
        value,
        dtype,
        shape,
    };
    backward.emit_one(zero, &[])
}

/// The gradient of an input of this shape that was broadcast: summed over its copies.
pub(crate) fn reduce_to(
    backward: &mut Backward<'_>,
    grad: Operand,
    shape: &Shape,
) -> Result<Operand, OpError> {
    if grad.shape() == shape {
        return Ok(grad);
    }
    let shape = shape.clone();
    backward.emit_one(SumTo { shape }, &[grad])
}

/// Emits the product of two operands.
pub(crate) fn times(
    backward: &mut Backward<'_>,
    a: &Operand,
    b: &Operand,
) -> Result<Operand, OpError> {
    backward.emit_one(Mul, &[a.clone(), b.clone()])
}

/// Adds to what was set for the `i`-th input.
pub(crate) fn add_result(
    backward: &mut Backward<'_>,
    i: usize,
    grad: Operand,
) -> Result<(), OpError> {
    let sum = match backward.result(i) {
        Some(so_far) => backward.emit_one(Add, &[so_far, grad])?,
        None => grad,
    };
    backward.set(i, sum);
    Ok(())
}

/// The sum along a dimension, which stays.
pub(crate) fn line_sum(
    backward: &mut Backward<'_>,
    x: Operand,
    dim: usize,
) -> Result<Operand, OpError> {
    let (dims, keepdim) = (vec![dim], true);
    backward.emit_one(Sum { dims, keepdim }, &[x])
}
