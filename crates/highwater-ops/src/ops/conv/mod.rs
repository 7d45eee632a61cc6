//! Convolutions: `conv2d`, `conv_transpose2d` and `conv2d_weight`.
//!
//! Each is linear in each of two factors, and the gradients of one are the other two: so they have
//! gradients of every order. Images are `[N, C, H, W]`; sums are products of matrices, in `f32`, whose
//! factors are made of pixels as they are packed: no matrix of patches is ever there.

mod cpu;
mod depthwise;
mod patches;
mod reference;
mod samples;
mod settings;

pub use settings::ConvSettings;

use crate::Entry;
use crate::Sum;
use crate::kernels::checks::one_float_dtype;
use crate::kernels::pointwise::held_bytes;
use crate::kernels::rows::{Precise, rows_of_floats};
use highwater_graph::{Autocast, Backward, Cost, Op, OpError, Operand, Spec};
use settings::{Images, Sides, check_weight, images};
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[CONV, TRANSPOSE, WEIGHT];

/// `y[n, o, i, j] = sum over c, u, v of x[n, c, i s + u d - p, j s + v d - p] w[o, c, u, v] + b[o]`, where
/// `x` is 0 outside: as `torch.nn.functional.conv2d`.
///
/// Inputs `x: [N, C, H, W]`, `w: [O, C / groups, KH, KW]` and, with `bias`, `b: [O]`, of one float dtype and
/// any strides. Output `[N, O, HO, WO]` with `HO = (H + 2 p - d (KH - 1) - 1) / s + 1`, rounded down. The
/// channels of a group are summed for the outputs of that group alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv2d {
    /// Steps, zeros around, and groups.
    pub settings: ConvSettings,
    /// Whether there is a third input to add.
    pub bias: bool,
}

/// The gradient of [`Conv2d`]'s `x`, as an operation of its own: `torch.nn.functional.conv_transpose2d`.
///
/// Inputs `x: [N, C, H, W]`, `w: [C, O / groups, KH, KW]` and, with `bias`, `b: [O]`, of one float dtype and
/// any strides. Output `[N, O, HO, WO]` with `HO = (H - 1) s - 2 p + d (KH - 1) + output_padding + 1`. Where
/// `s` is above 1, pixels are computed in `s s` classes, each from the elements of the weight that reach it:
/// no multiplication by a zero that lies between pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvTranspose2d {
    /// Steps, what the output lacks around, and groups.
    pub settings: ConvSettings,
    /// Rows and columns that are added below and on the right, fewer than the larger of stride and
    /// dilation.
    pub output_padding: [usize; 2],
    /// Whether there is a third input to add.
    pub bias: bool,
}

/// The gradient of [`Conv2d`]'s weight: as `torch.nn.grad.conv2d_weight`.
///
/// Inputs `x: [N, C, H, W]` and the output's gradient `[N, O, HO, WO]`, of one float dtype and any strides.
/// Output `[O, C / groups, KH, KW]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv2dWeight {
    /// Those of the convolution.
    pub settings: ConvSettings,
    /// `KH` and `KW`.
    pub kernel: [usize; 2],
}

const CONV: Entry = Entry {
    name: "conv2d",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::ConvKernel::<T>(PhantomData); Precise::new(reference::conv)
    },
    reference: reference::conv,
    samples: samples::conv,
    rejects: samples::conv_rejects,
};

const TRANSPOSE: Entry = Entry {
    name: "conv_transpose2d",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::TransposeKernel::<T>(PhantomData); Precise::new(reference::transpose)
    },
    reference: reference::transpose,
    samples: samples::transpose,
    rejects: samples::transpose_rejects,
};

const WEIGHT: Entry = Entry {
    name: "conv2d_weight",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::WeightKernel::<T>(PhantomData); Precise::new(reference::weight)
    },
    reference: reference::weight,
    samples: samples::weight,
    rejects: samples::weight_rejects,
};

/// The dtype of all inputs.
fn infer_dtype(
    op: &'static str,
    inputs: &[Spec],
    bias: bool,
) -> Result<highwater_graph::DType, OpError> {
    OpError::check_arity(op, inputs, 2 + usize::from(bias))?;
    let all: SmallVec<[&Spec; 3]> = inputs.iter().collect();
    one_float_dtype(op, &all)
}

fn check_bias(op: &'static str, inputs: &[Spec], channels: usize) -> Result<(), OpError> {
    match inputs.get(2) {
        Some(bias) if bias.shape().dims() != [channels] => {
            let got = bias.shape().to_string();
            Err(OpError::shape(op, format!("a bias [{channels}]"), got))
        }
        _ => Ok(()),
    }
}

/// Two operations for each product of a pixel and an element of the weight.
fn cost(inputs: &[Spec], outputs: &[Spec], products: usize, bias: bool) -> Cost {
    Cost {
        matmul_flops: 2.0 * products as f64,
        vector_flops: f64::from(u8::from(bias)) * outputs[0].layout.numel() as f64,
        read_bytes: inputs.iter().map(held_bytes).sum(),
        written_bytes: outputs.iter().map(Spec::bytes).sum(),
    }
}

/// The gradient of a bias, if it is wanted.
fn bias_backward(backward: &mut Backward<'_>, bias: bool, grad: &Operand) -> Result<(), OpError> {
    if bias && backward.needs(2) {
        let sum = Sum {
            dims: vec![0, 2, 3],
            keepdim: false,
        };
        let grad = backward.emit_one(sum, std::slice::from_ref(grad))?;
        backward.set(2, grad);
    }
    Ok(())
}

/// The height and width of a tensor of images.
fn sides(operand: &Operand) -> Sides {
    let dims = operand.shape().dims();
    [dims[2], dims[3]]
}

