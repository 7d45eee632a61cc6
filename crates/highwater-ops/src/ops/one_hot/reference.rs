//! The plain reference.

use super::OneHot;
use crate::Array;
use highwater_graph::{Op, Shape};

pub(super) fn one_hot(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &OneHot = op.downcast().expect("the reference of this operation");
    let classes = &inputs[0];
    let shape: Shape = classes.shape.iter().copied().chain([op.classes]).collect();
    let places = (0..shape.numel()).map(|at| {
        let (row, column) = (at / op.classes, at % op.classes);
        f64::from(u8::from(classes.data[row] as usize == column))
    });
    let places = places.collect();
    vec![Array::new(op.dtype, shape, places)]
}
