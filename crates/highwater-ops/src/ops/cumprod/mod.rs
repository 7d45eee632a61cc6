//! Running products: `cumprod` and `cumprod_backward`.

mod cpu;

use crate::kernels::lines::{
    LineKernel, PairKernel, by_lines, check_dim, line_ops, line_rejects, line_samples,
};
use crate::kernels::pointwise::cost;
use crate::kernels::rows::{Precise, rows_of_floats, rows_of_numbers};
use crate::kernels::whole::{Wholes, lines_of_wholes};
use crate::ops::gradients::from_input;
use crate::{Array, Entry, Fill};
use highwater_graph::DType::I64;
use highwater_graph::{Autocast, Backward, Cost, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY, BACKWARD];

/// `y_i = x_0 * .. * x_i` along a dimension, as `torch.cumprod`.
///
/// One float tensor of any layout, or one of `I64`, `U8` or `Bool`, whose products are `I64` and wrap around; the
/// result is row-major. Products of floats are in `f64`, each rounded once, and made in place. The gradient divides
/// by nothing, so zeros are like other numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CumProd {
    /// The dimension.
    pub dim: usize,
}

/// The gradient of [`CumProd`], of inputs `g`, which the result may lie over, and `x`. With `p_i` the product of all
/// before `x_i`, and `s_i = g_i + x_{i+1} s_{i+1}`, it is `p_i s_i`. Has no gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CumProdBackward {
    dim: usize,
}

const ENTRY: Entry = Entry {
    name: "cumprod",
    rows: rows_of_numbers! {
        T: [T] -> [T]; LineKernel::<CumProd, T>::NEW; Precise::new(reference);
        [T] -> [I64]; cpu::wholes::<T>
    },
    reference,
    samples: || {
        let of = |fill| {
            let mut samples = line_samples(|dim| CumProd { dim }, &[fill]);
            // Of none are products too large to compare.
            for sample in &mut samples {
                sample.inputs[0].1 = fill;
            }
            samples
        };
        let mut samples = of(AROUND_ONE);
        samples.extend(of(Fill::Indices(3)));
        // Whole numbers of `I64` wrap around, but the reference's do not.
        let wholes = lines_of_wholes(|dim| CumProd { dim }).into_iter();
        samples.extend(wholes.map(|mut sample| {
            sample.inputs[0].1 = Fill::Indices(2);
            sample
        }));
        samples
    },
    rejects: || line_rejects(|dim| CumProd { dim }, 1),
};

const BACKWARD: Entry = Entry {
    name: "cumprod_backward",
    rows: rows_of_floats! {
        T: [T, T] -> [T];
        PairKernel::<CumProdBackward, T>::NEW;
        Precise::new(backward_reference)
    },
    reference: backward_reference,
    samples: || {
        let of = |fill| line_samples(|dim| CumProdBackward { dim }, &[Fill::Normal(1.0), fill]);
        let mut samples = of(AROUND_ONE);
        samples.extend(of(Fill::Indices(3)));
        for sample in &mut samples {
            // Sums of thousands.
            sample.tolerance *= 10.0;
        }
        samples
    },
    rejects: || line_rejects(|dim| CumProdBackward { dim }, 2),
};

/// Factors whose products of thousands are neither large nor nothing.
const AROUND_ONE: Fill = Fill::Uniform(0.995, 1.005);

line_ops! {
    CumProdBackward: BACKWARD.name, 2, 4.0;
}

impl Op for CumProd {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_usize(self.dim);
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
        from_input(backward, CumProdBackward { dim: self.dim })
    }
}

/// The plain reference.
fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &CumProd = op.downcast().expect("the reference of this operation");
    let mut products = by_lines(inputs, op.dim, |lines| {
        let so_far = |i: usize| lines[0][..=i].iter().product();
        (0..lines[0].len()).map(so_far).collect()
    });
    products[0].dtype = Wholes::Counted.made_of(inputs[0].dtype);
    products
}

/// The plain reference: of every product, its derivative by each of its factors.
fn backward_reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let dim = op.downcast().map_or(0, |op: &CumProdBackward| op.dim);
    by_lines(inputs, dim, |lines| {
        let (g, x) = (lines[0], lines[1]);
        let mut gradient = vec![0.0; x.len()];
        let mut before = 1.0;
        for k in 0..x.len() {
            // The product of all up to the i-th but the k-th.
            let mut others = before;
            for i in k..x.len() {
                others *= if i == k { 1.0 } else { x[i] };
                gradient[k] += g[i] * others;
            }
            before *= x[k];
        }
        gradient
    })
}
