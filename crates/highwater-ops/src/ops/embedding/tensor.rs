//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::Embedding;

impl Tensor {
    /// Rows of `self` `[rows, C]` by index: `indices` `[..]` of U32 or I64 to `[.., C]`, as
    /// `torch.nn.functional.embedding`.
    ///
    /// # Errors
    /// [`crate::Error::Op`]; an index out of range stops the step that computes it.
    #[track_caller]
    pub fn embedding(&self, indices: &Self) -> Result<Self> {
        Self::apply_one(Embedding, &[self, indices])
    }

    /// As [`Tensor::embedding`], but the row `padding_idx` gets no gradient, as
    /// `torch.nn.functional.embedding(padding_idx=..)`; it is read like others. Start it with zeros where it stands
    /// for nothing.
    ///
    /// # Errors
    /// As [`Tensor::embedding`]; [`crate::Error::Usage`] for a row that is not there.
    #[track_caller]
    pub fn embedding_padded(&self, indices: &Self, padding_idx: usize) -> Result<Self> {
        let rows = self.dims().first().copied().unwrap_or(0);
        if padding_idx >= rows {
            let message = format!(
                "embedding: padding_idx {padding_idx} is no row of {}",
                self.shape()
            );
            return Err(crate::error::usage_error(
                message,
                crate::Location::caller(),
            ));
        }
        let found = self.embedding(indices)?;
        let is_padding = indices.eq_scalar(padding_idx as f64)?.unsqueeze(-1)?;
        Self::where_(&is_padding, &found.detach()?, &found)
    }
}
