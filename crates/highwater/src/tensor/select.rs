//! Elements where something is true. How many there are is known only when that is computed, so these methods
//! compute it at once, as reading a tensor does; what they give has a shape like any other.

use super::Tensor;
use crate::error::usage_error;
use crate::{DType, Result};
use highwater_graph::{Location, Shape};

impl Tensor {
    /// The elements where `mask`, of `Bool`, is true, as one vector in row-major order, as `torch.masked_select`; both
    /// broadcast. Gradients go to the elements that were taken.
    ///
    /// The shape depends on values, so **this computes the mask now**, as [`Tensor::to_vec`] does, and every count is
    /// a shape of its own to plan for. In a loop that trains, [`Tensor::masked_fill`] or [`Tensor::where_`] do without.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for a mask of another dtype, or shapes that do not broadcast; whatever stops the
    /// evaluation.
    #[track_caller]
    pub fn masked_select(&self, mask: &Self) -> Result<Self> {
        let location = Location::caller();
        if mask.dtype() != DType::Bool {
            let message = format!(
                "masked_select: expected a mask of bool, got {}; compare it with something",
                mask.dtype()
            );
            return Err(usage_error(message, location));
        }
        let Some(shape) = self.shape().broadcast(mask.shape()) else {
            let message = format!(
                "masked_select: {} and a mask {} do not broadcast",
                self.shape(),
                mask.shape()
            );
            return Err(usage_error(message, location));
        };
        let taken: Vec<i64> = trues(&mask.expand(shape.clone())?.to_vec::<u8>()?)
            .map(|at| at as i64)
            .collect();
        let taken = Self::from_slice(self.engine(), &taken, [taken.len()])?;
        let all = self.expand(shape.clone())?.reshape([shape.numel()])?;
        all.index_select(0, &taken)
    }

    /// Where elements are not 0: `[count, rank]` indices (I64), in row-major order, as `torch.nonzero`. NaN is not 0.
    ///
    /// The shape depends on values, so **this computes the tensor now**, as [`Tensor::to_vec`] does.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype that cannot be compared; whatever stops the evaluation.
    #[track_caller]
    pub fn nonzero(&self) -> Result<Self> {
        let truths = match self.dtype() {
            DType::Bool => self.to_vec::<u8>()?,
            _ => self.ne_scalar(0.0)?.to_vec::<u8>()?,
        };
        let rank = self.shape().rank();
        let mut indices = Vec::new();
        let mut count = 0;
        for at in trues(&truths) {
            count += 1;
            push_index(self.shape(), at, &mut indices);
        }
        Self::from_slice(self.engine(), &indices, [count, rank])
    }
}

/// The positions of what is true.
fn trues(truths: &[u8]) -> impl Iterator<Item = usize> {
    let truths = truths.iter().enumerate();
    truths.filter(|&(_, &truth)| truth != 0).map(|(at, _)| at)
}

/// Appends the indices of the `at`-th element of a shape.
fn push_index(shape: &Shape, mut at: usize, indices: &mut Vec<i64>) {
    let start = indices.len();
    for &extent in shape.iter().rev() {
        indices.push((at % extent) as i64);
        at /= extent;
    }
    indices[start..].reverse();
}
