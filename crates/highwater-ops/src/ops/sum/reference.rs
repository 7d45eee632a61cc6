//! The plain reference.

use super::Reduction;
use crate::Array;
use highwater_graph::{Layout, Op, Shape};

pub(super) fn reference<R: Reduction>(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &R = op.downcast().expect("the reference of this operation");
    let input = &inputs[0];
    let (mask, shape) = op.plan(&input.shape).expect("dimensions of the input");
    let extents = input.shape.iter().zip(&mask);
    let kept: Shape = extents
        .map(|(&extent, &summed)| if summed { 1 } else { extent })
        .collect();
    let targets = Layout::contiguous(kept).expand(&input.shape);
    let data = vec![0.0; shape.numel()];
    let mut output = Array::new(R::WHOLES.made_of(input.dtype), shape, data);
    for (target, x) in targets.expect("a broadcast").positions().zip(&input.data) {
        output.data[target] += x;
    }
    let count = input.data.len().checked_div(output.data.len()).unwrap_or(0);
    output.data.iter_mut().for_each(|y| *y /= op.divisor(count));
    vec![output]
}
