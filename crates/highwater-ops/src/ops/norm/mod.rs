//! Norms: `norm`, and the quotients that its gradient is made of.

mod cpu;
mod slope;

pub use slope::{DivOrZero, NormSlope};

use crate::kernels::fold::{self, Fold, FoldKernel, State, Turn, fold_op};
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::abs::AbsBackward;
use crate::ops::extremum::is_extremum;
use crate::{Abs, Div, Entry, Fill, Full, Mul, Sum};
use highwater_graph::{Autocast, Backward, OpError};
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[NORM, slope::DIV_OR_ZERO, slope::NORM_SLOPE];

/// `(sum |x|^p)^(1/p)` over dimensions, as `torch.linalg.vector_norm`: for infinite `p` the largest
/// (smallest for minus infinity) absolute value, for `p` of 0 the number of elements that are not 0.
///
/// One float tensor of any layout; the result is row-major. Sums are in `f64`. That of nothing is 0, and
/// there is none of an infinite or negative `p`. Gradients are PyTorch's: 0 where the norm is 0, and for
/// infinite `p` shared evenly among elements of the largest absolute value.
#[derive(Debug, Clone, PartialEq)]
pub struct Norm {
    /// The exponent.
    pub p: f64,
    /// Which dimensions, each at most once; none for all.
    pub dims: Vec<usize>,
    /// Whether they stay, with extent 1.
    pub keepdim: bool,
}

/// What there is to do for an exponent.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Count,
    Sum,
    Root,
    Largest,
    Smallest,
    Power(f64),
}

impl Norm {
    fn kind(&self) -> Kind {
        match self.p {
            0.0 => Kind::Count,
            1.0 => Kind::Sum,
            2.0 => Kind::Root,
            f64::INFINITY => Kind::Largest,
            f64::NEG_INFINITY => Kind::Smallest,
            p => Kind::Power(p),
        }
    }

    /// What an absolute value adds.
    fn term(&self, x: f64) -> f64 {
        match self.kind() {
            Kind::Count => f64::from(u8::from(x != 0.0)),
            Kind::Sum | Kind::Largest | Kind::Smallest => x,
            Kind::Root => x * x,
            Kind::Power(p) => x.powf(p),
        }
    }

    /// What terms make together.
    fn both(&self, a: f64, b: f64) -> f64 {
        match self.kind() {
            Kind::Largest => {
                if (b > a) | b.is_nan() {
                    b
                } else {
                    a
                }
            }
            Kind::Smallest => {
                if (b < a) | b.is_nan() {
                    b
                } else {
                    a
                }
            }
            _ => a + b,
        }
    }

    fn of_terms(&self, sum: f64) -> f64 {
        match self.kind() {
            Kind::Root => sum.sqrt(),
            Kind::Power(p) => sum.powf(1.0 / p),
            _ => sum,
        }
    }
}

impl Fold for Norm {
    const FLOPS: f64 = 2.0;
    const AUTOCAST: Autocast = Autocast::Full;

    fn over(&self) -> (&[usize], bool) {
        (&self.dims, self.keepdim)
    }

    fn is_of_nothing(&self) -> bool {
        self.p >= 0.0 && self.p.is_finite()
    }

    fn start(&self) -> State {
        let smallest = self.kind() == Kind::Smallest;
        [if smallest { f64::INFINITY } else { 0.0 }, 0.0, 0.0]
    }

    fn row(&self, [sum, ..]: State, _at: usize, x: &[f32]) -> State {
        let of_row = match self.kind() {
            Kind::Count => cpu::count(x),
            Kind::Sum => cpu::sum(x),
            Kind::Root => cpu::squares(x),
            Kind::Largest => cpu::largest(x),
            _ => {
                let terms = x.iter().map(|&x| self.term(f64::from(x.abs())));
                terms.fold(self.start()[0], |sum, term| self.both(sum, term))
            }
        };
        [self.both(sum, of_row), 0.0, 0.0]
    }

