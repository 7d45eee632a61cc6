//! Products of elements.

mod cpu;

use crate::float::{Precise, rows_of_floats};
use crate::fold::{self, Fold, FoldKernel, State, Turn, fold_op};
use crate::pointwise::{self, Pointwise, pointwise_op};
use crate::simd::Isa;
use crate::{Add, DivOrZero, Entry, Fill, Mul};
use highwater_graph::{Backward, OpError};
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[PROD, PROD_BESIDE_ZERO, AT_ZERO];

/// The product over dimensions, as `torch.prod`.
///
/// One float tensor of any layout; the result is row-major. Products are in `f64`, rounded once; that of
/// nothing is 1. The gradient of an element is the product of the others, whether there are zeros among
/// them or not; there is no gradient of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prod {
    /// Which dimensions, each at most once; none for all.
    pub dims: Vec<usize>,
    /// Whether they stay, with extent 1.
    pub keepdim: bool,
}

/// The product of the others where one element is 0; 0 where none is, or several are.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProdBesideZero {
    dims: Vec<usize>,
    keepdim: bool,
}

/// `a` where `x` is 0, else 0, of inputs `a` and `x`.
#[derive(Debug, Clone, Copy)]
struct AtZero;

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

impl Fold for ProdBesideZero {
    const FLOPS: f64 = 2.0;

    fn over(&self) -> (&[usize], bool) {
        (&self.dims, self.keepdim)
    }

    /// The product of all but zeros, and how many of those there are.
    fn start(&self) -> State {
        [1.0, 0.0, 0.0]
    }

    fn row(&self, [product, zeros, _]: State, _at: usize, x: &[f32]) -> State {
        let (of_others, more) = cpu::product_of_others(x);
        [product * of_others, zeros + more, 0.0]
    }

    fn column(&self, [product, zeros, _]: [&mut [f64]; 3], _at: usize, x: &[f32]) {
        cpu::multiply_others(product, zeros, x);
    }

    fn join(&self, [a, n, _]: State, [b, m, _]: State) -> State {
        [a * b, n + m, 0.0]
    }

    #[expect(clippy::float_cmp, reason = "a count")]
    fn value(&self, [product, zeros, _]: State, _count: usize) -> [f64; 2] {
        [if zeros == 1.0 { product } else { 0.0 }, 0.0]
    }

    fn exact(&self, x: &[f64]) -> [f64; 2] {
        let others = x.iter().filter(|&&x| x != 0.0);
        let zeros = x.len() - others.clone().count();
        [if zeros == 1 { others.product() } else { 0.0 }, 0.0]
    }
}

fold_op!(Prod: |_op| PROD.name, |_op, _hasher| (), |op, backward| op.emit(backward));
fold_op!(ProdBesideZero: |_op| PROD_BESIDE_ZERO.name, |_op, _hasher| (),
    |_op, _backward| Err(OpError::NotDifferentiable { op: PROD.name }));

impl Prod {
    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(Turn { x, y, g }) = Turn::of(self, backward)? else {
            return Ok(());
        };
        let beside = ProdBesideZero {
            dims: self.dims.clone(),
            keepdim: true,
        };
        let beside = backward.emit_one(beside, std::slice::from_ref(&x))?;
        let of_zeros = backward.emit_one(AtZero, &[beside, x.clone()])?;
        let of_others = backward.emit_one(DivOrZero, &[y, x])?;
        let others = backward.emit_one(Add, &[of_zeros, of_others])?;
        let grad = backward.emit_one(Mul, &[others, g])?;
        backward.set(0, grad);
        Ok(())
    }
}

pointwise_op!(AtZero: 2);

impl Pointwise<2> for AtZero {
    const NAME: &'static str = "at_zero";
    const FLOPS: f64 = 1.0;

    #[expect(
        clippy::inline_always,
        reason = "compiled for the instruction set of the caller"
    )]
    #[inline(always)]
    fn value<I: Isa>(&self, [a, x]: [f32; 2]) -> f32 {
        if x == 0.0 { a } else { 0.0 }
    }

    fn exact(&self, [a, x]: [f64; 2]) -> f64 {
        if x == 0.0 { a } else { 0.0 }
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

const PROD_BESIDE_ZERO: Entry = Entry {
    name: "prod_beside_zero",
    rows: rows_of_floats! {
        T: [T] -> [T];
        FoldKernel::<ProdBesideZero, T>(PhantomData);
        Precise::new(fold::reference::<ProdBesideZero>)
    },
    reference: fold::reference::<ProdBesideZero>,
    samples: || {
        let op = |dims, keepdim| ProdBesideZero { dims, keepdim };
        let mut samples = fold::samples(op, Fill::Uniform(0.999, 1.001));
        samples.extend(fold::samples(op, Fill::Indices(2)));
        samples
    },
    rejects: || fold::rejects(|dims, keepdim| ProdBesideZero { dims, keepdim }),
};

const AT_ZERO: Entry = pointwise::binary_entry::<AtZero>(
    || pointwise::binary_samples(&AtZero, [Fill::Normal(1.0), Fill::Indices(2)]),
    || pointwise::rejects::<2>(&AtZero),
);
