//! Matrices of floats, a row at a time, whatever they are held in.

use crate::Result;
use crate::tensor::Tensor;
use crate::tensor::parameter::Parameter;
use half::{bf16, f16};
use highwater_graph::DType;

/// A weight as `F32`.
pub(super) fn in_f32(weight: &Parameter) -> Result<Tensor> {
    match weight.dtype() {
        DType::F32 => Ok(Tensor::clone(weight)),
        _ => weight.to_dtype(DType::F32),
    }
}

pub(super) fn sum_of_squares(row: &[f32]) -> f32 {
    row.iter()
        .map(|&x| f64::from(x) * f64::from(x))
        .sum::<f64>() as f32
}

/// Reads a matrix of floats, a row at a time.
pub(super) fn each_row(weight: &Parameter, mut read: impl FnMut(usize, &[f32])) -> Result<()> {
    let (dtype, rows) = (weight.dtype(), weight.dims()[0]);
    let mut row = vec![0.0; weight.dims()[1]];
    weight.with_bytes(|bytes| {
        let width = bytes.len() / rows.max(1);
        for (i, bytes) in bytes.chunks_exact(width.max(1)).enumerate() {
            widen(dtype, bytes, &mut row);
            read(i, &row);
        }
    })
}

/// Floats of a dtype as `f32`.
pub(super) fn widen(dtype: DType, bytes: &[u8], to: &mut [f32]) {
    match dtype {
        DType::BF16 => each(bytes, to, |x| bf16::from_ne_bytes(x).to_f32()),
        DType::F16 => each(bytes, to, |x| f16::from_ne_bytes(x).to_f32()),
        DType::F64 => each(bytes, to, |x| f64::from_ne_bytes(x) as f32),
        _ => each(bytes, to, f32::from_ne_bytes),
    }
}

fn each<const N: usize>(bytes: &[u8], to: &mut [f32], number: impl Fn([u8; N]) -> f32) {
    let (numbers, _) = bytes.as_chunks();
    for (to, &bytes) in to.iter_mut().zip(numbers) {
        *to = number(bytes);
    }
}
