//! Gradients as tensors: of any results in any inputs, and of gradients in turn.

use crate::engine::backward::grad as gradients;
use crate::error::usage_error;
use crate::tensor::{Tensor, check_one_engine};
use crate::{Error, Result};
use highwater_graph::Location;

/// How [`grad_with`] makes gradients.
#[derive(Debug, Clone, Copy, Default)]
pub struct GradOptions<'a> {
    /// The gradient of each output, in its shape and dtype; one where outputs are single numbers and none
    /// are given.
    pub grad_outputs: Option<&'a [&'a Tensor]>,
    /// Whether gradients flow back through the results in turn: for penalties on gradients, and second
    /// derivatives.
    pub create_graph: bool,
}

/// The gradients of `output`, a single number, in `inputs`: parameters, tensors with `requires_grad_()`, or
/// results of operations. As `torch.autograd.grad`.
///
/// They are tensors like others, nodes that nothing has computed yet, and are added to no parameter's
/// gradient. The graph stays: `backward()` or another `grad` may follow.
///
/// # Errors
/// [`Error::Usage`] for an input that `output` does not depend on, that requires no gradient, or that is a
/// view of another tensor; an operation without a gradient.
///
/// ```
/// use highwater::{grad, prelude::*};
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let x = engine.tensor(&[1.0, 2.0, 3.0], [3])?.requires_grad_()?;
/// let y = x.square()?.sum()?;
/// let [dx] = &grad(&y, &[&x])?[..] else { unreachable!() };
/// assert_eq!(dx.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn grad(output: &Tensor, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let location = Location::caller();
    let grads = grads_at(&[output], inputs, GradOptions::default(), location)?;
    all(grads, location)
}

/// As [`grad`] for several outputs, whose gradients add up, with gradients that gradients may flow back
/// through.
///
/// ```
/// use highwater::{GradOptions, grad_with, prelude::*};
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let x = engine.tensor(&[1.0, 2.0], [2])?.requires_grad_()?;
/// let y = x.square()?.mul(&x)?.sum()?;
/// let options = GradOptions { create_graph: true, ..Default::default() };
/// // 3 x^2, whose sum of squares has the gradient 36 x^3.
/// let dx = grad_with(&[&y], &[&x], options)?.remove(0);
/// dx.square()?.sum()?.backward()?;
/// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [36.0, 288.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`grad`]; [`Error::Usage`] for gradients of outputs that do not fit them.
#[track_caller]
pub fn grad_with(
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    options: GradOptions<'_>,
) -> Result<Vec<Tensor>> {
    let location = Location::caller();
    all(grads_at(outputs, inputs, options, location)?, location)
}

/// As [`grad_with`], with none for an input that no output depends on: `allow_unused=True`.
///
/// # Errors
/// As [`grad_with`], otherwise.
#[track_caller]
pub fn grad_of_used(
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    options: GradOptions<'_>,
) -> Result<Vec<Option<Tensor>>> {
    grads_at(outputs, inputs, options, Location::caller())
}

fn grads_at(
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    options: GradOptions<'_>,
    location: Location,
) -> Result<Vec<Option<Tensor>>> {
    let given = options.grad_outputs;
    if outputs.is_empty() || given.is_some_and(|given| given.len() != outputs.len()) {
        let message = format!(
            "grad(): {} outputs and {} gradients of outputs",
            outputs.len(),
            given.map_or(0, <[_]>::len)
        );
        return Err(usage_error(message, location));
    }
    let all: Vec<&Tensor> = [outputs, inputs, given.unwrap_or_default()].concat();
    check_one_engine("grad()", &all, location)?;
    let engine = &outputs[0].engine;
    let seed = |i: usize| given.map(|given| &given[i].handle);
    let outputs = outputs.iter().enumerate();
    let outputs: Vec<_> = outputs
        .map(|(i, output)| (&output.handle, seed(i)))
        .collect();
    let inputs: Vec<_> = inputs.iter().map(|input| &input.handle).collect();
    let grads = gradients(engine, &outputs, &inputs, options.create_graph, location)?;
    let tensor = |handle| Tensor::from_handle(engine, handle);
    Ok(grads.into_iter().map(|grad| grad.map(tensor)).collect())
}

fn all(grads: Vec<Option<Tensor>>, location: Location) -> Result<Vec<Tensor>> {
    let unused = |i: usize| -> Error {
        let message = format!(
            "grad(): no output depends on input {i}: leave it out, or ask with grad_of_used()"
        );
        usage_error(message, location)
    };
    let grads = grads.into_iter().enumerate();
    grads
        .map(|(i, grad)| grad.ok_or_else(|| unused(i)))
        .collect()
}
