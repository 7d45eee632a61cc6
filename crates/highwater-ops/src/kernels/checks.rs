//! What operations check of their inputs.

use highwater_graph::{DType, OpError, Spec};

/// Checks that inputs share one float dtype; gives it.
pub(crate) fn one_float_dtype(op: &'static str, inputs: &[&Spec]) -> Result<DType, OpError> {
    let dtype = inputs.first().map_or(DType::F32, |spec| spec.dtype);
    if !dtype.is_float() {
        return Err(OpError::DType {
            op,
            expected: "a float type".to_owned(),
            got: dtype,
        });
    }
    for spec in inputs {
        OpError::check_dtype(op, spec, dtype)?;
    }
    Ok(dtype)
}

/// Checks that an input has a shape.
pub(crate) fn check_shape(
    op: &'static str,
    input: &Spec,
    expected: &[usize],
) -> Result<(), OpError> {
    if input.shape().dims() == expected {
        return Ok(());
    }
    Err(OpError::shape(
        op,
        format!("{expected:?}"),
        input.shape().to_string(),
    ))
}

/// Checks that a tensor holds indices.
pub(crate) fn check_indices(op: &'static str, spec: &Spec) -> Result<(), OpError> {
    match spec.dtype {
        DType::I64 | DType::U32 => Ok(()),
        got => Err(OpError::DType {
            op,
            expected: "int64 or uint32".to_owned(),
            got,
        }),
    }
}

/// The dtype of a tensor whose elements can be moved one by one.
pub(crate) fn of_elements(op: &'static str, spec: &Spec) -> Result<DType, OpError> {
    match spec.dtype.element_bytes() {
        Some(_) => Ok(spec.dtype),
        None => Err(OpError::DType {
            op,
            expected: "whose elements have addresses".to_owned(),
            got: spec.dtype,
        }),
    }
}
