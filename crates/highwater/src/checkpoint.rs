//! `checkpoint(f, inputs)`: the user's word that what `f` makes is to be recomputed.

use crate::Result;
use crate::context::in_checkpoint;
use crate::tensor::Tensor;

/// Runs `f` once, now, and has the planner drop what it makes after the forward part and compute it
/// again when backward wants it, as `torch.utils.checkpoint.checkpoint`. What `f` returns is kept or
/// not as the planner sees fit. The code of `f` is never run again: nodes are replayed, random ones
/// with the same numbers.
///
/// # Errors
/// Those of `f`.
pub fn checkpoint<R>(f: impl FnOnce(&Tensor) -> Result<R>, input: &Tensor) -> Result<R> {
    let id = {
        let mut state = input.engine.lock();
        state.checkpoints += 1;
        state.checkpoints
    };
    in_checkpoint(id, || f(input))
}
