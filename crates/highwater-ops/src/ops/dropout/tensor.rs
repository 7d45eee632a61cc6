//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::Dropout;

impl Tensor {
    /// Zeroes elements with probability `p` and scales the rest by `1 / (1 - p)`, as
    /// `torch.nn.functional.dropout(training=True)`. The mask is a function of the engine's seed and
    /// a counter, so that recomputation draws the same one.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for `p` outside 0 to 1.
    #[track_caller]
    pub fn dropout(&self, p: f64) -> Result<Self> {
        let (seed, offset) = self.engine.lock().next_random();
        Self::apply_one(Dropout { p, seed, offset }, &[self])
    }
}
