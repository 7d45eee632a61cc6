//! Whole numbers, counted exactly: reductions of `I64`, `U8` and `Bool`, element by element. Sums and products
//! wrap around, as in PyTorch. A result is made by one thread, however many elements it has.
//!
//! Results that lie side by side are taken 1,024 at a time, those along rows as many to a task as come to
//! 32,768 elements. Order changes no sum of whole numbers; of equal elements the first is taken, as they come
//! in order.

#![expect(unsafe_code, reason = "tasks write disjoint results")]

use crate::kernels::blocks::{BLOCK, Reader};
use crate::kernels::checks::one_float_dtype;
use crate::kernels::lines::{Lines, line_samples};
use crate::kernels::reduction::{Mask, Plan, TASK, cases};
use crate::{Args, Disjoint, Element, Fill, Kernel, KernelError, Sample, op_as};
use highwater_graph::{DType, Op, OpError, Shape, Spec};
use std::marker::PhantomData;
use std::sync::Arc;

/// An element that is a whole number.
pub(crate) trait Whole: Element {
    /// The number.
    fn wide(self) -> i64;
    /// The number, which is one of this type.
    fn narrow(x: i64) -> Self;
}

impl Whole for i64 {
    fn wide(self) -> i64 {
        self
    }

    fn narrow(x: i64) -> Self {
        x
    }
}

impl Whole for u8 {
    fn wide(self) -> i64 {
        self.into()
    }

    fn narrow(x: i64) -> Self {
        x as Self
    }
}

/// What an operation of numbers makes of whole ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wholes {
    /// Nothing.
    Refused,
    /// Others of their type.
    Kept,
    /// Counts, of `I64`.
    Counted,
}

impl Wholes {
    /// The dtype of what is made of a dtype that is taken.
    pub(crate) fn made_of(self, dtype: DType) -> DType {
        if self == Self::Counted && !dtype.is_float() {
            return DType::I64;
        }
        dtype
    }

    /// Checks that an input's dtype is taken; the dtype of what is made of it.
    pub(crate) fn dtype_of(self, op: &'static str, input: &Spec) -> Result<DType, OpError> {
        let whole = matches!(input.dtype, DType::I64 | DType::U8 | DType::Bool);
        if self == Self::Refused || input.dtype.is_float() {
            return one_float_dtype(op, &[input]);
        }
        if !whole {
            return Err(OpError::DType {
                op,
                expected: "a float type, I64, U8 or Bool".to_owned(),
                got: input.dtype,
            });
        }
        Ok(self.made_of(input.dtype))
    }

    /// A dtype that is refused.
    pub(crate) fn refused(self) -> DType {
        match self {
            Self::Refused => DType::I64,
            _ => DType::I16,
        }
    }
}

/// A reduction of whole numbers.
pub(crate) trait WholeFold: Op {
    /// Which dimensions go, and the shape of what stays.
    fn plan_of(&self, input: &Shape) -> Result<(Mask, Shape), OpError>;

    /// What nothing becomes: a number, and its place.
    fn nothing(&self) -> [i64; 2];

    /// Takes in the `at`-th element.
    fn take(&self, state: &mut [i64; 2], at: i64, x: i64);
}

/// Reduces elements of `T` to results of `U`, one by one where their elements are neighbours, else side by side.
pub(crate) struct WholeKernel<F, T, U>(pub(crate) Of<F, T, U>);

/// A kernel's types.
type Of<F, T, U> = PhantomData<fn() -> (F, T, U)>;

impl<F: WholeFold, T: Whole, U: Whole> Kernel for WholeKernel<F, T, U> {
    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let op: &F = op_as(op)?;
        let input = &args.inputs[0];
        let Ok((mask, _)) = op.plan_of(input.spec().shape()) else {
            return Err(KernelError::WrongOp { op: op.name() });
        };
        let plan = Plan::new(input.layout(), &mask);
        let reader = Reader::<T>::through(input, &plan.layout)?;
        let [value, place @ ..] = &mut *args.outputs else {
            return Ok(());
        };
        let values = Disjoint::new(value.slice_mut::<U>()?);
        let place = place.first_mut().map(|place| place.slice_mut::<i64>());
        let places = place.transpose()?.map(Disjoint::new);
        let width = if plan.columns {
            BLOCK
        } else {
            (TASK / plan.count.clamp(1, TASK)).min(BLOCK)
        };
        args.pool.for_each(plan.sums.div_ceil(width), |task| {
            let start = task * width;
            let mut states = [op.nothing(); BLOCK];
            let states = &mut states[..width.min(plan.sums - start)];
            fold(op, &plan, &reader, start, states);
            // SAFETY: results are written once.
            let values = unsafe { values.part(start, states.len()) };
            let mut places = places
                .as_ref()
                // SAFETY: as above.
                .map(|places| unsafe { places.part(start, states.len()) });
            for (i, &[value, place]) in states.iter().enumerate() {
                values[i] = U::narrow(value);
                if let Some(places) = &mut places {
                    places[i] = place;
                }
            }
        });
        Ok(())
    }
}

