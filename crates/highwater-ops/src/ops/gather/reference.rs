//! The plain references.

use super::{Gather, ScatterAdd, with_extent};
use crate::Array;
use crate::kernels::lines::Lines;
use highwater_graph::Op;

/// Where in a tensor of `extent` along the dimension the element is that an index asks for, which
/// stands at `flat` among the others.
fn place(lines: Lines, flat: usize, index: f64, extent: usize) -> usize {
    let row = flat / lines.inner / lines.extent;
    (row * extent + index as usize) * lines.inner + flat % lines.inner
}

pub(super) fn gather(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let dim = op.downcast().map_or(0, |op: &Gather| op.dim);
    let (x, index) = (&inputs[0], &inputs[1]);
    let (lines, extent) = (
        Lines::new(&index.shape, dim),
        Lines::new(&x.shape, dim).extent,
    );
    let places = index.data.iter().enumerate();
    let data = places.map(|(flat, &index)| x.data[place(lines, flat, index, extent)]);
    vec![Array::new(x.dtype, index.shape.clone(), data.collect())]
}

pub(super) fn scatter_add(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &ScatterAdd = op.downcast().expect("the reference of this operation");
    let (source, index) = (&inputs[0], &inputs[1]);
    let lines = Lines::new(&source.shape, op.dim);
    let shape = with_extent(&source.shape, op.dim, op.extent);
    let mut out = Array::from_fn(shape, |at| inputs.get(2).map_or(0.0, |base| base.data[at]));
    for (flat, x) in source.data.iter().enumerate() {
        out.data[place(lines, flat, index.data[flat], op.extent)] += x;
    }
    vec![out]
}
