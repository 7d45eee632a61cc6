//! Promotion: what takes one dtype alone is given tensors of several, and computes in one that holds them all.
//! Operations say whether they want that ([`Op::promotion`]); the others refuse what they do not take.

use super::autocast::cast_input;
use crate::Result;
use crate::engine::Engine;
use crate::engine::state::State;
use highwater_graph::{DType, Op, Operand, Promotion, Site};

/// Kinds of dtypes, each of which holds those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Truth,
    Whole,
    Float,
}

fn kind(dtype: DType) -> Option<Kind> {
    match dtype {
        DType::Bool => Some(Kind::Truth),
        DType::I64 | DType::I16 | DType::U32 | DType::U8 => Some(Kind::Whole),
        dtype if dtype.is_float() => Some(Kind::Float),
        _ => None,
    }
}

/// The least dtype that holds two others, as `torch.promote_types`.
fn join(a: DType, b: DType) -> Option<DType> {
    let (larger, smaller) = (kind(a)?.max(kind(b)?), kind(a)?.min(kind(b)?));
    let of_kind = |wanted| if kind(a) == Some(wanted) { a } else { b };
    Some(match (larger, smaller) {
        _ if a == b => a,
        (Kind::Float, Kind::Float) if a == DType::F64 || b == DType::F64 => DType::F64,
        (Kind::Float, Kind::Float) => DType::F32,
        (Kind::Whole, Kind::Whole) => match (a.min(b), a.max(b)) {
            (DType::U32, DType::U8) => DType::U32,
            (DType::I16, DType::U8) => DType::I16,
            _ => DType::I64,
        },
        (larger, _) => of_kind(larger),
    })
}

/// The dtype that inputs are cast to, as `torch.result_type`: tensors of no dimensions count only where they
/// are of another kind than all others. None where there is nothing to cast, or no such dtype.
fn target(promotion: Promotion, inputs: &[Operand]) -> Option<DType> {
    let joined = |scalars: bool| {
        let of = inputs
            .iter()
            .filter(|input| (input.shape().rank() == 0) == scalars);
        let mut dtypes = of.map(|input| input.spec.dtype);
        let first = dtypes.next()?;
        dtypes.try_fold(first, join)
    };
    let dtype = match (joined(false), joined(true)) {
        (Some(tensors), Some(scalars)) if kind(scalars)? > kind(tensors)? => {
            join(tensors, scalars)?
        }
        (tensors, scalars) => tensors.or(scalars)?,
    };
    let becomes_float = promotion.to_floats && !dtype.is_float();
    Some(if becomes_float { DType::F32 } else { dtype })
}

/// Has the operation read its inputs in the dtype that they promote to: by nodes that cast them, one for all
/// who read the same tensor in the same dtype.
pub(crate) fn promote_inputs(
    engine: &Engine,
    state: &mut State,
    op: &dyn Op,
    inputs: &mut [Operand],
    site: &Site,
) -> Result<()> {
    // As nearly always: nothing is looked up then.
    let is_same = |dtype: DType| dtype.is_float() && dtype == inputs[0].spec.dtype;
    if inputs.iter().all(|input| is_same(input.spec.dtype)) {
        return Ok(());
    }
    let Some(promotion) = op.promotion() else {
        return Ok(());
    };
    let Some(inputs) = inputs.get_mut(promotion.first..) else {
        return Ok(());
    };
    let Some(dtype) = target(promotion, inputs) else {
        return Ok(());
    };
    for input in inputs {
        cast_input(engine, state, input, dtype, site)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_join_as_in_pytorch() {
        use DType::{BF16, Bool, F16, F32, F64, I16, I64, U8, U32};
        let cases = [
            (F16, BF16, F32),
            (F32, F64, F64),
            (I64, F16, F16),
            (Bool, U8, U8),
            (U8, I64, I64),
            (U8, I16, I16),
            (U32, U8, U32),
            (U32, I16, I64),
            (Bool, Bool, Bool),
        ];
        for (a, b, both) in cases {
            assert_eq!(
                (join(a, b), join(b, a)),
                (Some(both), Some(both)),
                "{a} and {b}"
            );
        }
        assert_eq!(join(F32, DType::I8Block { block: 32 }), None);
    }
}
