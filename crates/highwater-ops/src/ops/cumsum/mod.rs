//! Running sums.

mod cpu;

use crate::kernels::lines::{LineKernel, by_lines, check_dim, line_rejects, line_samples};
use crate::kernels::pointwise::cost;
use crate::kernels::rows::{Precise, rows_of_numbers};
use crate::kernels::whole::{Wholes, lines_of_wholes};
use crate::ops::gradients::from_grad;
use crate::{Array, Entry, Fill};
use highwater_graph::DType::I64;
use highwater_graph::{Autocast, Backward, Cost, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// `y_i = x_0 + .. + x_i` along a dimension, as `torch.cumsum`; from the other end if `reverse`.
///
/// One float tensor of any layout, or one of `I64`, `U8` or `Bool`, whose sums are `I64` and wrap around; the
/// result is row-major. Sums of floats are in `f64`, each rounded once, and made in place; lines are summed
/// side by side, each from its start. The gradient is the running sum of the gradient from the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CumSum {
    /// The dimension.
    pub dim: usize,
    /// Whether `y_i` is the sum from `x_i` to the last element instead.
    pub reverse: bool,
}

const ENTRY: Entry = Entry {
    name: "cumsum",
    rows: rows_of_numbers! {
        T: [T] -> [T]; LineKernel::<CumSum, T>::NEW; Precise::new(reference);
        [T] -> [I64]; cpu::sum_wholes::<T>
    },
    reference,
    samples: || {
        let of = |reverse| line_samples(move |dim| CumSum { dim, reverse }, &[Fill::Normal(1.0)]);
        let mut samples = of(false);
        samples.extend(of(true));
        for reverse in [false, true] {
            samples.extend(lines_of_wholes(|dim| CumSum { dim, reverse }));
        }
        samples
    },
    rejects: || {
        line_rejects(
            |dim| CumSum {
                dim,
                reverse: false,
            },
            1,
        )
    },
};

impl Op for CumSum {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_usize(self.dim);
        hasher.write_u8(self.reverse.into());
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 1)?;
        let dtype = Wholes::Counted.dtype_of(self.name(), &inputs[0])?;
        let shape = inputs[0].shape();
        check_dim(self.name(), shape, self.dim)?;
        Ok(smallvec![Spec::contiguous(dtype, shape.clone())])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, 1.0)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Full
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let reverse = !self.reverse;
        from_grad(backward, Self { reverse, ..*self })
    }
}

/// The plain reference.
fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &CumSum = op.downcast().expect("the reference of this operation");
    let mut sums = by_lines(inputs, op.dim, |lines| {
        let mut sum = 0.0;
        let add = |x: &f64| {
            sum += x;
            sum
        };
        if op.reverse {
            let mut sums: Vec<f64> = lines[0].iter().rev().map(add).collect();
            sums.reverse();
            sums
        } else {
            lines[0].iter().map(add).collect()
        }
    });
    sums[0].dtype = Wholes::Counted.made_of(inputs[0].dtype);
    sums
}
