//! Products of elements: `prod`, and `prod_of_others`, which its gradients are made of.

mod cpu;
mod others;

use crate::kernels::fold::{self, Fold, FoldKernel, State, Turn, fold_op};
use crate::kernels::reduction::Mask;
use crate::kernels::rows::{Precise, rows_of_numbers};
use crate::kernels::whole::{self, WholeFold, WholeKernel, Wholes};
use crate::{Entry, Fill, Mul};
use highwater_graph::DType::I64;
use highwater_graph::{Autocast, Backward, OpError, Shape};
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[PROD, others::OTHERS, others::BACKWARD];

/// The product over dimensions, as `torch.prod`.
///
/// One float tensor of any layout, or one of `I64`, `U8` or `Bool`, whose products are `I64` and wrap around;
/// the result is row-major. Products of floats are in `f64`, rounded once; that of nothing is 1. The gradient
/// of an element is the product of the others, whether there are zeros among them or not, and has a gradient
/// in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prod {
    /// Which dimensions, each at most once; none for all.
    pub dims: Vec<usize>,
    /// Whether they stay, with extent 1.
    pub keepdim: bool,
}

impl Fold for Prod {
    const WHOLES: Wholes = Wholes::Counted;
    const AUTOCAST: Autocast = Autocast::Full;

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

impl WholeFold for Prod {
    fn plan_of(&self, input: &Shape) -> Result<(Mask, Shape), OpError> {
        fold::plan(self, input)
    }

    fn nothing(&self) -> [i64; 2] {
        [1, 0]
    }

    fn take(&self, [product, _]: &mut [i64; 2], _at: i64, x: i64) {
        *product = product.wrapping_mul(x);
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
    rows: rows_of_numbers! {
        T: [T] -> [T]; FoldKernel::<Prod, T>(PhantomData); Precise::new(fold::reference::<Prod>);
        [T] -> [I64]; WholeKernel::<Prod, T, i64>(PhantomData)
    },
    reference: fold::reference::<Prod>,
    samples: || {
        let op = |dims, keepdim| Prod { dims, keepdim };
        // Products of many elements stay near 1.
        let mut samples = fold::samples(op, Fill::Uniform(0.999, 1.001));
        let small = fold::samples(op, Fill::Indices(3)).into_iter();
        samples.extend(small.filter(|sample| sample.inputs[0].0.layout.numel() < 200));
        samples.extend(whole::samples(op, 3, 200));
        samples
    },
    rejects: || fold::rejects(|dims, keepdim| Prod { dims, keepdim }),
};
