//! What operations that write cells share: what they check, what they cost, what the laws try.

use crate::kernels::checks::one_float_dtype;
use crate::table::{f32_strided, f32_view, is_arity, is_dtype, is_shape};
use crate::{KernelError, Reject, View};
use highwater_graph::{Cost, DType, Layout, Op, OpError, Shape, Spec};
use smallvec::SmallVec;
use std::sync::Arc;

/// Elements that one task updates.
pub(crate) const CHUNK: usize = 1 << 14;

/// Checks that all inputs are of one float dtype and one shape, and all but the last (the gradient or value)
/// dense: whole cells, or ranges of rows of them.
pub(crate) fn check_cells_and_value(op: &'static str, inputs: &[Spec]) -> Result<(), OpError> {
    let shape = inputs[0].shape();
    let all: SmallVec<[&Spec; 4]> = inputs.iter().collect();
    one_float_dtype(op, &all)?;
    for (i, spec) in inputs.iter().enumerate() {
        if spec.shape() != shape {
            let expected = format!("the cell's shape {shape} for input {i}");
            return Err(OpError::shape(op, expected, spec.shape().to_string()));
        }
        if i + 1 < inputs.len() && !spec.layout.is_contiguous() {
            let expected = format!("a dense cell, or whole rows of one, for input {i}");
            return Err(OpError::shape(op, expected, format!("{:?}", spec.layout)));
        }
    }
    Ok(())
}

/// The cost of reading every input once and writing all but the last.
pub(crate) fn update_cost(inputs: &[Spec], flops_per_element: f64) -> Cost {
    let (value, cells) = inputs.split_last().expect("a value after the cells");
    let cells: u64 = cells.iter().map(Spec::bytes).sum();
    Cost {
        vector_flops: flops_per_element * value.layout.numel() as f64,
        read_bytes: cells + value.bytes(),
        written_bytes: cells,
        ..Cost::default()
    }
}

/// What every operation on cells of one shape and a value must refuse.
pub(crate) fn update_rejects(op: fn() -> Arc<dyn Op>, arity: usize) -> Vec<Reject> {
    let of = |dtype, shape: &[usize]| Spec::contiguous(dtype, shape);
    let good = vec![of(DType::F32, &[3, 5]); arity];
    let with = |i: usize, spec: Spec| {
        let mut inputs = good.clone();
        inputs[i] = spec;
        inputs
    };
    let transposed = f32_strided([3, 5], &[1, 3], 0);
    let reject = |inputs, error| Reject {
        op: op(),
        inputs,
        error,
    };
    vec![
        reject(good[1..].to_vec(), is_arity),
        reject(with(arity - 1, of(DType::F32, &[5, 3])), is_shape),
        reject(with(arity - 1, of(DType::F32, &[5])), is_shape),
        reject(with(0, transposed), is_shape),
        reject(with(arity - 1, of(DType::BF16, &[3, 5])), is_dtype),
    ]
}

/// Rows of a larger cell, for samples.
pub(crate) fn rows_of_cell(shape: &Shape) -> Spec {
    let whole = Layout::contiguous(shape.clone());
    let before = 3 * whole.strides()[0];
    let layout = Layout::strided(shape.clone(), whole.strides(), before);
    f32_view(layout)
}

/// Whether numbers are finite, given the largest of their bits shifted left by one: without the
/// sign, bits are in the order of the magnitudes, and infinity and NaN stand above all others.
pub(crate) fn is_finite_magnitude(largest: u32) -> bool {
    largest < f32::INFINITY.to_bits() << 1
}

/// Whether all numbers are finite.
pub(crate) fn is_finite_f64(value: &View<'_>) -> Result<bool, KernelError> {
    let storage = value.storage::<f64>()?;
    Ok((value.layout().positions()).all(|at| storage[at].is_finite()))
}

/// What updates of cells of `F64` ask of their gradient, the last input, before they write.
pub(crate) fn check_gradient(_op: &dyn Op, inputs: &[View<'_>]) -> Result<(), KernelError> {
    match inputs.last() {
        Some(gradient) if !is_finite_f64(gradient)? => {
            Err(KernelError::NonFinite { what: "gradient" })
        }
        _ => Ok(()),
    }
}
