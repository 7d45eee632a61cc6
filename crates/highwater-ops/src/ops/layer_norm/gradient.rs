//! What the gradients of all norms share.

use crate::kernels::checks::{check_shape, one_float_dtype};
use crate::kernels::float::sums_in;
use highwater_graph::{Backward, Op, OpError, Operand, Shape, Spec};
use smallvec::SmallVec;

/// Checks what is added to a variance.
pub(crate) fn check_eps(op: &'static str, eps: f64) -> Result<(), OpError> {
    if eps > 0.0 && eps.is_finite() {
        return Ok(());
    }
    Err(OpError::Attribute {
        op,
        attribute: "eps",
        expected: "above 0 and finite".to_owned(),
        got: eps.to_string(),
    })
}

/// Emits the gradients that the first output's brings. `op` makes the operation from whether there is a weight and
/// which gradients are wanted. `positions` are those of `x`, the weight and, if there may be one, the bias.
pub(crate) fn emit_first<O: Op, const N: usize>(
    backward: &mut Backward<'_>,
    positions: [usize; N],
    statistics: impl IntoIterator<Item = Operand>,
    op: impl FnOnce(bool, [bool; N]) -> O,
) -> Result<(), OpError> {
    let wanted = positions.map(|i| backward.inputs() > i && backward.needs(i));
    let Some(grad) = backward.grad(0).filter(|_| wanted.contains(&true)) else {
        return Ok(());
    };
    let affine = backward.inputs() > positions[1];
    let mut inputs = vec![grad, backward.input(0)];
    inputs.extend(statistics);
    inputs.extend(affine.then(|| backward.input(positions[1])));
    let grads = backward.emit(op(affine, wanted), &inputs)?;
    let wanted = positions.into_iter().zip(wanted);
    for ((i, _), grad) in wanted.filter(|&(_, wanted)| wanted).zip(grads) {
        backward.set(i, grad);
    }
    Ok(())
}

/// The outputs of that operation, whose inputs are `g`, `x`, so many statistics and, if `affine`, a weight.
/// `shapes` returns the shape of the statistics and the length of the weight.
pub(crate) fn infer_first<const N: usize>(
    op: &'static str,
    inputs: &[Spec],
    (statistics, affine, wanted): (usize, bool, [bool; N]),
    shapes: impl FnOnce(&Spec) -> Result<(Shape, usize), OpError>,
) -> Result<SmallVec<[Spec; 2]>, OpError> {
    let weight = 2 + statistics;
    OpError::check_arity(op, inputs, weight + usize::from(affine))?;
    let mut all: SmallVec<[&Spec; 5]> = inputs.iter().collect();
    let statistics: SmallVec<[&Spec; 2]> = all.drain(2..weight).collect();
    let dtype = one_float_dtype(op, &all)?;
    let (of_statistics, width) = shapes(&inputs[1])?;
    let x = inputs[1].shape();
    check_shape(op, &inputs[0], x)?;
    for input in statistics {
        OpError::check_dtype(op, input, sums_in(dtype))?;
        check_shape(op, input, &of_statistics)?;
    }
    for weight in &inputs[weight..] {
        check_shape(op, weight, &[width])?;
    }
    let of_width = Shape::from([width]);
    let wanted = wanted.into_iter().enumerate();
    Ok(wanted
        .filter(|&(_, wanted)| wanted)
        .map(|(i, _)| if i == 0 { x } else { &of_width })
        .map(|shape| Spec::contiguous(dtype, shape.clone()))
        .collect())
}
