//! The plain reference.

use super::Cat;
use crate::Array;
use highwater_graph::{Op, Shape};

pub(super) fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &Cat = op.downcast().expect("the row's own operation");
    let dims = |array: &Array| array.shape.dims().to_vec();
    let mut shape = dims(&inputs[0]);
    shape[op.dim] = inputs.iter().map(|input| input.shape[op.dim]).sum();
    let outer: usize = shape[..op.dim].iter().product();
    let mut data = Vec::new();
    for i in 0..outer {
        for input in inputs {
            let width: usize = dims(input)[op.dim..].iter().product();
            data.extend(&input.data[i * width..(i + 1) * width]);
        }
    }
    let shape: Shape = shape.into_iter().collect();
    vec![Array::new(inputs[0].dtype, shape, data)]
}
