//! Autocast: which operations compute in half precision while others stay in `f32`.

use crate::Result;
use crate::engine::Engine;
use crate::engine::state::State;
use crate::pending::context::autocast_dtype;
use highwater_graph::{DType, Op, Operand, Site};

/// What becomes of an operation's inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// `F32` becomes the dtype of autocast: products, whose sums are in `f32` all the same.
    Low,
    /// As [`Class::Low`], of the first input alone: others are the scales of a weight in few bits.
    LowFirst,
    /// Half precision becomes `F32`: what sums, or what grows or shrinks fast.
    Full,
    /// All become the widest of them: what takes one dtype alone.
    Widest,
}

/// The classes of operations; all others take their inputs as they are, if they take them at all ([`promoted`]). Of PyTorch's lists (`autocast_mode.h`)
/// this follows the one for CUDA, but for norms and softmax: their kernels compute in `f32` whatever they read,
/// and round once.
const CLASSES: [(Class, &[&str]); 4] = [
    (
        Class::Low,
        &[
            "conv2d",
            "conv_transpose2d",
            "linear",
            "matmul",
            "scaled_dot_product_attention",
            // Its logits are `f32` and so is its loss.
            "linear_cross_entropy",
        ],
    ),
    (Class::LowFirst, &["quantized_linear"]),
    (
        Class::Full,
        &[
            "cross_entropy",
            "cumsum",
            "exp",
            "expm1",
            "log",
            "log1p",
            "logsumexp",
            "mean",
            "norm",
            "pow",
            "pow_scalar",
            "prod",
            "reciprocal",
            "rsqrt",
            "softplus",
            "square",
            "sum",
        ],
    ),
    (
        Class::Widest,
        &[
            "add",
            "batch_norm",
            "cat",
            "div",
            "group_norm",
            "layer_norm",
            "mul",
            "rms_norm",
            "scatter_add",
            "sub",
            "swiglu",
        ],
    ),
];

fn class(op: &str) -> Option<Class> {
    let listed = CLASSES.iter().find(|(_, ops)| ops.contains(&op));
    listed.map(|&(class, _)| class)
}

/// The class of an operation that is not listed: where it takes no mixture of `F32` and half precision, all become the
/// widest.
fn promoted(op: &dyn Op, inputs: &[Operand]) -> Option<Class> {
    let has = |is: fn(DType) -> bool| inputs.iter().any(|input| is(input.spec.dtype));
    let is_mixed = has(is_half) && has(|dtype| dtype == DType::F32);
    let specs = || {
        inputs
            .iter()
            .map(|input| input.spec.clone())
            .collect::<Vec<_>>()
    };
    (is_mixed && op.infer(&specs()).is_err()).then_some(Class::Widest)
}

/// The dtype that inputs of a class are cast to, if any is.
fn target(class: Class, low: DType, inputs: &[Operand]) -> Option<DType> {
    let floats = || inputs.iter().map(|input| input.spec.dtype);
    // Doubles are for checking gradients, and stay what they are.
    if floats().any(|dtype| dtype == DType::F64) {
        return None;
    }
    match class {
        Class::Low | Class::LowFirst => Some(low),
        Class::Full => Some(DType::F32),
        Class::Widest => {
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
    let Some(class) = class(op.name()).or_else(|| promoted(op, inputs)) else {
        return Ok(());
    };
    let Some(dtype) = target(class, low, inputs) else {
        return Ok(());
    };
    let count = match class {
        Class::LowFirst => 1,
        _ => inputs.len(),
    };
    for input in &mut inputs[..count] {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever renames an operation has to rename it here.
    #[test]
    fn listed_operations_exist_and_are_listed_once() {
        let mut listed: Vec<&str> = CLASSES.iter().flat_map(|(_, ops)| *ops).copied().collect();
        for name in &listed {
            assert!(
                highwater_ops::OPS.iter().any(|entry| entry.name == *name),
                "{name}"
            );
        }
        let count = listed.len();
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(listed.len(), count);
    }
}
