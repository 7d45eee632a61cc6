//! Of each element of a line, the product of the others, and the gradient of that.
//!
//! With `P` the product of the elements that are not 0, `z` of which there are others, `h` a gradient, and `S` the
//! sum of `h_i / x_i` over the former and `T` that of `h_i` over the latter, nothing is divided by 0:
//!
//! | zeros | the product of all but `x_j` | its gradient, the sum over `i` but `j` of `h_i` times the product of all but both |
//! |---|---|---|
//! | none | `P / x_j` | `P / x_j (S - h_j / x_j)` |
//! | one | `P` where it is `x_j` | `P S` where it is `x_j`, else `P / x_j T` |
//! | two | 0 | `P (T - h_j)` where one is `x_j` |
//! | more | 0 | 0 |
//!
//! Their kernels go over a line, in `f64`, twice: for the product, the zeros and the sums, and for the
//! results, which lie over what was read. Lines are cut as `lines/` says, those of a tile walked by their
//! stride there, and a line's elements are taken in their order.

use crate::kernels::lines::{
    LineKernel, Lines, OfLine, OfPair, PairKernel, line_ops, line_rejects, line_samples,
};
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::gradients;
use crate::{Array, Copy, Entry, Fill};
use highwater_graph::{Backward, Layout, Op, OpError, Operand, Shape};
use smallvec::SmallVec;

/// `y_i`, the product of all `x_j` along a dimension but `x_i`. One float tensor of any layout; the result is
/// row-major and may lie over it. Products are in `f64`, rounded once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProdOfOthers {
    dim: usize,
}

/// The gradient of [`ProdOfOthers`] of inputs `h`, which the result may lie over, and `x`. Has no gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProdOfOthersBackward {
    dim: usize,
}

/// Emits, for each element of `x`, the product of the others in the dimensions, or in all if there are none.
pub(super) fn emit(
    backward: &mut Backward<'_>,
    dims: &[usize],
    x: Operand,
) -> Result<Operand, OpError> {
    let rank = x.shape().rank();
    if let &[dim] = dims {
        return backward.emit_one(ProdOfOthers { dim }, &[x]);
    }
    let goes = |dim: &usize| dims.is_empty() || dims.contains(dim);
    let mut order: SmallVec<[usize; 5]> = (0..rank).filter(|dim| !goes(dim)).collect();
    let kept = order.len();
    order.extend((0..rank).filter(goes));
    let mut inverse = order.clone();
    for (to, &from) in order.iter().enumerate() {
        inverse[from] = to;
    }
    let turned = seen(&x, x.spec.layout.permute(&order))?;
    let shape = turned.shape().clone();
    let (lead, line) = shape.split_at(kept);
    let length = line.iter().product();
    let lines: Shape = lead.iter().copied().chain([length]).collect();
    let flat = if turned.spec.layout.reshape(&lines).is_some() {
        turned
    } else {
        backward.emit_one(Copy, &[turned])?
    };
    let flat = seen(&flat, flat.spec.layout.reshape(&lines))?;
    let others = backward.emit_one(ProdOfOthers { dim: kept }, &[flat])?;
    let others = seen(&others, others.spec.layout.reshape(&shape))?;
    seen(&others, others.spec.layout.permute(&inverse))
}

fn seen(x: &Operand, layout: Option<Layout>) -> Result<Operand, OpError> {
    let refused = || OpError::shape("prod", "dimensions of the input", x.spec.to_string());
    Ok(x.with_layout(layout.ok_or_else(refused)?))
}

/// What a line's elements come to.
#[derive(Debug, Clone, Copy)]
struct Line {
    /// Of those that are not 0.
    product: f64,
    zeros: usize,
}

impl Line {
    fn new() -> Self {
        Self {
            product: 1.0,
            zeros: 0,
        }
    }

    fn take(&mut self, x: f64) {
        if x == 0.0 {
            self.zeros += 1;
        } else {
            self.product *= x;
        }
    }

    /// The product of all but one element.
    fn without(self, x: f64) -> f64 {
        match (self.zeros, x == 0.0) {
            (0, _) => self.product / x,
            (1, true) => self.product,
            _ => 0.0,
        }
    }
}

/// [`Line`] with the sums of the gradient: of `h / x` where `x` is not 0, and of `h` where it is.
#[derive(Debug, Clone, Copy)]
struct Pulled {
    line: Line,
    sums: [f64; 2],
}

impl Pulled {
    fn new() -> Self {
        Self {
            line: Line::new(),
            sums: [0.0; 2],
        }
    }

    fn take(&mut self, h: f64, x: f64) {
        self.line.take(x);
        let is_zero = x == 0.0;
        self.sums[usize::from(is_zero)] += if is_zero { h } else { h / x };
    }

    fn gradient(self, h: f64, x: f64) -> f64 {
        let (product, [of_others, of_zeros]) = (self.line.product, self.sums);
        match (self.line.zeros, x == 0.0) {
            (0, _) => product / x * (of_others - h / x),
            (1, true) => product * of_others,
            (1, false) => product / x * of_zeros,
            (2, true) => product * (of_zeros - h),
            _ => 0.0,
        }
    }
}

line_ops! {
    ProdOfOthers: "prod_of_others", 1, 8.0, gradient;
    ProdOfOthersBackward: "prod_of_others_backward", 2, 16.0;
}

fn gradient(op: ProdOfOthers, backward: &mut Backward<'_>) -> Result<(), OpError> {
    gradients::from_input(backward, ProdOfOthersBackward { dim: op.dim })
}

