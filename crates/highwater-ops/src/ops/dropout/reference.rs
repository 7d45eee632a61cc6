//! The plain reference.

use super::Dropout;
use crate::Array;
use crate::kernels::philox;
use highwater_graph::Op;

pub(super) fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &Dropout = op.downcast().expect("dropout");
    let x = &inputs[0];
    let y = Array::from_fn(x.shape.clone(), |i| {
        let word = philox::words(op.seed, op.offset, i as u64 / 4 * 4)[i % 4];
        if u64::from(word) < op.threshold() {
            0.0
        } else {
            x.data[i] * op.scale()
        }
    });
    vec![y]
}
