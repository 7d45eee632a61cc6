//! Convolutions of sequences and of images.

use super::Module;
use crate::engine::Engine;
use crate::error::usage_error;
use crate::tensor::Tensor;
use crate::tensor::parameter::Parameter;
use crate::{self as highwater, Result};
use highwater_graph::Location;
use highwater_ops::ConvSettings;

/// A convolution over `D` dimensions: see [`Conv1d`] and [`Conv2d`].
#[derive(Debug, Clone, Module)]
pub struct Conv<const D: usize> {
    /// `[out, in / groups, ..kernel]`.
    pub weight: Parameter,
    /// `[out]`.
    pub bias: Option<Parameter>,
    #[module(skip)]
    settings: ConvSettings<D>,
}

/// `torch.nn.Conv1d`: `[N, C, L]` or `[C, L]`.
pub type Conv1d = Conv<1>;
/// `torch.nn.Conv2d`: `[N, C, H, W]` or `[C, H, W]`.
///
/// ```
/// use highwater::nn::{Conv2d, ConvSettings};
/// use highwater::prelude::*;
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let settings = ConvSettings { stride: [2, 2], padding: [1, 1], ..Default::default() };
/// let conv = Conv2d::new(&engine, 3, 8, [3, 3], settings, true)?;
/// let x = Tensor::randn(&engine, [2, 3, 32, 32])?;
/// assert_eq!(conv.forward(&x)?.dims(), [2, 8, 16, 16]);
/// # Ok(())
/// # }
/// ```
pub type Conv2d = Conv<2>;

/// A transposed convolution over `D` dimensions: see [`ConvTranspose1d`] and [`ConvTranspose2d`].
#[derive(Debug, Clone, Module)]
pub struct ConvTranspose<const D: usize> {
    /// `[in, out / groups, ..kernel]`.
    pub weight: Parameter,
    /// `[out]`.
    pub bias: Option<Parameter>,
    #[module(skip)]
    settings: ConvSettings<D>,
    #[module(skip)]
    output_padding: [usize; D],
}

/// `torch.nn.ConvTranspose1d`: `[N, C, L]` or `[C, L]`.
pub type ConvTranspose1d = ConvTranspose<1>;
/// `torch.nn.ConvTranspose2d`: `[N, C, H, W]` or `[C, H, W]`.
pub type ConvTranspose2d = ConvTranspose<2>;

/// A weight of rows, columns and a kernel, and a bias, within `1 / sqrt(columns elements)`, as PyTorch's
/// `kaiming_uniform_(a=sqrt(5))` has it.
#[track_caller]
fn drawn<const D: usize>(
    engine: &Engine,
    [rows, columns]: [usize; 2],
    kernel: [usize; D],
    bias: Option<usize>,
) -> Result<(Parameter, Option<Parameter>)> {
    let terms = columns * kernel.iter().product::<usize>();
    let bound = 1.0 / (terms.max(1) as f32).sqrt();
    let shape: Vec<usize> = [rows, columns].into_iter().chain(kernel).collect();
    let weight = Parameter::uniform(engine, shape, bound)?;
    let bias = bias.map(|outputs| Parameter::uniform(engine, [outputs], bound));
    Ok((weight, bias.transpose()?))
}

/// Checks that channels are made of groups.
#[track_caller]
fn check_groups(name: &str, groups: usize, inputs: usize, outputs: usize) -> Result<()> {
    if groups > 0 && inputs.is_multiple_of(groups) && outputs.is_multiple_of(groups) {
        return Ok(());
    }
    let message = format!(
        "{name}: groups must divide the {inputs} channels that come in and the {outputs} that go out, \
         which {groups} does not"
    );
    Err(usage_error(message, Location::caller()))
}

impl<const D: usize> Conv<D> {
    /// Weight and bias uniform within `1 / sqrt(inputs / groups * elements of the kernel)`, as in PyTorch.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if groups do not divide the channels; [`crate::Error::State`] if there is no
    /// room.
    #[track_caller]
    pub fn new(
        engine: &Engine,
        inputs: usize,
        outputs: usize,
        kernel: [usize; D],
        settings: ConvSettings<D>,
        bias: bool,
    ) -> Result<Self> {
        check_groups("conv", settings.groups, inputs, outputs)?;
        let extents = [outputs, inputs / settings.groups];
        let (weight, bias) = drawn(engine, extents, kernel, bias.then_some(outputs))?;
        Ok(Self {
            weight,
            bias,
            settings,
        })
    }

    /// How it moves.
    pub fn settings(&self) -> ConvSettings<D> {
        self.settings
    }
}

impl Conv1d {
    /// `[N, in, L]` to `[N, out, L']`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the channels differ, or the kernel is larger than what it moves over.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.conv1d(&self.weight, self.bias.as_deref(), self.settings)
    }
}

impl Conv2d {
    /// `[N, in, H, W]` to `[N, out, H', W']`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the channels differ, or the kernel is larger than what it moves over.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.conv2d(&self.weight, self.bias.as_deref(), self.settings)
    }
}

impl<const D: usize> ConvTranspose<D> {
    /// Weight and bias uniform within `1 / sqrt(outputs / groups * elements of the kernel)`, as in PyTorch.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if groups do not divide the channels; [`crate::Error::State`] if there is no
    /// room.
    #[track_caller]
    pub fn new(
        engine: &Engine,
        inputs: usize,
        outputs: usize,
        kernel: [usize; D],
        settings: ConvSettings<D>,
        output_padding: [usize; D],
        bias: bool,
    ) -> Result<Self> {
        check_groups("conv_transpose", settings.groups, inputs, outputs)?;
        let extents = [inputs, outputs / settings.groups];
        let (weight, bias) = drawn(engine, extents, kernel, bias.then_some(outputs))?;
        Ok(Self {
            weight,
            bias,
            settings,
            output_padding,
        })
    }
}

impl ConvTranspose1d {
    /// `[N, in, L]` to `[N, out, L']`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the channels differ.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [more] = self.output_padding;
        x.conv_transpose1d(&self.weight, self.bias.as_deref(), self.settings, more)
    }
}

impl ConvTranspose2d {
    /// `[N, in, H, W]` to `[N, out, H', W']`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the channels differ.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let bias = self.bias.as_deref();
        x.conv_transpose2d(&self.weight, bias, self.settings, self.output_padding)
    }
}