    fn column(&self, [sums, ..]: [&mut [f64]; 3], _at: usize, x: &[f32]) {
        match self.kind() {
            Kind::Count => cpu::add_counts(sums, x),
            Kind::Sum => cpu::add(sums, x),
            Kind::Root => cpu::add_squares(sums, x),
            Kind::Largest => cpu::raise(sums, x),
            _ => {
                for (sum, &x) in sums.iter_mut().zip(x) {
                    *sum = self.both(*sum, self.term(f64::from(x.abs())));
                }
            }
        }
    }

    fn join(&self, [a, ..]: State, [b, ..]: State) -> State {
        [self.both(a, b), 0.0, 0.0]
    }

    fn value(&self, [sum, ..]: State, _count: usize) -> [f64; 2] {
        [self.of_terms(sum), 0.0]
    }

    fn exact(&self, x: &[f64]) -> [f64; 2] {
        let terms = x.iter().map(|x| self.term(x.abs()));
        let sum = terms.fold(self.start()[0], |sum, term| self.both(sum, term));
        [self.of_terms(sum), 0.0]
    }
}

fold_op!(Norm: |_op| NORM.name, |op, hasher| hasher.write_u64(op.p.to_bits()),
    |op, backward| op.emit(backward));

impl Norm {
    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(Turn { x, y, g }) = Turn::of(self, backward)? else {
            return Ok(());
        };
        let grad = match self.kind() {
            Kind::Count => {
                let (value, dtype, shape) = (0.0, x.spec.dtype, x.shape().clone());
                let zeros = Full {
                    value,
                    dtype,
                    shape,
                };
                backward.emit_one(zeros, &[])?
            }
            Kind::Sum => backward.emit_one(AbsBackward, &[g, x])?,
            Kind::Root => {
                // No more than 1, where a quotient of the gradient may be more than half precision holds.
                let slope = backward.emit_one(DivOrZero, &[x, y])?;
                backward.emit_one(Mul, &[slope, g])?
            }
            Kind::Largest | Kind::Smallest => {
                let size = backward.emit_one(Abs, std::slice::from_ref(&x))?;
                let equal = is_extremum(backward, &size, &y)?;
                let count = Sum {
                    dims: self.dims.clone(),
                    keepdim: true,
                };
                let count = backward.emit_one(count, std::slice::from_ref(&equal))?;
                let share = backward.emit_one(Div, &[g, count])?;
                let share = backward.emit_one(Mul, &[equal, share])?;
                backward.emit_one(AbsBackward, &[share, x])?
            }
            Kind::Power(p) => {
                let slope = backward.emit_one(NormSlope { p }, &[x, y])?;
                backward.emit_one(Mul, &[slope, g])?
            }
        };
        backward.set(0, grad);
        Ok(())
    }
}

const NORM: Entry = Entry {
    name: "norm",
    rows: rows_of_floats! {
        T: [T] -> [T]; FoldKernel::<Norm, T>(PhantomData); Precise::new(fold::reference::<Norm>)
    },
    reference: fold::reference::<Norm>,
    samples: || {
        let of = |p| move |dims, keepdim| Norm { p, dims, keepdim };
        let mut samples = fold::samples(of(2.0), Fill::Normal(1.0));
        for p in [1.0, 0.0, 3.0, 1.5, 0.5, f64::INFINITY, f64::NEG_INFINITY] {
            let more = fold::samples(of(p), Fill::Uniform(0.2, 0.9));
            let more = fold::without_repeats(more).into_iter();
            // Enough to go both ways; the extremes of nothing are none.
            let few = more.filter(|sample| (1..7000).contains(&sample.inputs[0].0.layout.numel()));
            samples.extend(few);
        }
        samples
    },
    rejects: || {
        let of = |p| move |dims, keepdim| Norm { p, dims, keepdim };
        let mut rejects = fold::rejects(of(2.0));
        rejects.extend(fold::rejects(of(f64::INFINITY)));
        rejects.extend(fold::rejects(of(-2.0)));
        rejects
    },
};
