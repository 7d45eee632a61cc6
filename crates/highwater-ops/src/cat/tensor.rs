//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::Cat;
use smallvec::SmallVec;
use std::borrow::Borrow;

impl Tensor {
    /// The tensors one after the other along a dimension, as `torch.cat`; their shapes may differ
    /// in that dimension alone.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes or dtypes do not fit; [`crate::Error::Usage`] for none.
    #[track_caller]
    pub fn cat<T: Borrow<Self>>(tensors: &[T], dim: usize) -> Result<Self> {
        let inputs: SmallVec<[&Self; 4]> = tensors.iter().map(Borrow::borrow).collect();
        Self::apply_one(Cat { dim }, &inputs)
    }
}
