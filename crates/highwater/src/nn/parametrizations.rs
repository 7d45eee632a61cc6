//! Weights that are computed from others: weight norm and spectral norm.

use super::{Mode, Module};
use crate::error::usage_error;
use crate::nn::functional::normalize;
use crate::pending::context::{no_grad, skip_init, with_parameter_dtype};
use crate::tensor::Tensor;
use crate::tensor::buffer::Buffer;
use crate::tensor::parameter::Parameter;
use crate::{self as highwater, DType, Result};
use highwater_graph::Location;

/// A weight whose length and direction are trained by themselves, as
/// `torch.nn.utils.parametrizations.weight_norm` (Salimans & Kingma, 2016): `original0` has the norms, `original1` the
/// directions, and the weight is `original0 * original1 / |original1|`. A layer that has one is a struct of your own;
/// as the field `parametrizations.weight` it has PyTorch's names.
///
/// ```
/// use highwater::nn::WeightNorm;
/// use highwater::prelude::*;
///
/// #[derive(Module)]
/// struct NormedLinear {
///     bias: Parameter,
///     #[module(rename = "parametrizations.weight")]
///     weight: WeightNorm,
/// }
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().arena(1 << 20).seed(1).build()?;
/// let plain = Linear::new(&engine, 3, 2, true)?;
/// let layer = NormedLinear {
///     weight: WeightNorm::new(&plain.weight, Some(0))?,
///     bias: plain.bias.clone().unwrap(),
/// };
/// let x = Tensor::randn(&engine, [4, 3])?;
/// let y = x.linear(&layer.weight.weight()?, Some(&layer.bias))?;
/// // The weight is what it was.
/// let off = (y - plain.forward(&x)?)?.abs()?.max()?.item()?;
/// assert!(off < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Module)]
pub struct WeightNorm {
    /// The norms: of the weight's rank, with 1 in each dimension that they are taken over.
    pub original0: Parameter,
    /// The directions, in the weight's shape.
    pub original1: Parameter,
    #[module(skip)]
    dim: Option<usize>,
}

impl WeightNorm {
    /// From a weight as it is: a norm for each index of `dim`, over all other dimensions; one for all of it with `None`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for a dimension that is not there; [`crate::Error::State`] if there is no room; what
    /// stops the weight from being read.
    #[track_caller]
    pub fn new(weight: &Parameter, dim: Option<usize>) -> Result<Self> {
        let location = Location::caller();
        check_dim(weight, dim, location)?;
        let norms = no_grad(|| norms(weight, dim))?;
        Ok(Self {
            original0: parameter_of(&norms)?,
            original1: parameter_of(weight)?,
            dim,
        })
    }

    /// The weight.
    ///
    /// # Errors
    /// [`crate::Error::Expired`] and the like.
    #[track_caller]
    pub fn weight(&self) -> Result<Tensor> {
        let scale = self.original0.div(&norms(&self.original1, self.dim)?)?;
        self.original1.mul(&scale)
    }
}

/// The norms over all dimensions but one.
fn norms(weight: &Tensor, dim: Option<usize>) -> Result<Tensor> {
    let others: Vec<usize> = (0..weight.dims().len())
        .filter(|&i| Some(i) != dim)
        .collect();
    if others.is_empty() {
        // No dimensions would be all of them.
        return weight.abs();
    }
    let norms = weight.norm_dims(2.0, &others, dim.is_some())?;
    Ok(norms)
}

/// A weight divided by its largest singular value, as `torch.nn.utils.parametrizations.spectral_norm` (Miyato et al.,
/// 2018). That is estimated by power iteration from two vectors, which are buffers: each [`SpectralNorm::weight`] in
/// training mode makes their iterations, so that it is called once for each forward. As the field
/// `parametrizations.weight` of a layer it has PyTorch's names.
///
/// ```
/// use highwater::nn::{SpectralNorm, SpectralNormOptions};
/// use highwater::prelude::*;
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().arena(1 << 20).seed(1).build()?;
/// let plain = Linear::new(&engine, 3, 2, false)?;
/// let weight = SpectralNorm::new(&plain.weight, SpectralNormOptions::default())?;
/// let y = Tensor::randn(&engine, [4, 3])?.linear(&weight.weight()?, None)?;
/// assert_eq!(y.dims(), [4, 2]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Module)]
pub struct SpectralNorm {
    /// The weight that is trained.
    pub original: Parameter,
    #[module(rename = "0._u")]
    u: Buffer,
    #[module(rename = "0._v")]
    v: Buffer,
    mode: Mode,
    #[module(skip)]
    options: SpectralNormOptions,
}

/// How a [`SpectralNorm`] is estimated; PyTorch's defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpectralNormOptions {
    /// Iterations of each forward in training mode.
    pub n_power_iterations: usize,
    /// The least norm that a vector is divided by.
    pub eps: f64,
    /// The dimension of outputs: 0, but 1 of transposed convolutions.
    pub dim: usize,
}

