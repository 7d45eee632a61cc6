//! Operations along a dimension and their kernels, of what they make of a row and of columns side by side.

use super::{Lines, map_along, map_pairs_along};
use crate::device::in_place;
use crate::kernels::float::Float;
use crate::{Args, Kernel, KernelError, Pairs, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// An operation that makes each line of its output of one of its only input.
pub(crate) trait OfLine: Op {
    /// The dimension.
    fn dim(&self) -> usize;
    /// Turns a line into the output's.
    fn row(&self, x: &mut [f32]);
    /// As [`OfLine::row`], of each column of rows of `width`, at most [`BLOCK`](crate::kernels::blocks::BLOCK).
    fn columns(&self, x: &mut [f32], width: usize);
}

/// An operation that makes each line of its output of one of a gradient and one of another tensor.
pub(crate) trait OfPair: Op {
    /// The dimension.
    fn dim(&self) -> usize;
    /// Turns a line of the gradient into the output's.
    fn row(&self, g: &mut [f32], y: &[f32]);
    /// As [`OfPair::row`], of each column of rows of `width`, at most [`BLOCK`](crate::kernels::blocks::BLOCK).
    fn columns(&self, g: &mut [f32], y: &[f32], width: usize);
}

/// The kernel of [`OfLine`]; may overwrite its input.
pub(crate) struct LineKernel<O, T>(PhantomData<fn() -> (O, T)>);

/// The kernel of [`OfPair`]; may overwrite the gradient, and keeps one row per thread in scratch memory.
pub(crate) struct PairKernel<O, T>(PhantomData<fn() -> (O, T)>);

impl<O, T> LineKernel<O, T> {
    pub(crate) const NEW: Self = Self(PhantomData);
}

impl<O, T> PairKernel<O, T> {
    pub(crate) const NEW: Self = Self(PhantomData);
}

impl<O: OfLine, T: Float> Kernel for LineKernel<O, T> {
    fn scratch_bytes(&self, op: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        let dim = op.downcast().map_or(0, O::dim);
        Lines::new(inputs[0].shape(), dim).bytes::<T>(threads)
    }

    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        in_place(inputs, outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let op = op_as::<O>(op)?;
        let columns = |x: &mut [f32], width| op.columns(x, width);
        map_along::<T>(args, op.dim(), &|x| op.row(x), &columns)
    }
}

impl<O: OfPair, T: Float> Kernel for PairKernel<O, T> {
    fn scratch_bytes(&self, op: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        let dim = op.downcast().map_or(0, O::dim);
        Lines::new(inputs[0].shape(), dim).pair_bytes::<T>(threads)
    }

    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        in_place(&inputs[..1], outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let op = op_as::<O>(op)?;
        let columns = |g: &mut [f32], y: &[f32], width| op.columns(g, y, width);
        map_pairs_along::<T>(args, op.dim(), &|g, y| op.row(g, y), &columns)
    }
}

/// Implements [`Op`] for operations along their `dim` whose inputs have one shape: their name, number of inputs,
/// floating-point operations per element, and a function of the operation and of [`Backward`], if they have one.
///
/// [`Backward`]: highwater_graph::Backward
///
/// ```text
/// line_ops! { Softmax: "softmax", 1, 14.0, gradient; }
/// ```
macro_rules! line_ops {
    ($($type:ty: $name:expr, $inputs:literal, $flops:literal $(, $gradient:expr)?;)*) => {$(
        impl highwater_graph::Op for $type {
            fn name(&self) -> &'static str {
                $name
            }

            fn hash_attributes(&self, hasher: &mut dyn std::hash::Hasher) {
                hasher.write_usize(self.dim);
            }

            fn infer(
                &self,
                inputs: &[highwater_graph::Spec],
            ) -> Result<smallvec::SmallVec<[highwater_graph::Spec; 2]>, highwater_graph::OpError>
            {
                highwater_graph::OpError::check_arity($name, inputs, $inputs)?;
                $crate::kernels::lines::lines_of($name, inputs, self.dim)
            }

            fn cost(
                &self,
                inputs: &[highwater_graph::Spec],
                outputs: &[highwater_graph::Spec],
                _threads: usize,
            ) -> highwater_graph::Cost {
                $crate::kernels::pointwise::cost(inputs, outputs, $flops)
            }

            $(fn backward(
                &self,
                backward: &mut highwater_graph::Backward<'_>,
            ) -> Result<(), highwater_graph::OpError> {
                $gradient(*self, backward)
            })?
        }
    )*};
}
pub(crate) use line_ops;