/// Takes in the elements of neighbouring results, the first of which is the `start`-th.
fn fold<T: Whole>(
    op: &impl WholeFold,
    plan: &Plan,
    reader: &Reader<'_, T>,
    start: usize,
    states: &mut [[i64; 2]],
) {
    let mut buffer = [T::zeroed(); BLOCK];
    if plan.columns {
        for at in 0..plan.count {
            let x = reader.piece(at * plan.sums + start, &mut buffer[..states.len()]);
            for (state, x) in states.iter_mut().zip(x) {
                op.take(state, at as i64, x.wide());
            }
        }
        return;
    }
    for (i, state) in states.iter_mut().enumerate() {
        for first in (0..plan.count).step_by(BLOCK) {
            let len = BLOCK.min(plan.count - first);
            let x = reader.piece((start + i) * plan.count + first, &mut buffer[..len]);
            for (at, x) in x.iter().enumerate() {
                op.take(state, (first + at) as i64, x.wide());
            }
        }
    }
}

/// Fills the only output with what whole numbers along a dimension make so far, from its first or its last on. Those
/// in front of the dimension are one task each.
pub(crate) fn running<T: Whole>(
    args: &mut Args<'_>,
    dim: usize,
    reverse: bool,
    join: impl Fn(i64, i64) -> i64 + Sync,
) -> Result<(), KernelError> {
    let Lines { extent, inner, .. } = Lines::new(args.outputs[0].spec().shape(), dim);
    let reader = Reader::<T>::new(&args.inputs[0])?;
    let output = args.outputs[0].slice_mut::<i64>()?;
    let each = extent * inner;
    if each == 0 {
        return Ok(());
    }
    args.pool.for_each_chunk(output, each, |task, so_far| {
        let mut buffer = [T::zeroed(); BLOCK];
        for (i, so_far) in so_far.chunks_mut(BLOCK).enumerate() {
            let x = reader.piece(task * each + i * BLOCK, &mut buffer[..so_far.len()]);
            for (so_far, x) in so_far.iter_mut().zip(x) {
                *so_far = x.wide();
            }
        }
        for i in inner..each {
            let (from, to) = if reverse {
                (each - 1 - (i - inner), each - 1 - i)
            } else {
                (i - inner, i)
            };
            so_far[to] = join(so_far[from], so_far[to]);
        }
    });
    Ok(())
}

/// The dtypes of whole numbers, and what samples fill them with: numbers below `most`.
fn fills(most: usize) -> [(DType, Fill); 3] {
    [
        (DType::I64, Fill::Indices(most)),
        (DType::U8, Fill::Indices(most.min(256))),
        (DType::Bool, Fill::Indices(most.min(2))),
    ]
}

/// Samples of a reduction of up to `longest` whole numbers below `most`; the operation may refuse some shapes.
pub(crate) fn samples<F: Op>(
    op: impl Fn(Vec<usize>, bool) -> F,
    most: usize,
    longest: usize,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (i, (layout, dims)) in cases().into_iter().enumerate() {
        for (dtype, fill) in fills(most) {
            let (op, layout) = (op(dims.clone(), i % 2 == 0), layout.clone());
            let spec = Spec { dtype, layout };
            let taken = op.infer(std::slice::from_ref(&spec)).is_ok();
            if taken && spec.layout.numel() <= longest {
                samples.push(Sample {
                    op: Arc::new(op),
                    inputs: vec![(spec, fill)],
                    tolerance: 0.0,
                });
            }
        }
    }
    samples
}

/// Samples of an operation along a dimension, of whole numbers; it may refuse some shapes.
pub(crate) fn lines_of_wholes<O: Op>(op: impl Fn(usize) -> O + Copy) -> Vec<Sample> {
    let samples = fills(40).into_iter().flat_map(|(dtype, fill)| {
        let mut samples = line_samples(op, &[fill]);
        for sample in &mut samples {
            sample.inputs[0].0.dtype = dtype;
            sample.inputs[0].1 = fill;
            sample.tolerance = 0.0;
        }
        samples
    });
    let taken = |sample: &Sample| sample.op.infer(&[sample.inputs[0].0.clone()]).is_ok();
    samples.filter(taken).collect()
}