impl ProdOfOthers {
    /// Of every `step`-th element from `start` on.
    fn line(x: &mut [f32], start: usize, step: usize) {
        let mut line = Line::new();
        let elements = x[start..].iter().step_by(step);
        elements.for_each(|&x| line.take(f64::from(x)));
        for x in x[start..].iter_mut().step_by(step) {
            *x = line.without(f64::from(*x)) as f32;
        }
    }
}

impl OfLine for ProdOfOthers {
    fn dim(&self) -> usize {
        self.dim
    }

    fn row(&self, x: &mut [f32]) {
        Self::line(x, 0, 1);
    }

    fn columns(&self, x: &mut [f32], width: usize) {
        (0..width.min(x.len())).for_each(|column| Self::line(x, column, width));
    }
}

impl ProdOfOthersBackward {
    /// Of every `step`-th element from `start` on.
    fn line(h: &mut [f32], x: &[f32], start: usize, step: usize) {
        let mut line = Pulled::new();
        let x = || x[start..].iter().step_by(step);
        for (h, x) in h[start..].iter().step_by(step).zip(x()) {
            line.take(f64::from(*h), f64::from(*x));
        }
        for (h, x) in h[start..].iter_mut().step_by(step).zip(x()) {
            *h = line.gradient(f64::from(*h), f64::from(*x)) as f32;
        }
    }
}

impl OfPair for ProdOfOthersBackward {
    fn dim(&self) -> usize {
        self.dim
    }

    fn row(&self, h: &mut [f32], x: &[f32]) {
        Self::line(h, x, 0, 1);
    }

    fn columns(&self, h: &mut [f32], x: &[f32], width: usize) {
        (0..width.min(x.len())).for_each(|column| Self::line(h, x, column, width));
    }
}

/// The positions of each line's elements.
fn lines(shape: &Shape, dim: usize) -> impl Iterator<Item = Vec<usize>> {
    let Lines {
        outer,
        extent,
        inner,
    } = Lines::new(shape, dim);
    (0..outer * inner).map(move |line| {
        let first = line / inner * extent * inner + line % inner;
        (0..extent).map(|i| first + i * inner).collect()
    })
}

/// The product of all elements of a line but some.
fn product(x: &Array, line: &[usize], but: &[usize]) -> f64 {
    let others = line.iter().filter(|at| !but.contains(at));
    others.map(|&at| x.data[at]).product()
}

/// The plain reference: of each element, what stands before it times what stands behind it, so that long lines, as
/// those that `prod` is tried on, take one pass each way.
fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &ProdOfOthers = op.downcast().expect("prod_of_others");
    let (x, mut y) = (&inputs[0], inputs[0].clone());
    for line in lines(&y.shape, op.dim) {
        let mut before = 1.0;
        for &at in &line {
            y.data[at] = before;
            before *= x.data[at];
        }
        let mut behind = 1.0;
        for &at in line.iter().rev() {
            // A zero on one side, where the other is too large for a number.
            let is_zero = y.data[at] == 0.0 || behind == 0.0;
            y.data[at] = if is_zero { 0.0 } else { y.data[at] * behind };
            behind *= x.data[at];
        }
    }
    vec![y]
}

/// The plain reference of the gradient.
fn backward_reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &ProdOfOthersBackward = op.downcast().expect("prod_of_others_backward");
    let (h, x) = (&inputs[0], &inputs[1]);
    let mut grad = h.clone();
    for line in lines(&x.shape, op.dim) {
        for &at in &line {
            let others = line.iter().filter(|&&other| other != at);
            let terms = others.map(|&other| h.data[other] * product(x, &line, &[at, other]));
            grad.data[at] = terms.sum();
        }
    }
    vec![grad]
}

/// Few elements near 1, and whole numbers, zeros among them.
fn samples<O: Op + Clone>(
    op: impl Fn(usize) -> O + std::marker::Copy,
    inputs: usize,
) -> Vec<crate::Sample> {
    let fills = [Fill::Uniform(0.9, 1.1), Fill::Indices(3)];
    let of = |fill| {
        let fills = [vec![Fill::Normal(1.0); inputs - 1], vec![fill]].concat();
        line_samples(op, &fills)
    };
    let mut samples: Vec<_> = fills.into_iter().flat_map(of).collect();
    // The gradient's plain reference goes over each line once for each pair of its elements.
    let most = if inputs == 1 { 1000 } else { 200 };
    samples.retain(|sample| sample.inputs[0].0.layout.numel() < most);
    // Products of large numbers leave no digits to differences.
    samples.retain(|sample| sample.inputs[0].1 != Fill::Normal(100.0));
    samples
}

pub(super) const OTHERS: Entry = Entry {
    name: "prod_of_others",
    rows: rows_of_floats! {
        T: [T] -> [T]; LineKernel::<ProdOfOthers, T>::NEW; Precise::new(reference)
    },
    reference,
    samples: || samples(|dim| ProdOfOthers { dim }, 1),
    rejects: || line_rejects(|dim| ProdOfOthers { dim }, 1),
};

pub(super) const BACKWARD: Entry = Entry {
    name: "prod_of_others_backward",
    rows: rows_of_floats! {
        T: [T] -> [T]; PairKernel::<ProdOfOthersBackward, T>::NEW; Precise::new(backward_reference)
    },
    reference: backward_reference,
    samples: || samples(|dim| ProdOfOthersBackward { dim }, 2),
    rejects: || line_rejects(|dim| ProdOfOthersBackward { dim }, 2),
};
