//! Gradients beside finite differences, as a test of one's own operations.

use crate::engine::Engine;
use crate::error::usage_error;
use crate::tensor::Tensor;
use crate::tensor::grad::{GradOptions, grad_of_used};
use crate::{Error, Result};
use highwater_graph::{DType, Location, Shape};
use highwater_ops::philox;

/// How [`gradcheck`] compares; PyTorch's defaults.
#[derive(Debug, Clone, Copy)]
pub struct GradcheckOptions {
    /// The step of differences.
    pub eps: f64,
    /// How far a gradient may be off.
    pub atol: f64,
    /// The same as a share of the difference.
    pub rtol: f64,
}

impl Default for GradcheckOptions {
    fn default() -> Self {
        Self {
            eps: 1e-6,
            atol: 1e-5,
            rtol: 1e-3,
        }
    }
}

/// Compares the gradients of `f` with central differences at `inputs`, which are `F64`: as
/// `torch.autograd.gradcheck`. Of what `f` answers, a weighted sum is differentiated, with weights of no
/// pattern. `f` is called twice for each element of an input, and is to answer the same for the same inputs.
///
/// # Errors
/// [`Error::Usage`] that names the input, the element, the gradient and the difference, for one that is
/// further off than `options` say; for inputs of another dtype; whatever `f` refuses.
///
/// ```
/// use highwater::{Tensor, gradcheck, prelude::*};
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let x = Tensor::from_slice(&engine, &[0.5_f64, -1.0, 2.0], [3])?;
/// gradcheck(|x| x[0].tanh()?.mul(&x[0]), &[x], Default::default())?;
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn gradcheck(
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[Tensor],
    options: GradcheckOptions,
) -> Result<()> {
    let location = Location::caller();
    let points = Points::of(inputs, location)?;
    let leaves = points.leaves()?;
    let value = projected(&f(&leaves)?)?;
    let grads = grad_of_used(&[&value], &references(&leaves), GradOptions::default())?;
    points.compare(&grads, |x| projected(&f(x)?), options, location)
}

/// Compares gradients of gradients with differences of gradients, as `torch.autograd.gradgradcheck`:
/// [`gradcheck`] of a weighted sum of the gradients that `f` has at `inputs`.
///
/// # Errors
/// As [`gradcheck`]; an operation without a second gradient.
#[track_caller]
pub fn gradgradcheck(
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[Tensor],
    options: GradcheckOptions,
) -> Result<()> {
    let location = Location::caller();
    let points = Points::of(inputs, location)?;
    let slope = |leaves: &[Tensor]| {
        let value = projected(&f(leaves)?)?;
        let create = GradOptions {
            create_graph: true,
            ..GradOptions::default()
        };
        let grads = grad_of_used(&[&value], &references(leaves), create)?;
        let mut sum: Option<Tensor> = None;
        for grad in grads.iter().flatten() {
            let part = projected(grad)?;
            sum = Some(match sum {
                Some(sum) => sum.add(&part)?,
                None => part,
            });
        }
        let nothing = || usage_error("gradgradcheck: the function depends on no input", location);
        sum.ok_or_else(nothing)
    };
    let leaves = points.leaves()?;
    let sum = slope(&leaves)?;
    // A function that is linear has no second gradient.
    let grads = if sum.requires_grad()? {
        grad_of_used(&[&sum], &references(&leaves), GradOptions::default())?
    } else {
        vec![None; leaves.len()]
    };
    points.compare(&grads, slope, options, location)
}

fn references(tensors: &[Tensor]) -> Vec<&Tensor> {
    tensors.iter().collect()
}

/// The sum of the elements, each times a number of its own.
fn projected(value: &Tensor) -> Result<Tensor> {
    let mut weights = vec![0.0; value.shape().numel()];
    philox::fill_normal(0x6772_6164, 0, &mut weights);
    let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
    let weights = Tensor::from_slice(value.engine(), &weights, value.shape().clone())?;
    value.mul(&weights)?.sum()
}

/// The numbers at which gradients are taken.
struct Points {
    engine: Engine,
    inputs: Vec<(Shape, Vec<f64>)>,
}

impl Points {
    fn of(inputs: &[Tensor], location: Location) -> Result<Self> {
        let other = inputs.iter().find(|input| input.dtype() != DType::F64);
        let [first, ..] = inputs else {
            return Err(usage_error("gradcheck: there are no inputs", location));
        };
        if let Some(input) = other {
            let message = format!(
                "gradcheck: inputs are float64, in which differences tell, not {}",
                input.dtype()
            );
            return Err(usage_error(message, location));
        }
        let points = inputs
            .iter()
            .map(|input| Ok((input.shape().clone(), input.to_vec()?)));
        Ok(Self {
            engine: first.engine().clone(),
            inputs: points.collect::<Result<_>>()?,
        })
    }

    /// Tensors of the numbers that want gradients.
    fn leaves(&self) -> Result<Vec<Tensor>> {
        let inputs = self.inputs.iter();
        let leaf = |(shape, data): &(Shape, Vec<f64>)| {
            Tensor::from_slice(&self.engine, data, shape.clone())?.requires_grad_()
        };
        inputs.map(leaf).collect()
    }

    /// The value of `f` with one number changed.
    fn moved(
        &mut self,
        (input, element): (usize, usize),
        by: f64,
        f: &impl Fn(&[Tensor]) -> Result<Tensor>,
    ) -> Result<f64> {
        let before = self.inputs[input].1[element];
        self.inputs[input].1[element] = before + by;
        let value = self.leaves().and_then(|leaves| f(&leaves)?.to_vec::<f64>());
        self.inputs[input].1[element] = before;
        Ok(value?[0])
    }

    fn compare(
        mut self,
        grads: &[Option<Tensor>],
        f: impl Fn(&[Tensor]) -> Result<Tensor>,
        options: GradcheckOptions,
        location: Location,
    ) -> Result<()> {
        let GradcheckOptions { eps, atol, rtol } = options;
        for (i, grad) in grads.iter().enumerate() {
            let count = self.inputs[i].1.len();
            let grad = match grad {
                Some(grad) => grad.to_vec::<f64>()?,
                None => vec![0.0; count],
            };
            for (element, grad) in grad.into_iter().enumerate() {
                let above = self.moved((i, element), eps, &f)?;
                let below = self.moved((i, element), -eps, &f)?;
                let difference = (above - below) / (2.0 * eps);
                // Written so that a NaN is no agreement.
                let agrees = (grad - difference).abs() <= atol + rtol * difference.abs();
                if !agrees {
                    return Err(disagreement((i, element), grad, difference, location));
                }
            }
        }
        Ok(())
    }
}

fn disagreement(
    (input, element): (usize, usize),
    grad: f64,
    difference: f64,
    location: Location,
) -> Error {
    let message = format!(
        "gradcheck: input {input} has at its element {element} the gradient {grad}, and differences say \
         {difference}"
    );
    usage_error(message, location)
}
