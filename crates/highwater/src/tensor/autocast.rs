//! Autocast: which operations compute in half precision while others stay in `f32`.
//!
//! Each operation says what becomes of its inputs ([`Op::autocast`]). Of PyTorch's lists (`autocast_mode.h`) they
//! follow the one for CUDA, but for norms and softmax: their kernels compute in `f32` whatever they read, and round
//! once.

use crate::Result;
use crate::engine::Engine;
use crate::engine::state::State;
use crate::pending::context::autocast_dtype;
use highwater_graph::{Autocast, DType, Op, Operand, Site};

/// Whether an operation that takes its inputs as they are takes no such mixture of `F32` and half precision.
fn refuses_mixture(op: &dyn Op, inputs: &[Operand]) -> bool {
    let has = |is: fn(DType) -> bool| inputs.iter().any(|input| is(input.spec.dtype));
    let is_mixed = has(is_half) && has(|dtype| dtype == DType::F32);
    let specs = || {
        inputs
            .iter()
            .map(|input| input.spec.clone())
            .collect::<Vec<_>>()
    };
    is_mixed && op.infer(&specs()).is_err()
}

/// The dtype that inputs are cast to, if any is.
fn target(autocast: Autocast, low: DType, inputs: &[Operand]) -> Option<DType> {
    let floats = || inputs.iter().map(|input| input.spec.dtype);
    // Doubles are for checking gradients, and stay what they are.
    if floats().any(|dtype| dtype == DType::F64) {
        return None;
    }
    match autocast {
        Autocast::AsTaken => None,
        Autocast::Low | Autocast::LowFirst => Some(low),
        Autocast::Full => Some(DType::F32),
        Autocast::Widest => {
            let mut halves = floats().filter(|&dtype| is_half(dtype));
            let first = halves.next()?;
            let one = halves.all(|dtype| dtype == first) && !floats().any(|d| d == DType::F32);
            (!one).then_some(DType::F32)
        }
    }
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::BF16 | DType::F16)
}

/// Has the operation read its inputs as autocast says: by nodes that cast them, one for all who read the
/// same tensor in the same dtype.
pub(crate) fn cast_inputs(
    engine: &Engine,
    state: &mut State,
    op: &dyn Op,
    inputs: &mut [Operand],
    site: &Site,
) -> Result<()> {
    let Some(low) = autocast_dtype() else {
        return Ok(());
    };
    let autocast = match op.autocast() {
        Autocast::AsTaken if refuses_mixture(op, inputs) => Autocast::Widest,
        autocast => autocast,
    };
    let Some(dtype) = target(autocast, low, inputs) else {
        return Ok(());
    };
    let count = match autocast {
        Autocast::LowFirst => 1,
        _ => inputs.len(),
    };
    for input in inputs.iter_mut().take(count) {
        let from = input.spec.dtype;
        if from == DType::F32 || is_half(from) {
            cast_input(engine, state, input, dtype, site)?;
        }
    }
    Ok(())
}

/// Has an input read in a dtype, by a node that was made for that, or by a new one.
pub(crate) fn cast_input(
    engine: &Engine,
    state: &mut State,
    input: &mut Operand,
    dtype: DType,
    site: &Site,
) -> Result<()> {
    if input.spec.dtype == dtype {
        return Ok(());
    }
    let generation = state.pending.generation;
    if let Some(cast) = state.pending.casts.get(generation, input, dtype, site) {
        *input = cast;
        return Ok(());
    }
    let cast = engine.in_dtype(state, input.clone(), dtype, site)?;
    let generation = state.pending.generation;
    state.pending.casts.note(generation, input, &cast);
    *input = cast;
    Ok(())
}
