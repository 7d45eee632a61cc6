//! The mean of each window.

use super::windows::{Windows, cost, sides};
use crate::kernels::checks::{check_shape, one_float_dtype};
use crate::ops::gradients;
use highwater_graph::{Backward, Cost, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};

/// The mean of each window: as `torch.nn.functional.avg_pool2d`, and with [`Windows::Adaptive`] as
/// `adaptive_avg_pool2d`.
///
/// Input `[N, C, H, W]` of a float dtype and any layout; output `[N, C, HO, WO]`. Windows of one size have
/// no dilation. Sums are in `f64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AvgPool2d {
    /// Where it looks.
    pub windows: Windows,
    /// Whether zeros of the padding count: what sums are divided by.
    pub count_include_pad: bool,
}

/// The gradient of [`AvgPool2d`]'s input: a share of each gradient for each element of its
/// window. Its own gradient is [`AvgPool2d`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AvgPool2dBackward {
    /// The pool.
    pub pool: AvgPool2d,
    /// Height and width of the images.
    pub sides: [usize; 2],
}

pub(super) const NAME: &str = "avg_pool2d";
pub(super) const BACKWARD: &str = "avg_pool2d_backward";

impl AvgPool2d {
    fn hash_to(&self, hasher: &mut dyn Hasher) {
        self.windows.hash_to(hasher);
        hasher.write_u8(self.count_include_pad.into());
    }

    fn check(&self, op: &'static str, images: &Spec) -> Result<[usize; 4], OpError> {
        match self.windows {
            Windows::Fixed(settings) if settings.dilation != [1; 2] => Err(OpError::Attribute {
                op,
                attribute: "dilation",
                expected: "[1, 1]".to_owned(),
                got: format!("{:?}", settings.dilation),
            }),
            _ => self.windows.infer(op, images),
        }
    }
}

impl Op for AvgPool2d {
    fn name(&self) -> &'static str {
        NAME
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.hash_to(hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let op = self.name();
        OpError::check_arity(op, inputs, 1)?;
        let dtype = one_float_dtype(op, &[&inputs[0]])?;
        let shape = self.check(op, &inputs[0])?;
        Ok(smallvec![Spec::contiguous(dtype, shape)])
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
        let op = AvgPool2dBackward {
            pool: *self,
            sides: sides(backward.input(0).shape()),
        };
        gradients::from(backward, op, &[])
    }
}

impl Op for AvgPool2dBackward {
    fn name(&self) -> &'static str {
        BACKWARD
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.pool.hash_to(hasher);
        self.sides.hash(&mut &mut *hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let op = self.name();
        OpError::check_arity(op, inputs, 1)?;
        let dtype = one_float_dtype(op, &[&inputs[0]])?;
        let &[n, c, _, _] = inputs[0].shape().dims() else {
            let got = inputs[0].shape().to_string();
            return Err(OpError::shape(op, "gradients [N, C, HO, WO]", got));
        };
        let images = Spec::contiguous(dtype, [n, c, self.sides[0], self.sides[1]]);
        check_shape(op, &inputs[0], &self.pool.check(op, &images)?)?;
        Ok(smallvec![images])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        let most = self.pool.windows.most(self.sides);
        cost(
            inputs,
            outputs,
            inputs[0].layout.numel().saturating_mul(most),
        )
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        gradients::from(backward, self.pool, &[])
    }
}
