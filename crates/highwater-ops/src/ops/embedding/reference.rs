use super::EmbeddingBackward;
use crate::Array;
use highwater_graph::{Op, Shape};

pub(super) fn embedding(_op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let (weight, indices) = (&inputs[0], &inputs[1]);
    let width = weight.shape[1];
    let shape: Shape = indices.shape.iter().copied().chain([width]).collect();
    vec![Array::from_fn(shape, |at| {
        weight.data[indices.data[at / width] as usize * width + at % width]
    })]
}

pub(super) fn backward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let rows = op.downcast::<EmbeddingBackward>().map_or(0, |op| op.rows);
    let (grad, indices) = (&inputs[0], &inputs[1]);
    let width = grad.shape[grad.shape.rank() - 1];
    let mut out = Array::from_fn([rows, width], |at| {
        inputs.get(2).map_or(0.0, |e| e.data[at])
    });
    for (i, g) in grad.data.iter().enumerate() {
        out.data[indices.data[i / width] as usize * width + i % width] += g;
    }
    vec![out]
}
