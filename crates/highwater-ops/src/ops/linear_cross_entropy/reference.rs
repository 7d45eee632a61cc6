use super::LinearCrossEntropy;
use crate::ops::cross_entropy::loss_and_gradient;
use crate::{Array, Reduction};
use highwater_graph::{DType, Op};

pub(super) fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &LinearCrossEntropy = op.downcast().expect("registered for LinearCrossEntropy");
    let [x, w, labels] = inputs else {
        panic!("three inputs")
    };
    let [classes, width] = *w.shape.dims() else {
        panic!("a matrix")
    };
    let rows = labels.data.len();
    let logits = Array::from_fn([rows, classes], |at| {
        let (row, class) = (at / classes, at % classes);
        (0..width)
            .map(|i| x.data[row * width + i] * w.data[class * width + i])
            .sum()
    });
    let (loss, g) = loss_and_gradient(&logits, labels, Reduction::Mean, op.ignore_index);
    let mut outputs = vec![Array::new(DType::F32, [], vec![loss])];
    if op.grad_x {
        outputs.push(Array::from_fn(x.shape.clone(), |at| {
            let (row, i) = (at / width, at % width);
            (0..classes)
                .map(|c| g.data[row * classes + c] * w.data[c * width + i])
                .sum()
        }));
    }
    if op.grad_w {
        outputs.push(Array::from_fn([classes, width], |at| {
            let (c, i) = (at / width, at % width);
            (0..rows)
                .map(|row| g.data[row * classes + c] * x.data[row * width + i])
                .sum()
        }));
    }
    outputs
}
