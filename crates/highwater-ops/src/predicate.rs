//! What operations share whose elements are true or false, each by one element of each input.

#![expect(clippy::float_cmp, reason = "zero is zero")]

use crate::blocks::BLOCK;
use crate::float::{Float, as_f32, is_f32};
use crate::pointwise::{self, dense_like};
use crate::simd::multiversion;
use crate::{
    Args, Array, DTypes, Element, Entry, Fill, KernelError, Reject, Row, Sample, View, blocks,
};
use half::{bf16, f16};
use highwater_graph::{DType, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::marker::PhantomData;
use std::sync::Arc;

/// An operation of `N` inputs that broadcast to one shape, all of one dtype, whose output is of `Bool`.
pub(crate) trait Predicate<const N: usize>: Op + Copy + Default {
    /// [`Op::name`].
    const NAME: &'static str;
    /// Which dtypes it takes.
    const TAKES: Takes;

    /// The answer for one element of each input.
    fn holds<T: Number>(x: [T; N]) -> bool;

    /// The answers for slices of one length, by [`one`] or [`two`].
    fn fill<T: Number>(x: [&[T]; N], y: &mut [u8]);
}

/// Dtypes that a predicate takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// `F32`, `BF16`, `F16` and `F64`.
    Floats,
    /// Those, and `I64`, `U32`, `U8` and `Bool`.
    Numbers,
    /// `Bool` alone.
    Truths,
}

/// What predicates may ask of a number.
pub(crate) trait Number: Copy + PartialOrd {
    /// Whether it is true: not zero.
    fn is_true(self) -> bool;
    /// Whether it is no number at all.
    fn is_nan(self) -> bool;
    /// Whether it is infinite.
    fn is_infinite(self) -> bool;
}

macro_rules! number {
    ($($type:ty: |$x:ident| $is_nan:expr, $is_infinite:expr;)*) => {$(
        impl Number for $type {
            #[inline(always)]
            fn is_true(self) -> bool {
                self != <$type>::default()
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                let $x = self;
                $is_nan
            }
            #[inline(always)]
            fn is_infinite(self) -> bool {
                let $x = self;
                $is_infinite
            }
        }
    )*};
}

number! {
    f32: |x| x.is_nan(), x.is_infinite();
    f64: |x| x.is_nan(), x.is_infinite();
    i64: |_x| false, false;
    u32: |_x| false, false;
    u8: |_x| false, false;
}

/// Implements [`Op`] by [`Predicate`]. A predicate has no gradient: its output is no number.
macro_rules! predicate_op {
    ($($type:ty: $arity:literal),* $(,)?) => {$(
        impl highwater_graph::Op for $type {
            fn name(&self) -> &'static str {
                <Self as $crate::predicate::Predicate<$arity>>::NAME
            }

            fn hash_attributes(&self, _hasher: &mut dyn std::hash::Hasher) {}

            fn infer(
                &self,
                inputs: &[highwater_graph::Spec],
            ) -> Result<smallvec::SmallVec<[highwater_graph::Spec; 2]>, highwater_graph::OpError>
            {
                $crate::predicate::infer::<Self, $arity>(inputs)
            }

            fn cost(
                &self,
                inputs: &[highwater_graph::Spec],
                outputs: &[highwater_graph::Spec],
                _threads: usize,
            ) -> highwater_graph::Cost {
                $crate::pointwise::cost(inputs, outputs, 1.0)
            }
        }
    )*};
}
pub(crate) use predicate_op;

/// The row of a predicate in the table.
pub(crate) const fn entry<F: Predicate<N>, const N: usize>() -> Entry {
    Entry {
        name: F::NAME,
        rows: Rows::<F, N>::ALL,
        reference: reference::<F, N>,
        samples: samples::<F, N>,
        rejects: rejects::<F, N>,
    }
}

/// `N` inputs of one dtype that broadcast; see [`dense_like`] for how the output lies.
pub(crate) fn infer<F: Predicate<N>, const N: usize>(
    inputs: &[Spec],
) -> Result<SmallVec<[Spec; 2]>, OpError> {
    OpError::check_arity(F::NAME, inputs, N)?;
    let dtype = inputs[0].dtype;
    if !F::TAKES.takes(dtype) {
        return Err(OpError::DType {
            op: F::NAME,
            expected: F::TAKES.described().to_owned(),
            got: dtype,
        });
    }
    for input in inputs {
        OpError::check_dtype(F::NAME, input, dtype)?;
    }
    let shape = pointwise::broadcast(F::NAME, inputs)?;
    Ok(smallvec![dense_like(inputs, DType::Bool, shape)])
}

impl Takes {
    fn takes(self, dtype: DType) -> bool {
        let whole = matches!(dtype, DType::I64 | DType::U32 | DType::U8 | DType::Bool);
        match self {
            Self::Floats => dtype.is_float(),
            Self::Numbers => dtype.is_float() || whole,
            Self::Truths => dtype == DType::Bool,
        }
    }

    const fn described(self) -> &'static str {
        match self {
            Self::Floats => "a float type",
            Self::Numbers => "a type of numbers or bool",
            Self::Truths => "bool",
        }
    }
}

/// The kernels of a predicate.
struct Rows<F, const N: usize>(PhantomData<fn() -> F>);

macro_rules! row {
    ($dtype:ident, $kernel:expr) => {
        Row::cpu(DTypes::new(&[DType::$dtype], &[DType::Bool]), || {
            Arc::new($kernel)
        })
    };
}

