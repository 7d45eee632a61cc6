use super::{CrossEntropy, CrossEntropyBackward, Reduction};
use crate::Array;
use highwater_graph::{DType, Op};

/// Loss and gradient (of the reduced loss) of all rows.
pub(crate) fn loss_and_gradient(
    x: &Array,
    labels: &Array,
    reduction: Reduction,
    ignore_index: i64,
) -> (f64, Array) {
    let width = x.shape[x.shape.rank() - 1];
    let counts = |label: f64| label as i64 != ignore_index;
    let count = labels.data.iter().filter(|&&label| counts(label)).count();
    let divisor = match reduction {
        Reduction::Mean => count as f64,
        Reduction::Sum => 1.0,
    };
    let (mut loss, mut gradient) = (0.0, Array::from_fn(x.shape.clone(), |_| 0.0));
    for (i, &label) in labels
        .data
        .iter()
        .enumerate()
        .filter(|&(_, &label)| counts(label))
    {
        let row = &x.data[i * width..(i + 1) * width];
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
        loss += sum.ln() + max - row[label as usize];
        for (c, x) in row.iter().enumerate() {
            let one = if c == label as usize { 1.0 } else { 0.0 };
            gradient.data[i * width + c] = ((x - max).exp() / sum - one) / divisor;
        }
    }
    (loss / divisor, gradient)
}

pub(super) fn forward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &CrossEntropy = op.downcast().expect("registered for CrossEntropy");
    let (loss, _) = loss_and_gradient(&inputs[0], &inputs[1], op.reduction, op.ignore_index);
    vec![Array::new(DType::F32, [], vec![loss])]
}

pub(super) fn backward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &CrossEntropyBackward = op.downcast().expect("registered for CrossEntropyBackward");
    let (_, mut gradient) =
        loss_and_gradient(&inputs[0], &inputs[1], op.reduction, op.ignore_index);
    gradient
        .data
        .iter_mut()
        .for_each(|g| *g *= inputs[2].data[0]);
    vec![gradient]
}
