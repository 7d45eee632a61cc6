//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{Pad, PadMode};

impl Tensor {
    /// Elements before and behind, as `torch.nn.functional.pad`: `pad` has a pair for each dimension, of the
    /// last one first, and none for those that stay. A constant may be padded by less than nothing, which
    /// cuts elements off.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for half a pair, or more pairs than dimensions; [`crate::Error::Op`] for more
    /// than there is to repeat.
    #[track_caller]
    pub fn pad(&self, pad: &[isize], mode: PadMode) -> Result<Self> {
        let (pairs, rest) = pad.as_chunks::<2>();
        let rank = self.shape().rank();
        if !rest.is_empty() || pairs.len() > rank {
            let message = format!(
                "pad: two numbers for each of up to {rank} dimensions are needed, not {}",
                pad.len()
            );
            let location = highwater_graph::Location::caller();
            return Err(crate::error::usage_error(message, location));
        }
        let mut pads = vec![[0; 2]; rank];
        for (pads, pair) in pads.iter_mut().rev().zip(pairs) {
            *pads = *pair;
        }
        Self::apply_one(Pad { pads, mode }, &[self])
    }
}
