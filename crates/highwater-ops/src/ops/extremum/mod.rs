//! The largest and smallest elements: `amax` and `amin`, and with their places `max` and `min`.

mod cpu;

use crate::kernels::fold::{self, Fold, FoldKernel, State, Turn, fold_op};
use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::reduction::Mask;
use crate::kernels::rows::{Precise, rows_of_numbers};
use crate::kernels::simd::Isa;
use crate::kernels::whole::{self, WholeFold, WholeKernel, Wholes};
use crate::{Div, Entry, Fill, Mul, ScatterAdd, Sum};
use highwater_graph::{Backward, OpError, Operand, Shape};
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[AMAX, AMIN, MAX, MIN, IS_EXTREMUM];

/// The largest or smallest element over dimensions, as `torch.amax` and `torch.amin`.
///
/// One tensor of floats, `I64`, `U8` or `Bool` and of any layout; the result is row-major. NaN is larger than
/// all and smaller than all. Nothing at all has no result. The gradient is shared evenly among those that are
/// equal to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extremum {
    /// Whether the largest is meant (`amax`) rather than the smallest (`amin`).
    pub largest: bool,
    /// Which dimensions, each at most once; none for all.
    pub dims: Vec<usize>,
    /// Whether they stay, with extent 1.
    pub keepdim: bool,
}

/// As [`Extremum`], and which element that is (I64), as `torch.max(x, dim)` and `torch.min(x, dim)`: the
/// first of several, counted in the row-major order of the dimensions. The whole gradient goes to that
/// element; over other than one dimension there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtremumAt {
    /// Whether the largest is meant (`max`) rather than the smallest (`min`).
    pub largest: bool,
    /// Which dimensions, each at most once; none for all.
    pub dims: Vec<usize>,
    /// Whether they stay, with extent 1.
    pub keepdim: bool,
}

/// 1 where inputs are equal or both NaN, else 0. No gradient: see [`is_extremum`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IsExtremum;

/// Where elements are the extremum `y`, as 1 and 0: a choice, which nothing is differentiated through.
pub(crate) fn is_extremum(
    backward: &mut Backward<'_>,
    x: &Operand,
    y: &Operand,
) -> Result<Operand, OpError> {
    let fixed = [x, y].map(|operand| Operand {
        requires_grad: false,
        ..operand.clone()
    });
    backward.emit_one(IsExtremum, &fixed)
}

/// 1, or -1 to find the smallest as the largest of the negated.
fn sign(largest: bool) -> f64 {
    if largest { 1.0 } else { -1.0 }
}

macro_rules! extremum {
    ($type:ident, $place:literal) => {
        impl Fold for $type {
            const PLACE: bool = $place;
            const WHOLES: Wholes = Wholes::Kept;

            fn over(&self) -> (&[usize], bool) {
                (&self.dims, self.keepdim)
            }

            fn is_of_nothing(&self) -> bool {
                false
            }

            /// The element times the sign, and its place.
            fn start(&self) -> State {
                [f64::NEG_INFINITY, 0.0, 0.0]
            }

            fn row(&self, state: State, at: usize, x: &[f32]) -> State {
                cpu::row(state, at, x, sign(self.largest) as f32)
            }

            fn column(&self, state: [&mut [f64]; 3], at: usize, x: &[f32]) {
                let [largest, place, _] = state;
                cpu::column(largest, place, at as f64, x, sign(self.largest));
            }

            fn join(&self, state: State, behind: State) -> State {
                if cpu::is_better(behind[0], state[0]) {
                    behind
                } else {
                    state
                }
            }

            fn value(&self, state: State, _count: usize) -> [f64; 2] {
                [state[0] * sign(self.largest), state[1]]
            }

            fn exact(&self, x: &[f64]) -> [f64; 2] {
                let mut best = 0;
                for (i, &x_i) in x.iter().enumerate() {
                    let sign = sign(self.largest);
                    if cpu::is_better(sign * x_i, sign * x[best]) {
                        best = i;
                    }
                }
                [x[best], best as f64]
            }
        }

        impl WholeFold for $type {
            fn plan_of(&self, input: &Shape) -> Result<(Mask, Shape), OpError> {
                fold::plan(self, input)
            }

            fn nothing(&self) -> [i64; 2] {
                [if self.largest { i64::MIN } else { i64::MAX }, 0]
            }

            fn take(&self, state: &mut [i64; 2], at: i64, x: i64) {
                if if self.largest {
                    x > state[0]
                } else {
                    x < state[0]
                } {
                    *state = [x, at];
                }
            }
        }
    };
}
extremum!(Extremum, false);
extremum!(ExtremumAt, true);

