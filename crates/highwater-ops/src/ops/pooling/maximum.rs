//! The largest element of each window.

use super::windows::{Windows, cost, sides};
use crate::kernels::checks::{check_shape, one_float_dtype};
use crate::ops::gradients;
use highwater_graph::DType::{I64, U8};
use highwater_graph::{Backward, Cost, DType, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};

/// The largest element of each window: as `torch.nn.functional.max_pool2d`, and with
/// [`Windows::Adaptive`] as `adaptive_max_pool2d`.
///
/// Input `[N, C, H, W]` of a float dtype and any layout. Outputs: the maxima `[N, C, HO, WO]`, and where in
/// its window, row by row, each lies: of equal ones the first, of NaNs the last, as a `U8` where windows
/// have up to 256 elements, else as an `I64`. Padding is never the largest. Backward reads the second
/// output alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxPool2d {
    /// Where it looks.
    pub windows: Windows,
}

/// The gradient of [`MaxPool2d`]'s input: of inputs `g` and the places of maxima, each gradient is added to
/// the element that was the largest. Its own gradient is [`MaxPool2dSelect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxPool2dBackward {
    /// Where the pool looked.
    pub windows: Windows,
    /// Height and width of the images.
    pub sides: [usize; 2],
}

/// The elements of `[N, C, H, W]` that were the largest when the second input was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxPool2dSelect {
    /// Where the pool looked.
    pub windows: Windows,
}

pub(super) const NAME: &str = "max_pool2d";
pub(super) const BACKWARD: &str = "max_pool2d_backward";
pub(super) const SELECT: &str = "max_pool2d_select";

/// Reads the attributes that the three kernels share.
pub(super) fn windows_of(op: &dyn Op) -> Windows {
    if let Some(op) = op.downcast::<MaxPool2d>() {
        return op.windows;
    }
    if let Some(op) = op.downcast::<MaxPool2dBackward>() {
        return op.windows;
    }
    (op.downcast()).map_or(Windows::Adaptive([1; 2]), |op: &MaxPool2dSelect| op.windows)
}

/// The dtype of places in windows.
fn places_in(windows: &Windows, sides: [usize; 2]) -> DType {
    if windows.most(sides) <= 256 { U8 } else { I64 }
}

impl Op for MaxPool2d {
    fn name(&self) -> &'static str {
        NAME
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.windows.hash_to(hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let op = self.name();
        OpError::check_arity(op, inputs, 1)?;
        let dtype = one_float_dtype(op, &[&inputs[0]])?;
        let shape = self.windows.infer(op, &inputs[0])?;
        let places = places_in(&self.windows, sides(inputs[0].shape()));
        Ok(smallvec![
            Spec::contiguous(dtype, shape),
            Spec::contiguous(places, shape)
        ])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        let most = self.windows.most(sides(inputs[0].shape()));
        cost(
            inputs,
            outputs,
            outputs[0].layout.numel().saturating_mul(most),
        )
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let op = MaxPool2dBackward {
            windows: self.windows,
            sides: sides(backward.input(0).shape()),
        };
        let places = backward.output(1);
        gradients::from(backward, op, &[places])
    }
}

/// Checks images, gradients of their maxima and places against each other.
fn check(
    op: &'static str,
    windows: &Windows,
    images: &Spec,
    maxima: Option<&Spec>,
    places: &Spec,
) -> Result<[usize; 4], OpError> {
    let shape = windows.infer(op, images)?;
    for spec in maxima.into_iter().chain([places]) {
        check_shape(op, spec, &shape)?;
    }
    OpError::check_dtype(op, places, places_in(windows, sides(images.shape())))?;
    Ok(shape)
}

impl Op for MaxPool2dBackward {
    fn name(&self) -> &'static str {
        BACKWARD
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.windows.hash_to(hasher);
        self.sides.hash(&mut &mut *hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let op = self.name();
        OpError::check_arity(op, inputs, 2)?;
        let dtype = one_float_dtype(op, &[&inputs[0]])?;
        let &[n, c, _, _] = inputs[0].shape().dims() else {
            let got = inputs[0].shape().to_string();
            return Err(OpError::shape(op, "gradients [N, C, HO, WO]", got));
        };
        let images = Spec::contiguous(dtype, [n, c, self.sides[0], self.sides[1]]);
        check(op, &self.windows, &images, Some(&inputs[0]), &inputs[1])?;
        Ok(smallvec![images])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, inputs[0].layout.numel())
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let op = MaxPool2dSelect {
            windows: self.windows,
        };
        let places = backward.input(1);
        gradients::from(backward, op, &[places])
    }
}

impl Op for MaxPool2dSelect {
    fn name(&self) -> &'static str {
        SELECT
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.windows.hash_to(hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let op = self.name();
        OpError::check_arity(op, inputs, 2)?;
        let dtype = one_float_dtype(op, &[&inputs[0]])?;
        let shape = check(op, &self.windows, &inputs[0], None, &inputs[1])?;
        Ok(smallvec![Spec::contiguous(dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, 0)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let op = MaxPool2dBackward {
            windows: self.windows,
            sides: sides(backward.input(0).shape()),
        };
        let places = backward.input(1);
        gradients::from(backward, op, &[places])
    }
}
