//! The largest and smallest elements so far, and where they are: `cummax` and `cummin`.

mod cpu;

use crate::kernels::lines::{Lines, by_lines, check_dim, line_rejects, line_samples};
use crate::kernels::pointwise::cost;
use crate::kernels::rows::{Precise, rows_of_numbers};
use crate::kernels::whole::{Wholes, lines_of_wholes};
use crate::ops::gradients;
use crate::{Array, Entry, Fill, Sample, ScatterAdd};
use highwater_graph::DType::I64;
use highwater_graph::{Backward, Cost, DType, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[CUMMAX, CUMMIN];

/// The largest or smallest of the elements up to each along a dimension, and its index (I64), as `torch.cummax` and
/// `torch.cummin`.
///
/// One tensor of floats, `I64`, `U8` or `Bool` and of any layout; the results are row-major. Of equal elements the
/// last is taken, and NaN over all. Gradients go to the elements that were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CumExtremum {
    /// Whether the largest is meant (`cummax`) rather than the smallest (`cummin`).
    pub largest: bool,
    /// The dimension.
    pub dim: usize,
}

macro_rules! entries {
    ($($entry:ident $name:literal: $largest:literal;)*) => {$(
        const $entry: Entry = Entry {
            name: $name,
            rows: rows_of_numbers! {
                T: [T] -> [T, I64]; cpu::run::<T>; Precise::new(reference);
                [T] -> [T, I64]; cpu::run::<T>
            },
            reference,
            samples: || samples($largest),
            rejects: || line_rejects(|dim| CumExtremum { largest: $largest, dim }, 1),
        };
    )*};
}

entries! {
    CUMMAX "cummax": true;
    CUMMIN "cummin": false;
}

/// Contents whose order finite differences seldom change, and whose sums keep their digits.
fn samples(largest: bool) -> Vec<Sample> {
    let op = move |dim| CumExtremum { largest, dim };
    let mut samples = line_samples(op, &[Fill::Normal(30.0)]);
    samples.extend(lines_of_wholes(op));
    samples
}

impl Op for CumExtremum {
    fn name(&self) -> &'static str {
        if self.largest {
            CUMMAX.name
        } else {
            CUMMIN.name
        }
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_usize(self.dim);
        hasher.write_u8(self.largest.into());
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 1)?;
        let dtype = Wholes::Kept.dtype_of(self.name(), &inputs[0])?;
        let shape = inputs[0].shape();
        check_dim(self.name(), shape, self.dim)?;
        let like = |dtype: DType| Spec::contiguous(dtype, shape.clone());
        Ok(smallvec![like(dtype), like(I64)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, 2.0)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let places = backward.output(1);
        let back = ScatterAdd {
            dim: self.dim,
            extent: Lines::new(backward.input(0).shape(), self.dim).extent,
            accumulate: false,
        };
        gradients::from(backward, back, &[places])
    }
}

/// The plain reference.
fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &CumExtremum = op.downcast().expect("the reference of this operation");
    let sign = if op.largest { 1.0 } else { -1.0 };
    let best_of = |x: &[f64]| -> usize {
        let mut best = 0;
        for (i, &x_i) in x.iter().enumerate() {
            let is_better = !x[best].is_nan() && sign * x_i >= sign * x[best];
            if x_i.is_nan() || is_better {
                best = i;
            }
        }
        best
    };
    let of = |make: &dyn Fn(&[f64]) -> f64| {
        let mut made = by_lines(inputs, op.dim, |lines| {
            let x = lines[0];
            (0..x.len()).map(|i| make(&x[..=i])).collect()
        });
        made.remove(0)
    };
    let values = of(&|x| x[best_of(x)]);
    let places = of(&|x| best_of(x) as f64);
    vec![values, Array::new(I64, places.shape, places.data)]
}
