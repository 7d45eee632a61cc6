//! How far elements are from their mean: `var` and `std`.

mod cpu;

use crate::kernels::fold::{self, Fold, FoldKernel, State, Turn, fold_op};
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::{DivOrZero, Entry, Fill, Mean, Mul, MulScalar, Sub};
use highwater_graph::{Backward, OpError};
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[VAR, STD];

/// The variance over dimensions, or its square root: the sum of squared differences from the mean, over
/// their number less `correction`.
///
/// As `torch.var` and `torch.std`. One float tensor of any layout; the result is row-major. Sums are in
/// `f64`, differences are from the mean itself. Where the number is no larger than `correction`, the result
/// is infinite or NaN. The gradient of a standard deviation of 0 is 0, as in PyTorch.
#[derive(Debug, Clone, PartialEq)]
pub struct Var {
    /// Whether the root is taken (`std`).
    pub root: bool,
    /// What the number of elements is lessened by: 1 for a sample of a population.
    pub correction: f64,
    /// Which dimensions, each at most once; none for all.
    pub dims: Vec<usize>,
    /// Whether they stay, with extent 1.
    pub keepdim: bool,
}

impl Var {
    fn divisor(&self, count: usize) -> f64 {
        (count as f64 - self.correction).max(0.0)
    }

    fn of_squares(&self, squares: f64, count: usize) -> f64 {
        let var = squares / self.divisor(count);
        if self.root { var.sqrt() } else { var }
    }
}

impl Fold for Var {
    const FLOPS: f64 = 4.0;

    fn over(&self) -> (&[usize], bool) {
        (&self.dims, self.keepdim)
    }

    /// Number, mean, and sum of squared differences from it.
    fn start(&self) -> State {
        [0.0; 3]
    }

    fn row(&self, state: State, _at: usize, x: &[f32]) -> State {
        let mean = crate::kernels::simd::sum_block(x) / x.len() as f64;
        self.join(state, [x.len() as f64, mean, cpu::squares(x, mean)])
    }

    fn column(&self, state: [&mut [f64]; 3], _at: usize, x: &[f32]) {
        let [count, mean, squares] = state;
        let Some(&before) = count.first() else {
            return;
        };
        count.fill(before + 1.0);
        cpu::column(mean, squares, 1.0 / (before + 1.0), x);
    }

    fn join(&self, [n, mean, squares]: State, behind: State) -> State {
        let [m, mean_behind, squares_behind] = behind;
        if n == 0.0 {
            return behind;
        }
        let (all, between) = (n + m, mean_behind - mean);
        let squares = squares + squares_behind + between * between * n * m / all;
        [all, mean + between * m / all, squares]
    }

    fn value(&self, [.., squares]: State, count: usize) -> [f64; 2] {
        [self.of_squares(squares, count), 0.0]
    }

    fn exact(&self, x: &[f64]) -> [f64; 2] {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let squares = x.iter().map(|x| (x - mean) * (x - mean)).sum();
        [self.of_squares(squares, x.len()), 0.0]
    }
}

fold_op!(Var:
    |op| if op.root { STD.name } else { VAR.name },
    |op, hasher| {
        hasher.write_u8(op.root.into());
        hasher.write_u64(op.correction.to_bits());
    },
    |op, backward| op.emit(backward));

impl Var {
    /// `2 g (x - mean) / (n - correction)`; of the root `y`, `g (x - mean) / y` instead.
    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(Turn { x, y, g }) = Turn::of(self, backward)? else {
            return Ok(());
        };
        let count = x.shape().numel() / y.shape().numel().max(1);
        let mean = Mean {
            dims: self.dims.clone(),
            keepdim: true,
        };
        let mean = backward.emit_one(mean, std::slice::from_ref(&x))?;
        let difference = backward.emit_one(Sub, &[x, mean])?;
        let (factor, difference) = if self.root {
            // A quotient of the gradient may be more than half precision holds.
            (1.0, backward.emit_one(DivOrZero, &[difference, y])?)
        } else {
            (2.0, difference)
        };
        let value = factor / self.divisor(count);
        let g = backward.emit_one(MulScalar { value }, &[g])?;
        let grad = backward.emit_one(Mul, &[difference, g])?;
        backward.set(0, grad);
        Ok(())
    }
}

macro_rules! entries {
    ($($entry:ident $name:literal: $root:literal;)*) => {$(
        const $entry: Entry = Entry {
            name: $name,
            rows: rows_of_floats! {
                T: [T] -> [T]; FoldKernel::<Var, T>(PhantomData); Precise::new(fold::reference::<Var>)
            },
            reference: fold::reference::<Var>,
            samples: || {
                let of = |correction| move |dims: Vec<usize>, keepdim| {
                    Var { root: $root, correction, dims, keepdim }
                };
                let mut samples = fold::samples(of(1.0), Fill::Normal(1.0));
                samples.extend(fold::samples(of(0.0), Fill::Uniform(3.0, 4.0)));
                // What is one over nothing has no number that a tolerance could be of; where all are alike,
                // the root has no slope.
                samples.retain(|sample| {
                    let layout = &sample.inputs[0].0.layout;
                    layout.numel() > 1 && layout.end() > 4
                });
                samples
            },
            rejects: || fold::rejects(|dims, keepdim| {
                Var { root: $root, correction: 1.0, dims, keepdim }
            }),
        };
    )*};
}

entries! {
    VAR "var": false;
    STD "std": true;
}
