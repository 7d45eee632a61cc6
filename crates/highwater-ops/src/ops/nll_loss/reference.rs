//! The plain references.

#![expect(clippy::float_cmp, reason = "labels are whole numbers")]

use super::{NllLoss, NllLossBackward};
use crate::Array;
use highwater_graph::{Op, Shape};

pub(super) fn forward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &NllLoss = op.downcast().expect("registered for NllLoss");
    let (x, labels) = (&inputs[0], &inputs[1]);
    let classes = x.shape[x.shape.rank() - 1];
    vec![Array::from_fn(labels.shape.clone(), |i| {
        let label = labels.data[i];
        if label == op.ignore_index as f64 {
            0.0
        } else {
            -x.data[i * classes + label as usize]
        }
    })]
}

pub(super) fn backward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &NllLossBackward = op.downcast().expect("registered for NllLossBackward");
    let (grad, labels) = (&inputs[0], &inputs[1]);
    let shape: Shape = grad.shape.iter().copied().chain([op.classes]).collect();
    vec![Array::from_fn(shape, |at| {
        let (i, class) = (at / op.classes, at % op.classes);
        let label = labels.data[i];
        if label == class as f64 && label != op.ignore_index as f64 {
            -grad.data[i]
        } else {
            0.0
        }
    })]
}