impl Default for SpectralNormOptions {
    fn default() -> Self {
        Self {
            n_power_iterations: 1,
            eps: 1e-12,
            dim: 0,
        }
    }
}

/// Iterations that the first vectors come of.
const FIRST_ITERATIONS: usize = 15;

impl SpectralNorm {
    /// From a weight of two dimensions or more as it is, with vectors from the engine's random numbers.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for a weight of less than two dimensions, without elements, or without the dimension;
    /// [`crate::Error::State`] if there is no room; what stops the weight from being read.
    #[track_caller]
    pub fn new(weight: &Parameter, options: SpectralNormOptions) -> Result<Self> {
        let location = Location::caller();
        check_dim(weight, Some(options.dim), location)?;
        if weight.dims().len() < 2 || weight.shape().numel() == 0 {
            let message = format!(
                "spectral norm is of matrices with elements, not of {}",
                weight.shape()
            );
            return Err(usage_error(message, location));
        }
        let original = parameter_of(weight)?;
        let engine = weight.engine();
        let (u, v) = no_grad(|| {
            let matrix = matrix(&original, options.dim)?;
            let [rows, columns] = [matrix.dims()[0], matrix.dims()[1]];
            let random = |len| normalize(&Tensor::randn(engine, [len])?, 2.0, 0, options.eps);
            let (u, v) = (random(rows)?, random(columns)?);
            iterate(&matrix, u, v, FIRST_ITERATIONS, options.eps)
        })?;
        let buffer = |x: &Tensor| {
            let values = x.to_vec::<f32>()?;
            Buffer::new(engine, x.shape().clone(), |own| {
                own.copy_from_slice(&values);
            })
        };
        Ok(Self {
            u: buffer(&u)?,
            v: buffer(&v)?,
            original,
            mode: Mode::default(),
            options,
        })
    }

    /// The weight over its norm. In training mode the vectors are brought nearer to those of the weight first.
    ///
    /// # Errors
    /// [`crate::Error::Expired`] and the like.
    #[track_caller]
    pub fn weight(&self) -> Result<Tensor> {
        let (options, matrix) = (&self.options, matrix(&self.original, self.options.dim)?);
        let (mut u, mut v) = (self.u.detach()?, self.v.detach()?);
        if self.mode.is_training() {
            let count = options.n_power_iterations;
            (u, v) = no_grad(|| iterate(&matrix, u, v, count, options.eps))?;
            self.u.assign(&u)?;
            self.v.assign(&v)?;
        }
        let length = u.mul(&product(&matrix, &v)?)?.sum()?;
        self.original.div(&length.to_dtype(self.original.dtype())?)
    }
}

/// A weight as a matrix in `F32`, whose rows are what `dim` counts.
fn matrix(weight: &Tensor, dim: usize) -> Result<Tensor> {
    let mut order = vec![dim];
    order.extend((0..weight.dims().len()).filter(|&i| i != dim));
    let rows = weight.dims()[dim];
    let columns = weight.shape().numel() / rows.max(1);
    let matrix = weight.permute(&order)?.reshape([rows, columns])?;
    matrix.to_dtype(DType::F32)
}

/// Of a matrix and a vector.
fn product(matrix: &Tensor, vector: &Tensor) -> Result<Tensor> {
    let column = vector.reshape([vector.dims()[0], 1])?;
    matrix.matmul(&column)?.squeeze(1)
}

/// Power iteration: vectors nearer to those of the largest singular value.
fn iterate(
    matrix: &Tensor,
    mut u: Tensor,
    mut v: Tensor,
    count: usize,
    eps: f64,
) -> Result<(Tensor, Tensor)> {
    let transposed = matrix.transpose(0, 1)?;
    for _ in 0..count {
        u = normalize(&product(matrix, &v)?, 2.0, 0, eps)?;
        v = normalize(&product(&transposed, &u)?, 2.0, 0, eps)?;
    }
    Ok((u, v))
}

fn check_dim(weight: &Tensor, dim: Option<usize>, location: Location) -> Result<()> {
    match dim {
        Some(dim) if dim >= weight.dims().len() => {
            let message = format!(
                "a norm along dimension {dim} of a weight {}",
                weight.shape()
            );
            Err(usage_error(message, location))
        }
        _ => Ok(()),
    }
}

/// A parameter of its own with what a tensor holds, in the tensor's dtype.
fn parameter_of(tensor: &Tensor) -> Result<Parameter> {
    let make = || Parameter::new(tensor.engine(), tensor.shape().clone(), |_| {});
    let own = with_parameter_dtype(tensor.dtype(), || skip_init(make))?;
    own.copy_from_slice(&tensor.to_dtype(DType::F32)?.to_vec::<f32>()?)?;
    Ok(own)
}
