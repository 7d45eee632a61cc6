//! The plain references.

use super::{QuantizedLinear, QuantizedLinearBackward, WeightFormat};
use crate::Array;
use half::{bf16, f16};
use highwater_graph::{DType, Op};

/// The weight as the type of the products has it, row by row.
fn weight(
    format: WeightFormat,
    width: usize,
    dtype: DType,
    codes: &Array,
    scales: &Array,
) -> Vec<f64> {
    let (outs, bytes) = (codes.shape[0], codes.shape[1]);
    let per_row = scales.shape[1];
    let mut weight = Vec::new();
    for row in 0..outs {
        let codes: Vec<u8> = codes.data[row * bytes..][..bytes]
            .iter()
            .map(|&x| x as u8)
            .collect();
        for i in 0..width {
            let scale = scales.data[row * per_row + i / WeightFormat::BLOCK] as f32;
            let mut number = [0.0];
            format.decode(&codes, scale, i, &mut number);
            weight.push(match dtype {
                DType::BF16 => bf16::from_f32(number[0]).to_f64(),
                DType::F16 => f16::from_f32(number[0]).to_f64(),
                _ => f64::from(number[0]),
            });
        }
    }
    weight
}

pub(super) fn forward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &QuantizedLinear = op.downcast().expect("the row's own operation");
    let (x, outs) = (&inputs[0], inputs[1].shape[0]);
    let weight = weight(op.format, op.width, x.dtype, &inputs[1], &inputs[2]);
    let rows = x.shape.numel() / op.width;
    let mut y = Vec::with_capacity(rows * outs);
    for row in x.data.chunks(op.width) {
        for weight in weight.chunks(op.width) {
            y.push(row.iter().zip(weight).map(|(a, b)| a * b).sum());
        }
    }
    let mut dims = x.shape.dims().to_vec();
    *dims.last_mut().expect("an input of rows") = outs;
    vec![Array::new(x.dtype, &dims[..], y)]
}

pub(super) fn backward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &QuantizedLinearBackward = op.downcast().expect("the row's own operation");
    let (g, outs) = (&inputs[0], inputs[1].shape[0]);
    let weight = weight(op.format, op.width, g.dtype, &inputs[1], &inputs[2]);
    let mut dx = Vec::new();
    for row in g.data.chunks(outs) {
        let mut sums = vec![0.0; op.width];
        for (g, weight) in row.iter().zip(weight.chunks(op.width)) {
            sums.iter_mut()
                .zip(weight)
                .for_each(|(sum, w)| *sum += g * w);
        }
        dx.extend(sums);
    }
    let mut dims = g.shape.dims().to_vec();
    *dims.last_mut().expect("a gradient of rows") = op.width;
    vec![Array::new(g.dtype, &dims[..], dx)]
}
