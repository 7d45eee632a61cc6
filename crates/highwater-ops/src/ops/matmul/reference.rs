use super::{MatMulSumBatches, batch_of};
use crate::Array;
use highwater_graph::{Layout, Op, Shape};

pub(super) fn matmul(_op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let batch = batch_of(&inputs[0].shape).broadcast(&batch_of(&inputs[1].shape));
    vec![product(inputs, &batch.unwrap_or_default())]
}

pub(super) fn sum_batches(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let batch = op.downcast::<MatMulSumBatches>().map(|op| op.batch.clone());
    vec![product(inputs, &batch.unwrap_or_default())]
}

/// Positions of the matrices of a dense stack, for each index of a larger stack that it broadcasts
/// to.
fn starts(stack: &Shape, matrix: usize, full: &Shape) -> Vec<usize> {
    let layout = Layout::contiguous(stack.clone()).expand(full);
    let positions = layout.expect("the stack broadcasts");
    positions.positions().map(|at| at * matrix).collect()
}

fn product(inputs: &[Array], batch: &Shape) -> Array {
    let (a, b) = (&inputs[0], &inputs[1]);
    let [.., m, k] = *a.shape.dims() else {
        panic!("a matrix")
    };
    let n = b.shape[b.shape.rank() - 1];
    let (stack_a, stack_b) = (batch_of(&a.shape), batch_of(&b.shape));
    let full = stack_a.broadcast(&stack_b).expect("batches that broadcast");
    let shape: Shape = batch.iter().copied().chain([m, n]).collect();
    let mut out = Array::from_fn(shape, |_| 0.0);
    let all = starts(&stack_a, m * k, &full).into_iter();
    let all = all.zip(starts(&stack_b, k * n, &full));
    for ((at_a, at_b), at) in all.zip(starts(batch, m * n, &full)) {
        for i in 0..m {
            for j in 0..n {
                let terms = (0..k).map(|l| a.data[at_a + i * k + l] * b.data[at_b + l * n + j]);
                out.data[at + i * n + j] += terms.sum::<f64>();
            }
        }
    }
    out
}
