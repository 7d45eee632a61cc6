//! Elements in order, and which they were: `sort` and `topk`.

mod cpu;

use crate::kernels::lines::{Lines, check_dim, line_rejects, line_samples};
use crate::kernels::pointwise::cost;
use crate::kernels::rows::{Precise, rows_of_numbers};
use crate::kernels::whole::{Wholes, lines_of_wholes};
use crate::ops::gradients;
use crate::table::f32s;
use crate::{Array, Entry, Fill, Reject, Sample, ScatterAdd};
use highwater_graph::DType::I64;
use highwater_graph::{Backward, Cost, DType, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[SORT, TOPK];

/// The elements along a dimension in ascending or descending order, and their indices (I64), as
/// `torch.sort(x, stable=True)`.
///
/// One tensor of floats, `I64`, `U8` or `Bool` and of any layout; the results are row-major. Equal elements,
/// among them 0 and minus 0, stay in their order. NaN is larger than all. Each gradient goes to where the
/// element was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort {
    /// The dimension.
    pub dim: usize,
    /// Whether the largest comes first.
    pub descending: bool,
}

/// The `k` largest or smallest elements along a dimension, the most extreme first, and their indices (I64),
/// as `torch.topk(x, k, sorted=True)`.
///
/// One tensor of floats, `I64`, `U8` or `Bool` and of any layout; the results are row-major. Of equal
/// elements the first is taken first. NaN is larger than all. Each gradient goes to where the element was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopK {
    /// How many; at most as many as there are.
    pub k: usize,
    /// The dimension.
    pub dim: usize,
    /// Whether the largest are meant rather than the smallest.
    pub largest: bool,
}

/// What both have.
trait Ordering: Op + Copy {
    /// The dimension.
    fn dim(self) -> usize;
    /// Whether the largest comes first.
    fn descending(self) -> bool;
    /// How many elements of a line of `extent` are wanted.
    fn taken(self, extent: usize) -> usize;
}

impl Ordering for Sort {
    fn dim(self) -> usize {
        self.dim
    }

    fn descending(self) -> bool {
        self.descending
    }

    fn taken(self, extent: usize) -> usize {
        extent
    }
}

impl Ordering for TopK {
    fn dim(self) -> usize {
        self.dim
    }

    fn descending(self) -> bool {
        self.largest
    }

    fn taken(self, _extent: usize) -> usize {
        self.k
    }
}

/// The shape of the results.
fn shape_of(op: impl Ordering, input: &Shape) -> Shape {
    let extents = input.iter().enumerate();
    let extents = extents.map(|(i, &extent)| {
        if i == op.dim() {
            op.taken(extent)
        } else {
            extent
        }
    });
    extents.collect()
}

fn infer(op: impl Ordering, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
    OpError::check_arity(op.name(), inputs, 1)?;
    let dtype = Wholes::Kept.dtype_of(op.name(), &inputs[0])?;
    let shape = inputs[0].shape();
    check_dim(op.name(), shape, op.dim())?;
    let extent = Lines::new(shape, op.dim()).extent;
    let taken = op.taken(extent);
    if taken > extent || (shape.rank() == 0 && taken == 0) {
        return Err(OpError::Attribute {
            op: op.name(),
            attribute: "k",
            expected: format!(
                "at most the extent {extent} of dimension {} of {shape}",
                op.dim()
            ),
            got: taken.to_string(),
        });
    }
    if u32::try_from(extent).is_err() {
        let expected = "a dimension of fewer than 2^32 elements";
        return Err(OpError::shape(op.name(), expected, shape.to_string()));
    }
    let shape = shape_of(op, shape);
    Ok(smallvec![
        Spec::contiguous(dtype, shape.clone()),
        Spec::contiguous(DType::I64, shape)
    ])
}

/// Puts gradients back where elements were.
fn emit(op: impl Ordering, backward: &mut Backward<'_>) -> Result<(), OpError> {
    let (dim, places) = (op.dim(), backward.output(1));
    let back = ScatterAdd {
        dim,
        extent: Lines::new(backward.input(0).shape(), dim).extent,
        accumulate: false,
    };
    gradients::from(backward, back, &[places])
}

macro_rules! ordering_op {
    ($($type:ty: $entry:ident, |$this:ident, $hasher:ident| $hash:expr;)*) => {$(
        impl Op for $type {
            fn name(&self) -> &'static str {
                $entry.name
            }

            fn hash_attributes(&self, $hasher: &mut dyn Hasher) {
                let $this = self;
                $hash
            }

            fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
                infer(*self, inputs)
            }

            fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
                let extent = Lines::new(inputs[0].shape(), self.dim).extent;
                let steps = 4.0 * (extent.max(2) as f64).log2();
                let vector_flops = steps * inputs[0].layout.numel() as f64;
                Cost { vector_flops, ..cost(inputs, outputs, 0.0) }
            }

            fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
                emit(*self, backward)
            }
        }
    )*};
}