impl<F: Predicate<N>, const N: usize> Rows<F, N> {
    const FLOATS: &'static [Row] = &[
        row!(F32, of_floats::<F, f32, N>),
        row!(BF16, of_floats::<F, bf16, N>),
        row!(F16, of_floats::<F, f16, N>),
        row!(F64, of_numbers::<F, f64, N>),
    ];
    const NUMBERS: &'static [Row] = &[
        row!(F32, of_floats::<F, f32, N>),
        row!(BF16, of_floats::<F, bf16, N>),
        row!(F16, of_floats::<F, f16, N>),
        row!(F64, of_numbers::<F, f64, N>),
        row!(I64, of_numbers::<F, i64, N>),
        row!(U32, of_numbers::<F, u32, N>),
        row!(U8, of_numbers::<F, u8, N>),
        row!(Bool, of_numbers::<F, u8, N>),
    ];
    const TRUTHS: &'static [Row] = &[row!(Bool, of_numbers::<F, u8, N>)];
    const ALL: &'static [Row] = match F::TAKES {
        Takes::Floats => Self::FLOATS,
        Takes::Numbers => Self::NUMBERS,
        Takes::Truths => Self::TRUTHS,
    };
}

fn of_numbers<F: Predicate<N>, T: Element + Number, const N: usize>(
    _op: &dyn Op,
    args: &mut Args<'_>,
) -> Result<(), KernelError> {
    let inputs: [&View<'_>; N] = std::array::from_fn(|i| &args.inputs[i]);
    blocks::map::<T, u8, N>(args.pool, inputs, &mut args.outputs[0], |_, x, y| {
        F::fill(x, y);
    })
}

/// Floats narrower than `f32` are widened, some at a time.
fn of_floats<F: Predicate<N>, T: Float, const N: usize>(
    _op: &dyn Op,
    args: &mut Args<'_>,
) -> Result<(), KernelError> {
    let inputs: [&View<'_>; N] = std::array::from_fn(|i| &args.inputs[i]);
    blocks::map::<T, u8, N>(args.pool, inputs, &mut args.outputs[0], |_, x, y| {
        if is_f32::<T>() {
            return F::fill(x.map(|x| as_f32(x).unwrap_or_default()), y);
        }
        let mut wide = [[0.0; BLOCK]; N];
        for (i, y) in y.chunks_mut(BLOCK).enumerate() {
            let at = i * BLOCK;
            for (x, wide) in x.iter().zip(&mut wide) {
                T::widen(&x[at..at + y.len()], &mut wide[..y.len()]);
            }
            F::fill(wide.each_ref().map(|wide| &wide[..y.len()]), y);
        }
    })
}

multiversion! {
    /// The answers of a predicate of one input.
    pub(crate) fn one[I, F: Predicate<1>, T: Number](x: &[T], y: &mut [u8]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = F::holds([x]).into();
        }
    }
}

multiversion! {
    /// The answers of a predicate of two inputs.
    pub(crate) fn two[I, F: Predicate<2>, T: Number](a: &[T], b: &[T], y: &mut [u8]) {
        for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
            *y = F::holds([a, b]).into();
        }
    }
}

fn reference<F: Predicate<N>, const N: usize>(_op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    vec![pointwise::map_arrays(inputs, |x: [f64; N]| {
        F::holds(x).into()
    })]
}

/// Samples in the first dtype that the predicate takes, and one in each of the others; numbers are equal
/// now and then.
fn samples<F: Predicate<N>, const N: usize>() -> Vec<Sample> {
    let fill = Fill::Indices(3);
    let mut samples = if N == 1 {
        pointwise::unary_samples(&F::default(), fill)
    } else {
        pointwise::binary_samples(&F::default(), [fill; 2])
    };
    let of = |dtype: DType, sample: &Sample| {
        let mut sample = sample.clone();
        for (spec, fill) in &mut sample.inputs {
            spec.dtype = dtype;
            *fill = Fill::Indices(if dtype == DType::Bool { 2 } else { 3 });
        }
        sample
    };
    match F::TAKES {
        Takes::Floats => {}
        Takes::Numbers => {
            let whole = [DType::I64, DType::U32, DType::U8, DType::Bool];
            let more: Vec<Sample> = whole.iter().map(|&dtype| of(dtype, &samples[2])).collect();
            samples.extend(more);
        }
        Takes::Truths => {
            samples = samples
                .iter()
                .map(|sample| of(DType::Bool, sample))
                .collect();
        }
    }
    samples
}

fn rejects<F: Predicate<N>, const N: usize>() -> Vec<Reject> {
    let dtype = match F::TAKES {
        Takes::Truths => DType::Bool,
        Takes::Floats | Takes::Numbers => DType::F32,
    };
    let reject = |inputs, error| Reject {
        op: Arc::new(F::default()),
        inputs,
        error,
    };
    let of = |dtype| Spec::contiguous(dtype, [3]);
    let wrong: fn(&OpError) -> bool = |error| matches!(error, OpError::DType { .. });
    let mut rejects = vec![
        reject(vec![of(dtype); N + 1], |error| {
            matches!(error, OpError::Arity { .. })
        }),
        reject(vec![of(DType::I16); N], wrong),
    ];
    if N == 2 {
        rejects.push(reject(vec![of(dtype), of(DType::F64)], wrong));
        let shapes = [&[2, 3][..], &[2]].map(|shape| Spec::contiguous(dtype, shape));
        rejects.push(reject(shapes.to_vec(), |error| {
            matches!(error, OpError::Shape { .. })
        }));
    }
    rejects
}
