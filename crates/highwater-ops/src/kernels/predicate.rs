//! What operations share whose elements are true or false, each by one element of each input.
//!
//! The kernel is one loop over slices, compiled for every instruction set, that writes a byte an element by a
//! comparison and no branch. `blocks.rs` cuts; floats narrower than `f32` are widened 1,024 at a time. An
//! answer depends on its own elements alone.

#![expect(clippy::float_cmp, reason = "zero is zero")]

use crate::kernels::blocks::{BLOCK, Stage};
use crate::kernels::elements::{Elements, Map};
use crate::kernels::float::{Float, as_f32, is_f32};
use crate::kernels::pointwise::{self, dense_like};
use crate::kernels::simd::multiversion;
use crate::table::{is_arity, is_dtype, is_shape};
use crate::{Array, DTypes, Element, Entry, Fill, Reject, Row, Sample};
use half::{bf16, f16};
use highwater_graph::{DType, Op, OpError, Promotion, Spec};
use smallvec::{SmallVec, smallvec};
use std::marker::PhantomData;
use std::sync::Arc;

/// An operation of `N` inputs that broadcast to one shape, all of one dtype, whose output is of `Bool`.
pub(crate) trait Predicate<const N: usize>: Op + Copy + Default {
    /// [`Op::name`].
    const NAME: &'static str;
    /// Which dtypes it takes.
    const TAKES: Takes;
    /// [`Op::promotion`].
    const PROMOTION: Option<Promotion> = None;

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
                <Self as $crate::kernels::predicate::Predicate<$arity>>::NAME
            }

            fn hash_attributes(&self, _hasher: &mut dyn std::hash::Hasher) {}

            fn infer(
                &self,
                inputs: &[highwater_graph::Spec],
            ) -> Result<smallvec::SmallVec<[highwater_graph::Spec; 2]>, highwater_graph::OpError>
            {
                $crate::kernels::predicate::infer::<Self, $arity>(inputs)
            }

            fn cost(
                &self,
                inputs: &[highwater_graph::Spec],
                outputs: &[highwater_graph::Spec],
                _threads: usize,
            ) -> highwater_graph::Cost {
                $crate::kernels::pointwise::cost(inputs, outputs, 1.0)
            }

            fn promotion(&self) -> Option<highwater_graph::Promotion> {
                <Self as $crate::kernels::predicate::Predicate<$arity>>::PROMOTION
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
        row!(F32, Map::<OfFloats<F, f32>, N>::NEW),
        row!(BF16, Map::<OfFloats<F, bf16>, N>::NEW),
        row!(F16, Map::<OfFloats<F, f16>, N>::NEW),
        row!(F64, Map::<OfNumbers<F, f64>, N>::NEW),
    ];
    const NUMBERS: &'static [Row] = &[
        row!(F32, Map::<OfFloats<F, f32>, N>::NEW),
        row!(BF16, Map::<OfFloats<F, bf16>, N>::NEW),
        row!(F16, Map::<OfFloats<F, f16>, N>::NEW),
        row!(F64, Map::<OfNumbers<F, f64>, N>::NEW),
        row!(I64, Map::<OfNumbers<F, i64>, N>::NEW),
        row!(U32, Map::<OfNumbers<F, u32>, N>::NEW),
        row!(U8, Map::<OfNumbers<F, u8>, N>::NEW),
        row!(Bool, Map::<OfNumbers<F, u8>, N>::NEW),
    ];
    const TRUTHS: &'static [Row] = &[row!(Bool, Map::<OfNumbers<F, u8>, N>::NEW)];
    const ALL: &'static [Row] = match F::TAKES {
        Takes::Floats => Self::FLOATS,
        Takes::Numbers => Self::NUMBERS,
        Takes::Truths => Self::TRUTHS,
    };
}

/// Of elements as they are.
struct OfNumbers<F, T>(PhantomData<fn() -> (F, T)>);

impl<F: Predicate<N>, T: Element + Number, const N: usize> Elements<N> for OfNumbers<F, T> {
    type Op = F;
    type From = T;
    type To = u8;

    fn fill(_op: &F, x: [&[T]; N], y: &mut [u8], _stage: Stage<'_, N>) {
        F::fill(x, y);
    }
}

/// Of floats, which are widened if they are narrower than `f32`, some at a time.
struct OfFloats<F, T>(PhantomData<fn() -> (F, T)>);

impl<F: Predicate<N>, T: Float, const N: usize> Elements<N> for OfFloats<F, T> {
    type Op = F;
    type From = T;
    type To = u8;

    fn fill(_op: &F, x: [&[T]; N], y: &mut [u8], (wide, _): Stage<'_, N>) {
        if is_f32::<T>() {
            return F::fill(x.map(|x| as_f32(x).unwrap_or_default()), y);
        }
        for (i, y) in y.chunks_mut(BLOCK).enumerate() {
            let at = i * BLOCK;
            for (x, wide) in x.iter().zip(&mut *wide) {
                T::widen(&x[at..at + y.len()], &mut wide[..y.len()]);
            }
            F::fill(wide.each_ref().map(|wide| &wide[..y.len()]), y);
        }
    }
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
    let reject = |inputs, error| Reject::new(F::default(), inputs, error);
    let of = |dtype| Spec::contiguous(dtype, [3]);
    let mut rejects = vec![
        reject(vec![of(dtype); N + 1], is_arity),
        reject(vec![of(DType::I16); N], is_dtype),
    ];
    if N == 2 {
        rejects.push(reject(vec![of(dtype), of(DType::F64)], is_dtype));
        let shapes = [&[2, 3][..], &[2]].map(|shape| Spec::contiguous(dtype, shape));
        rejects.push(reject(shapes.to_vec(), is_shape));
    }
    rejects
}
