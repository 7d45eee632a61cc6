//! Products of elements: `prod`, and `prod_of_others`, which its gradients are made of.

mod cpu;
mod others;

use crate::float::{Precise, rows_of_floats};
use crate::fold::{self, Fold, FoldKernel, State, Turn, fold_op};
use crate::{Entry, Fill, Mul};
use highwater_graph::{Backward, OpError};
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[PROD, others::OTHERS, others::BACKWARD];

/// The product over dimensions, as `torch.prod`.
///
/// One float tensor of any layout; the result is row-major. Products are in `f64`, rounded once; that of
/// nothing is 1. The gradient of an element is the product of the others, whether there are zeros among
/// them or not, and has a gradient in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prod {
    /// Which dimensions, each at most once; none for all.
    pub dims: Vec<usize>,
    /// Whether they stay, with extent 1.
    pub keepdim: bool,
}

impl Fold for Prod {
    fn over(&self) -> (&[usize], bool) {
        (&self.dims, self.keepdim)
    }

    fn start(&self) -> State {
        [1.0, 0.0, 0.0]
    }

    fn row(&self, [product, ..]: State, _at: usize, x: &[f32]) -> State {
        [product * cpu::product(x), 0.0, 0.0]
    }

    fn column(&self, [product, ..]: [&mut [f64]; 3], _at: usize, x: &[f32]) {
        cpu::multiply(product, x);
    }

    fn join(&self, [a, ..]: State, [b, ..]: State) -> State {
        [a * b, 0.0, 0.0]
    }

    fn value(&self, [product, ..]: State, _count: usize) -> [f64; 2] {
        [product, 0.0]
    }

    fn exact(&self, x: &[f64]) -> [f64; 2] {
        [x.iter().product(), 0.0]
    }
}

fold_op!(Prod: |_op| PROD.name, |_op, _hasher| (), |op, backward| op.emit(backward));
impl Prod {
    /// Of each element the product of the others, times the gradient.
    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(Turn { x, g, .. }) = Turn::of(self, backward)? else {
            return Ok(());
        };
        let others = others::emit(backward, &self.dims, x)?;
        let grad = backward.emit_one(Mul, &[others, g])?;
        backward.set(0, grad);
        Ok(())
    }
}

const PROD: Entry = Entry {
    name: "prod",
    rows: rows_of_floats! {
        T: [T] -> [T]; FoldKernel::<Prod, T>(PhantomData); Precise::new(fold::reference::<Prod>)
    },
    reference: fold::reference::<Prod>,
    samples: || {
        let op = |dims, keepdim| Prod { dims, keepdim };
        // Products of many elements stay near 1.
        let mut samples = fold::samples(op, Fill::Uniform(0.999, 1.001));
        let small = fold::samples(op, Fill::Indices(3)).into_iter();
        samples.extend(small.filter(|sample| sample.inputs[0].0.layout.numel() < 200));
        samples
    },
    rejects: || fold::rejects(|dims, keepdim| Prod { dims, keepdim }),
};