impl Op for Conv2d {
    fn name(&self) -> &'static str {
        CONV.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.settings.hash(&mut &mut *hasher);
        hasher.write_u8(self.bias.into());
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let op = self.name();
        let dtype = infer_dtype(op, inputs, self.bias)?;
        self.settings.check(op)?;
        let x = images(op, &inputs[0])?;
        let weight = check_weight(op, &inputs[1])?;
        self.settings
            .check_channels(op, x.channels, weight.columns)?;
        self.settings.check_groups(op, weight.rows)?;
        check_bias(op, inputs, weight.rows)?;
        let [height, width] = self.settings.shrunk(op, x.sides, weight.sides)?;
        let shape = [x.count, weight.rows, height, width];
        Ok(smallvec![Spec::contiguous(dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        let weight = inputs[1].shape();
        let terms = weight.dims()[1..].iter().product::<usize>();
        cost(
            inputs,
            outputs,
            terms * outputs[0].layout.numel(),
            self.bias,
        )
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0) else {
            return Ok(());
        };
        let (x, w) = (backward.input(0), backward.input(1));
        let settings = self.settings;
        if backward.needs(0) {
            let op = settings.transpose(sides(&x), sides(&w));
            let dx = backward.emit_one(op, &[grad.clone(), w.clone()])?;
            backward.set(0, dx);
        }
        if backward.needs(1) {
            let kernel = sides(&w);
            let op = Conv2dWeight { settings, kernel };
            let dw = backward.emit_one(op, &[x, grad.clone()])?;
            backward.set(1, dw);
        }
        bias_backward(backward, self.bias, &grad)
    }
}

impl Op for ConvTranspose2d {
    fn name(&self) -> &'static str {
        TRANSPOSE.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.settings.hash(&mut &mut *hasher);
        self.output_padding.hash(&mut &mut *hasher);
        hasher.write_u8(self.bias.into());
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let op = self.name();
        let dtype = infer_dtype(op, inputs, self.bias)?;
        self.settings.check(op)?;
        let x = images(op, &inputs[0])?;
        let weight = check_weight(op, &inputs[1])?;
        if x.channels != weight.rows {
            let expected = format!("a weight [{}, ..] for as many channels", x.channels);
            let got = inputs[1].shape().to_string();
            return Err(OpError::shape(op, expected, got));
        }
        self.settings.check_groups(op, x.channels)?;
        let channels = weight.columns * self.settings.groups;
        check_bias(op, inputs, channels)?;
        let [height, width] =
            (self.settings).grown(op, x.sides, weight.sides, self.output_padding)?;
        let shape = [x.count, channels, height, width];
        Ok(smallvec![Spec::contiguous(dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        let weight = inputs[1].shape();
        let terms = weight.dims()[1..].iter().product::<usize>();
        cost(inputs, outputs, terms * inputs[0].layout.numel(), self.bias)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0) else {
            return Ok(());
        };
        let (x, w) = (backward.input(0), backward.input(1));
        let settings = self.settings;
        // What is padded by a whole step or more sees no pixel.
        let seen = settings.seen(sides(&x), sides(&w), self.output_padding);
        let layout = grad.spec.layout.narrow(2, 0, seen[0]);
        let layout = layout.and_then(|layout| layout.narrow(3, 0, seen[1]));
        let seen = layout.map_or_else(|| grad.clone(), |layout| grad.with_layout(layout));
        if backward.needs(0) {
            let op = Conv2d {
                settings,
                bias: false,
            };
            let dx = backward.emit_one(op, &[seen.clone(), w.clone()])?;
            backward.set(0, dx);
        }
        if backward.needs(1) {
            let kernel = sides(&w);
            let op = Conv2dWeight { settings, kernel };
            let dw = backward.emit_one(op, &[seen, x])?;
            backward.set(1, dw);
        }
        bias_backward(backward, self.bias, &grad)
    }
}

impl Op for Conv2dWeight {
    fn name(&self) -> &'static str {
        WEIGHT.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.settings.hash(&mut &mut *hasher);
        self.kernel.hash(&mut &mut *hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let op = self.name();
        let dtype = infer_dtype(op, inputs, false)?;
        self.settings.check(op)?;
        let (x, g) = (images(op, &inputs[0])?, images(op, &inputs[1])?);
        self.settings.check_groups(op, x.channels)?;
        self.settings.check_groups(op, g.channels)?;
        let expected = Images {
            sides: self.settings.shrunk(op, x.sides, self.kernel)?,
            ..g
        };
        if (expected.count, expected.sides) != (x.count, g.sides) {
            let [height, width] = expected.sides;
            let expected = format!("a gradient [{}, O, {height}, {width}]", x.count);
            let got = inputs[1].shape().to_string();
            return Err(OpError::shape(op, expected, got));
        }
        let [height, width] = self.kernel;
        let shape = [g.channels, x.channels / self.settings.groups, height, width];
        Ok(smallvec![Spec::contiguous(dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        let weight = outputs[0].shape();
        let terms = weight.dims()[1..].iter().product::<usize>();
        cost(inputs, outputs, terms * inputs[1].layout.numel(), false)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0) else {
            return Ok(());
        };
        let (x, g) = (backward.input(0), backward.input(1));
        let settings = self.settings;
        if backward.needs(0) {
            let op = settings.transpose(sides(&x), self.kernel);
            let dx = backward.emit_one(op, &[g.clone(), grad.clone()])?;
            backward.set(0, dx);
        }
        if backward.needs(1) {
            let op = Conv2d {
                settings,
                bias: false,
            };
            let dg = backward.emit_one(op, &[x, grad])?;
            backward.set(1, dg);
        }
        Ok(())
    }
}