fold_op!(Extremum:
    |op| if op.largest { AMAX.name } else { AMIN.name },
    |op, hasher| hasher.write_u8(op.largest.into()),
    |op, backward| op.share(backward));

fold_op!(ExtremumAt:
    |op| if op.largest { MAX.name } else { MIN.name },
    |op, hasher| hasher.write_u8(op.largest.into()),
    |op, backward| op.put_back(backward));

impl Extremum {
    fn share(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(Turn { x, y, g }) = Turn::of(self, backward)? else {
            return Ok(());
        };
        let equal = is_extremum(backward, &x, &y)?;
        let count = Sum {
            dims: self.dims.clone(),
            keepdim: true,
        };
        let count = backward.emit_one(count, std::slice::from_ref(&equal))?;
        let share = backward.emit_one(Div, &[g, count])?;
        let grad = backward.emit_one(Mul, &[equal, share])?;
        backward.set(0, grad);
        Ok(())
    }
}

impl ExtremumAt {
    fn put_back(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(Turn { x, y, g }) = Turn::of(self, backward)? else {
            return Ok(());
        };
        let [dim] = self.dims[..] else {
            return Err(OpError::NotDifferentiable {
                op: highwater_graph::Op::name(self),
            });
        };
        let place = backward.output(1);
        let layout = place.spec.layout.reshape(y.shape());
        let place = place.with_layout(layout.unwrap_or_else(|| y.spec.layout.clone()));
        let op = ScatterAdd {
            dim,
            extent: x.shape().get(dim).copied().unwrap_or(1),
            accumulate: false,
        };
        let grad = backward.emit_one(op, &[g, place])?;
        backward.set(0, grad);
        Ok(())
    }
}

pointwise_op!(IsExtremum: 2);

impl Pointwise<2> for IsExtremum {
    const NAME: &'static str = "is_extremum";
    const FLOPS: f64 = 2.0;

    #[expect(
        clippy::inline_always,
        reason = "compiled for the instruction set of the caller"
    )]
    #[expect(clippy::float_cmp, reason = "one was made from the other")]
    #[inline(always)]
    fn value<I: Isa>(&self, [x, y]: [f32; 2]) -> f32 {
        f32::from(u8::from((x == y) | (x.is_nan() & y.is_nan())))
    }

    #[expect(clippy::float_cmp, reason = "as above")]
    fn exact(&self, [x, y]: [f64; 2]) -> f64 {
        f64::from(u8::from((x == y) | (x.is_nan() & y.is_nan())))
    }
}

macro_rules! entries {
    ($($entry:ident $name:literal: $type:ident, $largest:literal, [$($out:ident),*];)*) => {$(
        const $entry: Entry = Entry {
            name: $name,
            rows: rows_of_numbers! {
                T: [T] -> [$($out),*];
                FoldKernel::<$type, T>(PhantomData);
                Precise::new(fold::reference::<$type>);
                [T] -> [$($out),*];
                WholeKernel::<$type, T, T>(PhantomData)
            },
            reference: fold::reference::<$type>,
            samples: || {
                let op = |dims, keepdim| $type { largest: $largest, dims, keepdim };
                let mut samples = fold::without_repeats(fold::samples(op, Fill::Normal(1.0)));
                samples.extend(whole::samples(op, 50, usize::MAX));
                samples
            },
            rejects: || fold::rejects(|dims, keepdim| $type { largest: $largest, dims, keepdim }),
        };
    )*};
}

use highwater_graph::DType::I64;
entries! {
    AMAX "amax": Extremum, true, [T];
    AMIN "amin": Extremum, false, [T];
    MAX "max": ExtremumAt, true, [T, I64];
    MIN "min": ExtremumAt, false, [T, I64];
}

const IS_EXTREMUM: Entry = pointwise::binary_entry::<IsExtremum>(
    || {
        let mut samples = pointwise::binary_samples(&IsExtremum, [Fill::Normal(1.0); 2]);
        let whole = [Fill::Indices(2), Fill::Constant(1.0)];
        samples.extend(pointwise::binary_samples(&IsExtremum, whole));
        samples
    },
    || pointwise::rejects::<2>(&IsExtremum),
);
