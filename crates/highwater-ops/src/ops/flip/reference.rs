//! The plain reference.

use super::Flip;
use crate::Array;
use highwater_graph::{Layout, Op};

pub(super) fn flip(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let dims = op.downcast::<Flip>().map_or(&[][..], |op| &op.dims);
    let input = &inputs[0];
    let layout = Layout::contiguous(input.shape.clone());
    let data = (0..input.data.len()).map(|mut flat| {
        let mut from = 0;
        for (dim, &extent) in input.shape.iter().enumerate().rev() {
            let at = flat % extent;
            flat /= extent;
            let at = if dims.contains(&dim) {
                extent - 1 - at
            } else {
                at
            };
            from += at * layout.strides()[dim];
        }
        input.data[from]
    });
    let data = data.collect();
    vec![Array::new(input.dtype, input.shape.clone(), data)]
}
