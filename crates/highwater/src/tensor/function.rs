//! Functions with a backward of the user's own.

use crate::Result;
use crate::engine::Engine;
use crate::error::usage_error;
use crate::pending::context::{is_grad_enabled, no_grad, site};
use crate::pending::function::{Called, Function, Through};
use crate::pending::handle::Handle;
use crate::tensor::{Tensor, check_one_engine};
use highwater_graph::{Location, Phase};
use std::sync::Arc;

/// What the backward of [`custom_gradient`] is given, as `ctx` of `torch.autograd.Function`. Its tensors have no values
/// yet.
#[derive(Debug)]
pub struct FunctionContext {
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    grads: Vec<Option<Tensor>>,
    needs: Vec<bool>,
}

impl FunctionContext {
    /// What went in, in its order.
    pub fn inputs(&self) -> &[Tensor] {
        &self.inputs
    }

    /// What came out, in its order.
    pub fn outputs(&self) -> &[Tensor] {
        &self.outputs
    }

    /// The gradient of the `i`-th output, in its shape and dtype; `None` where no loss depends on it, or there is no
    /// such output.
    pub fn grad(&self, i: usize) -> Option<&Tensor> {
        self.grads.get(i)?.as_ref()
    }

    /// Whether the `i`-th input wants a gradient, as `ctx.needs_input_grad`. What is returned for another is dropped.
    pub fn needs(&self, i: usize) -> bool {
        self.needs.get(i).is_some_and(|&needs| needs)
    }
}

/// Applies `forward` to `inputs`, with `backward` in the place of its gradient, as a `torch.autograd.Function`.
///
/// `forward` is called once, now, and nothing in it is differentiated. It returns any number of tensors; gradients come
/// back through those of a float dtype. `backward` returns a gradient for each input, in the input's shape and dtype,
/// or `None`. It finds all that it may need in its [`FunctionContext`]. What else it needs of the forward is returned
/// by `forward` as one more output. (Tensors that the closure captures work too, but what they come of stays until the
/// step ends.)
///
/// ```
/// use highwater::{custom_gradient, prelude::*};
///
/// /// Rounds, with the gradient of what is not rounded.
/// fn straight_through(x: &Tensor) -> Result<Tensor> {
///     let rounded = custom_gradient(
///         &[x],
///         |x| Ok(vec![x[0].round()?]),
///         |of| Ok(vec![of.grad(0).cloned()]),
///     )?;
///     Ok(rounded[0].clone())
/// }
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().arena(1 << 20).build()?;
/// let w = Parameter::new(&engine, [2], |w| w.copy_from_slice(&[0.4, 2.6]))?;
/// straight_through(&w)?.square()?.sum()?.backward()?;
/// assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [0.0, 6.0]);
/// # Ok(())
/// # }
/// ```
///
/// `backward` is called once for each backward that reaches an output, while the graph of that is recorded. It must have
/// nothing computed itself: its tensors have no values yet. What it makes is planned like everything else: kept,
/// recomputed or offloaded, without a call of the closure. Without `create_graph` it runs under
/// [`no_grad`](crate::no_grad). With it, its operations have gradients in turn, so that a backward made of
/// differentiable operations has a second gradient. Where the inputs need no gradient, or under `no_grad`, the outputs
/// are those of `forward`.
///
/// # Errors
/// Those of `forward`; [`crate::Error::Usage`] without inputs; [`crate::Error::OtherEngine`]. `backward()` returns the
/// errors of the closure, and one where it has something computed, returns another number of gradients, or one of
/// another shape or dtype.
#[track_caller]
pub fn custom_gradient<F, B>(inputs: &[&Tensor], forward: F, backward: B) -> Result<Vec<Tensor>>
where
    F: FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    B: Fn(&FunctionContext) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
{
    let location = Location::caller();
    let Some(first) = inputs.first() else {
        let message = "custom_gradient(): a function without inputs has no gradient";
        return Err(usage_error(message, location));
    };
    check_one_engine("custom_gradient()", inputs, location)?;
    let given: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
    let outputs = no_grad(|| forward(&given))?;
    let mut all = vec![*first];
    all.extend(&outputs);
    check_one_engine("custom_gradient(): the outputs", &all, location)?;
    drop(given);
    if !is_grad_enabled() {
        return Ok(outputs);
    }
    let dense = |output: &Tensor| no_grad(|| output.contiguous());
    let outputs = outputs.iter().map(dense).collect::<Result<Vec<_>>>()?;
    pass_through(
        first.engine(),
        inputs,
        outputs,
        called(first.engine(), backward),
        location,
    )
}

/// The closure by handles. It is in the engine's graph, so that it must not hold the engine.
fn called<B>(
    engine: &Engine,
    backward: B,
) -> impl Fn(Called) -> Result<Vec<Option<Arc<Handle>>>> + Send + Sync + 'static
where
    B: Fn(&FunctionContext) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
{
    let weak = Arc::downgrade(&engine.0);
    move |called| {
        let Some(engine) = weak.upgrade().map(Engine) else {
            return Ok(Vec::new());
        };
        let tensor = |handle| Tensor::from_handle(&engine, handle);
        let context = FunctionContext {
            inputs: called.inputs.into_iter().map(tensor).collect(),
            outputs: called.outputs.into_iter().map(tensor).collect(),
            grads: (called.grads.into_iter())
                .map(|grad| grad.map(tensor))
                .collect(),
            needs: called.needs,
        };
        let grads = backward(&context)?;
        let mut all = vec![&context.inputs[0]];
        all.extend(grads.iter().flatten());
        check_one_engine("gradients of custom_gradient()", &all, Location::caller())?;
        Ok(grads
            .into_iter()
            .map(|grad| grad.map(|grad| grad.handle))
            .collect())
    }
}

/// The outputs as the graph is to have them, if a gradient can come back through them.
fn pass_through(
    engine: &Engine,
    inputs: &[&Tensor],
    mut outputs: Vec<Tensor>,
    call: impl Fn(Called) -> Result<Vec<Option<Arc<Handle>>>> + Send + Sync + 'static,
    location: Location,
) -> Result<Vec<Tensor>> {
    let mut locked = engine.lock();
    let state = &mut *locked;
    let operands = |state: &mut crate::engine::state::State, tensors: &[&Tensor]| {
        let operands = tensors.iter().map(|tensor| tensor.operand(state));
        operands.collect::<Result<Vec<_>>>()
    };
    let inputs = operands(state, inputs)?;
    if !inputs.iter().any(|input| input.requires_grad) {
        return Ok(outputs);
    }
    let made = operands(state, &outputs.iter().collect::<Vec<_>>())?;
    let mut saved = |operand| Handle::of_graph(&mut state.pending, operand, location);
    let function = Arc::new(Function {
        inputs: inputs.into_iter().map(&mut saved).collect(),
        outputs: made.iter().cloned().map(&mut saved).collect(),
        call: Box::new(call),
    });
    for (output, mut operand) in made.into_iter().enumerate() {
        if !operand.spec.dtype.is_float() {
            continue;
        }
        operand.requires_grad = true;
        let function = Arc::clone(&function);
        let through = Arc::new(Through { function, output });
        let site = site(location, Phase::Forward);
        let passed = engine.apply(state, through, &[operand], &site)?.remove(0);
        outputs[output] = Tensor::pending(engine, state, passed, location);
    }
    Ok(outputs)
}
