//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Dim, Result, Tensor};
use highwater_ops::Cat;
use smallvec::SmallVec;
use std::borrow::Borrow;

impl Tensor {
    /// The tensors one after the other along a dimension, as `torch.cat`; their shapes may differ
    /// in that dimension alone.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes or dtypes do not fit; [`crate::Error::Usage`] for none, or if the
    /// dimension is not there.
    #[track_caller]
    pub fn cat<T: Borrow<Self>>(tensors: &[T], dim: impl Dim) -> Result<Self> {
        let inputs: SmallVec<[&Self; 4]> = tensors.iter().map(Borrow::borrow).collect();
        let dim = match inputs.first() {
            Some(first) => first.own_dim("cat", dim)?,
            None => 0,
        };
        Self::apply_one(Cat { dim }, &inputs)
    }
}
