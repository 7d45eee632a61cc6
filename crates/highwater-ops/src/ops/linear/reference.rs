use crate::Array;
use highwater_graph::{Op, Shape};

pub(super) fn linear(_op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let (x, w) = (&inputs[0], &inputs[1]);
    let [out, width] = *w.shape.dims() else {
        panic!("a matrix")
    };
    let lead = &x.shape[..x.shape.rank() - 1];
    let shape: Shape = lead.iter().copied().chain([out]).collect();
    vec![Array::from_fn(shape, |at| {
        let (row, o) = (at / out, at % out);
        let bias = inputs.get(2).map_or(0.0, |bias| bias.data[o]);
        let terms = (0..width).map(|i| x.data[row * width + i] * w.data[o * width + i]);
        terms.sum::<f64>() + bias
    })]
}

pub(super) fn bias_backward(_op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let out = inputs[0].shape[inputs[0].shape.rank() - 1];
    vec![Array::from_fn([out], |o| {
        inputs[0].data.iter().skip(o).step_by(out).sum()
    })]
}
