//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::Rotary;

impl Tensor {
    /// Rotary position embedding (Su et al. 2021) of `[.., T, D]`: pairs of the last dimension are rotated
    /// by angles whose cosines and sines are `[.., T, R / 2]` in `F32` (`F64` for `F64`), and broadcast to
    /// the rows. Element `i` goes with `i + R / 2`, as in Hugging Face's `apply_rotary_pos_emb`, whose
    /// tables hold each angle twice; or, `interleaved`, `2 i` with `2 i + 1`, as in GPT-J. Elements from
    /// the `R`-th on stay. Computed in `f32`, rounded once.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit, or where a gradient of the tables is asked for.
    #[track_caller]
    pub fn rotary(&self, cos: &Self, sin: &Self, interleaved: bool) -> Result<Self> {
        let op = Rotary {
            interleaved,
            inverse: false,
        };
        Self::apply_one(op, &[self, cos, sin])
    }
}