ordering_op! {
    Sort: SORT, |op, hasher| {
        hasher.write_usize(op.dim);
        hasher.write_u8(op.descending.into());
    };
    TopK: TOPK, |op, hasher| {
        hasher.write_usize(op.dim);
        hasher.write_usize(op.k);
        hasher.write_u8(op.largest.into());
    };
}

/// The plain reference.
fn reference<O: Ordering>(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: O = *op.downcast().expect("the reference of this operation");
    let input = &inputs[0];
    let lines = Lines::new(&input.shape, op.dim());
    let shape = shape_of(op, &input.shape);
    let mut values = Array::new(input.dtype, shape.clone(), vec![0.0; shape.numel()]);
    let mut places = Array::new(DType::I64, shape, values.data.clone());
    let taken = op.taken(lines.extent);
    for line in 0..lines.outer * lines.inner {
        let (row, column) = (line / lines.inner, line % lines.inner);
        let at = |i: usize| input.data[(row * lines.extent + i) * lines.inner + column];
        let mut order: Vec<usize> = (0..lines.extent).collect();
        order.sort_by(|&a, &b| {
            let (a, b) = (at(a), at(b));
            let ascending = a.is_nan().cmp(&b.is_nan());
            let ascending = ascending.then(a.partial_cmp(&b).unwrap_or(std::cmp::Ordering::Equal));
            if op.descending() {
                ascending.reverse()
            } else {
                ascending
            }
        });
        for (i, &from) in order[..taken].iter().enumerate() {
            let to = (row * taken + i) * lines.inner + column;
            values.data[to] = at(from);
            places.data[to] = from as f64;
        }
    }
    vec![values, places]
}

const SORT: Entry = Entry {
    name: "sort",
    rows: rows_of_numbers! {
        T: [T] -> [T, I64]; cpu::OrderKernel::<Sort, T>(PhantomData); Precise::new(reference::<Sort>);
        [T] -> [T, I64]; cpu::OrderKernel::<Sort, T>(PhantomData)
    },
    reference: reference::<Sort>,
    samples: || {
        let of = |descending, fill| {
            let samples = line_samples(move |dim| Sort { dim, descending }, &[fill]);
            exact(samples)
        };
        let mut samples = of(false, FAR_APART);
        samples.extend(of(true, FAR_APART));
        samples.extend(lines_of_wholes(|dim| Sort {
            dim,
            descending: true,
        }));
        samples.extend(lines_of_wholes(|dim| Sort {
            dim,
            descending: false,
        }));
        samples
    },
    rejects: || {
        line_rejects(
            |dim| Sort {
                dim,
                descending: false,
            },
            1,
        )
    },
};

const TOPK: Entry = Entry {
    name: "topk",
    rows: rows_of_numbers! {
        T: [T] -> [T, I64]; cpu::OrderKernel::<TopK, T>(PhantomData); Precise::new(reference::<TopK>);
        [T] -> [T, I64]; cpu::OrderKernel::<TopK, T>(PhantomData)
    },
    reference: reference::<TopK>,
    samples: || {
        let of = |k, largest, fill| {
            let mut samples = line_samples(move |dim| TopK { k, dim, largest }, &[fill]);
            samples.retain(|sample| sample.op.infer(&[sample.inputs[0].0.clone()]).is_ok());
            exact(samples)
        };
        let mut samples = of(1, true, FAR_APART);
        samples.extend(of(3, false, FAR_APART));
        samples.extend(of(30, true, FAR_APART));
        samples.extend(lines_of_wholes(|dim| TopK {
            k: 2,
            dim,
            largest: true,
        }));
        samples
    },
    rejects: || {
        let mut rejects = line_rejects(
            |dim| TopK {
                k: 1,
                dim,
                largest: true,
            },
            1,
        );
        rejects.push(Reject {
            op: Arc::new(TopK {
                k: 4,
                dim: 1,
                largest: true,
            }),
            inputs: vec![f32s([5, 3])],
            error: |error| matches!(error, OpError::Attribute { attribute: "k", .. }),
        });
        rejects
    },
};

/// Contents whose order finite differences seldom change.
const FAR_APART: Fill = Fill::Normal(300.0);

/// Nothing is computed that could be off.
fn exact(samples: Vec<Sample>) -> Vec<Sample> {
    let samples = samples.into_iter();
    samples.map(|sample| sample.tolerance(0.0)).collect()
}
