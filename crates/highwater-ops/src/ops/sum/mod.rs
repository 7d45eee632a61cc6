//! Sums and means: `sum`, `mean`, `sum_to`.
//!
//! One float tensor of any layout; the result is row-major. `sum` takes `I64`, `U8` and `Bool` too, and counts in
//! `I64`. As `torch.sum`, `torch.mean` and
//! `Tensor.sum_to_size`. Elements are added in `f64`, in an order that follows from shape, strides
//! and dimensions alone. Sums of nothing are 0, means NaN. One pass, one operation per element; long
//! reductions are cut, with scratch for the pieces' sums. Backward repeats the gradient by a view;
//! nothing is kept.

mod cpu;
mod reference;

use crate::kernels::pointwise::one_pass;
use crate::kernels::reduction::{Mask, cases, plan_dims};
use crate::kernels::rows::{Precise, rows_of_floats, rows_of_numbers};
use crate::kernels::whole::{self, WholeFold, WholeKernel, Wholes};
use crate::table::{f32_view, f32s, is_arity, is_dtype, is_shape};
use crate::{DivScalar, Entry, Fill, Reject, Row, Sample};
use cpu::SumKernel;
use highwater_graph::DType::I64;
use highwater_graph::{Autocast, Backward, Cost, DType, Layout, Op, OpError, Operand, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[SUM, MEAN, SUM_TO];

/// Sum over dimensions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sum {
    /// Which dimensions, each at most once; none for all.
    pub dims: Vec<usize>,
    /// Whether they stay, with extent 1.
    pub keepdim: bool,
}

/// Mean over dimensions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mean {
    /// Which dimensions, each at most once; none for all.
    pub dims: Vec<usize>,
    /// Whether they stay, with extent 1.
    pub keepdim: bool,
}

/// Sum down to a shape that broadcasts to the input's: the gradient of broadcasting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SumTo {
    /// The shape of the result.
    pub shape: Shape,
}

/// What the three operations differ in.
trait Reduction: Op {
    /// [`Op::name`].
    const NAME: &'static str;
    /// What is made of whole numbers.
    const WHOLES: Wholes = Wholes::Refused;
    /// [`Op::autocast`].
    const AUTOCAST: Autocast = Autocast::AsTaken;

    /// Which dimensions are summed over, and the shape of the result.
    fn plan(&self, input: &Shape) -> Result<(Mask, Shape), OpError>;

    /// What the sum over `count` elements is divided by.
    fn divisor(&self, _count: usize) -> f64 {
        1.0
    }
}

impl Reduction for Sum {
    const NAME: &'static str = "sum";
    const AUTOCAST: Autocast = Autocast::Full;
    const WHOLES: Wholes = Wholes::Counted;

    fn plan(&self, input: &Shape) -> Result<(Mask, Shape), OpError> {
        plan_dims(Self::NAME, &self.dims, self.keepdim, input)
    }
}

impl WholeFold for Sum {
    fn plan_of(&self, input: &Shape) -> Result<(Mask, Shape), OpError> {
        self.plan(input)
    }

    fn nothing(&self) -> [i64; 2] {
        [0; 2]
    }

    fn take(&self, [sum, _]: &mut [i64; 2], _at: i64, x: i64) {
        *sum = sum.wrapping_add(x);
    }
}

impl Reduction for Mean {
    const NAME: &'static str = "mean";
    const AUTOCAST: Autocast = Autocast::Full;

    fn plan(&self, input: &Shape) -> Result<(Mask, Shape), OpError> {
        plan_dims(Self::NAME, &self.dims, self.keepdim, input)
    }

    fn divisor(&self, count: usize) -> f64 {
        count as f64
    }
}

impl Reduction for SumTo {
    const NAME: &'static str = "sum_to";

    fn plan(&self, input: &Shape) -> Result<(Mask, Shape), OpError> {
        if self.shape.broadcast(input).as_ref() != Some(input) {
            let expected = format!("a shape that {} broadcasts to", self.shape);
            return Err(OpError::shape(Self::NAME, expected, input.to_string()));
        }
        let lead = input.rank() - self.shape.rank();
        let dims = input.iter().enumerate();
        let mask = dims.map(|(i, &extent)| i < lead || self.shape[i - lead] != extent);
        Ok((mask.collect(), self.shape.clone()))
    }
}

fn infer<R: Reduction>(op: &R, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
    OpError::check_arity(R::NAME, inputs, 1)?;
    let dtype = R::WHOLES.dtype_of(R::NAME, &inputs[0])?;
    let (_, shape) = op.plan(inputs[0].shape())?;
    Ok(smallvec![Spec::contiguous(dtype, shape)])
}

fn cost(inputs: &[Spec], outputs: &[Spec]) -> Cost {
    one_pass(inputs, outputs, inputs[0].layout.numel() as f64)
}

/// Repeats the gradient over the dimensions that were summed, by a view.
fn backward<R: Reduction>(op: &R, backward: &mut Backward<'_>) -> Result<(), OpError> {
    let Some(mut grad) = backward.grad(0).filter(|_| backward.needs(0)) else {
        return Ok(());
    };
    let shape = backward.input(0).shape().clone();
    let (mask, _) = op.plan(&shape)?;
    let summed = shape.iter().zip(&mask).filter(|&(_, &summed)| summed);
    let divisor = op.divisor(summed.map(|(extent, _)| extent).product());
    if divisor.to_bits() != 1.0_f64.to_bits() {
        grad = backward.emit_one(DivScalar { value: divisor }, &[grad])?;
    }
    backward.set(0, repeat(R::NAME, &grad, &shape, &mask)?);
    Ok(())
}

fn repeat(
    op: &'static str,
    grad: &Operand,
    shape: &Shape,
    mask: &[bool],
) -> Result<Operand, OpError> {
    let extents = shape.iter().zip(mask);
    let kept: Shape = extents
        .map(|(&extent, &summed)| if summed { 1 } else { extent })
        .collect();
    let layout = grad.spec.layout.reshape(&kept);
    let layout = layout.and_then(|layout| layout.expand(shape));
    let layout =
        layout.ok_or_else(|| OpError::shape(op, kept.to_string(), grad.spec.to_string()))?;
    Ok(grad.with_layout(layout))
}

macro_rules! reduction_op {
    ($($type:ty: |$this:ident, $hasher:ident| $hash:expr),* $(,)?) => {$(
        impl Op for $type {
            fn name(&self) -> &'static str {
                Self::NAME
            }

            fn hash_attributes(&self, $hasher: &mut dyn Hasher) {
                let $this = self;
                $hash
            }

            fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
                infer(self, inputs)
            }

            fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
                cost(inputs, outputs)
            }

            fn autocast(&self) -> Autocast {
                <Self as Reduction>::AUTOCAST
            }

            fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
                self::backward(self, backward)
            }
        }
    )*};
}

reduction_op! {
    Sum: |op, hasher| hash_dims(&op.dims, u64::from(op.keepdim), hasher),
    Mean: |op, hasher| hash_dims(&op.dims, u64::from(op.keepdim), hasher),
    SumTo: |op, hasher| hash_dims(&op.shape, 0, hasher),
}

fn hash_dims(dims: &[usize], flag: u64, hasher: &mut dyn Hasher) {
    hasher.write_u64(flag);
    hasher.write_usize(dims.len());
    for &dim in dims {
        hasher.write_usize(dim);
    }
}

const fn entry<R: Reduction>(
    rows: &'static [Row],
    samples: fn() -> Vec<Sample>,
    rejects: fn() -> Vec<Reject>,
) -> Entry {
    Entry {
        name: R::NAME,
        rows,
        reference: reference::reference::<R>,
        samples,
        rejects,
    }
}

fn sample(op: impl Op, layout: Layout) -> Sample {
    let spec = f32_view(layout);
    Sample {
        op: Arc::new(op),
        inputs: vec![(spec, Fill::Normal(1.0))],
        tolerance: 2e-6,
    }
}

fn samples_of<O: Op>(op: fn(Vec<usize>, bool) -> O) -> Vec<Sample> {
    let cases = cases().into_iter().enumerate();
    cases
        .map(|(i, (layout, dims))| sample(op(dims, i % 2 == 0), layout))
        .collect()
}

fn rejects_of<O: Op>(refused: DType, op: fn(Vec<usize>, bool) -> O) -> Vec<Reject> {
    let reject = |dims: &[usize], inputs, error| Reject {
        op: Arc::new(op(dims.to_vec(), false)),
        inputs,
        error,
    };
    let attribute: fn(&OpError) -> bool = |error| {
        matches!(
            error,
            OpError::Attribute {
                attribute: "dims",
                ..
            }
        )
    };
    vec![
        reject(&[2], vec![f32s([3, 4])], attribute),
        reject(&[1, 1], vec![f32s([3, 4])], attribute),
        reject(&[], vec![f32s([3, 4]); 2], is_arity),
        reject(&[], vec![Spec::contiguous(refused, [3])], is_dtype),
    ]
}

const SUM: Entry = entry::<Sum>(
    rows_of_numbers! {
        T: [T] -> [T]; SumKernel::<Sum, T>(PhantomData); Precise::new(reference::reference::<Sum>);
        [T] -> [I64]; WholeKernel::<Sum, T, i64>(PhantomData)
    },
    || {
        let mut samples = samples_of(|dims, keepdim| Sum { dims, keepdim });
        let op = |dims, keepdim| Sum { dims, keepdim };
        samples.extend(whole::samples(op, 1_000_000, usize::MAX));
        samples
    },
    || rejects_of(Sum::WHOLES.refused(), |dims, keepdim| Sum { dims, keepdim }),
);

const MEAN: Entry = entry::<Mean>(
    rows_of_floats! {
        T: [T] -> [T]; SumKernel::<Mean, T>(PhantomData); Precise::new(reference::reference::<Mean>)
    },
    || {
        let empty = Layout::contiguous([0, 5]);
        let mut samples = samples_of(|dims, keepdim| Mean { dims, keepdim });
        // The reference says NaN, which no tolerance admits.
        samples.retain(|sample| sample.inputs[0].0.layout != empty);
        samples
    },
    || {
        rejects_of(Mean::WHOLES.refused(), |dims, keepdim| Mean {
            dims,
            keepdim,
        })
    },
);

const SUM_TO: Entry = entry::<SumTo>(
    rows_of_floats! {
        T: [T] -> [T]; SumKernel::<SumTo, T>(PhantomData); Precise::new(reference::reference::<SumTo>)
    },
    || {
        let to = |from: &[usize], to: &[usize]| {
            sample(SumTo { shape: to.into() }, Layout::contiguous(from))
        };
        vec![
            to(&[3, 5, 37], &[37]),
            to(&[3, 5, 37], &[5, 1]),
            to(&[3, 5, 37], &[1, 5, 1]),
            to(&[3, 5, 37], &[]),
            to(&[3, 5], &[3, 5]),
            to(&[0, 5], &[5]),
            to(&[1000, 130], &[130]),
            sample(
                SumTo { shape: [65].into() },
                Layout::strided([130, 65], &[1, 130], 0),
            ),
        ]
    },
    || {
        let reject = |from: &[usize], to: &[usize]| {
            Reject::new(SumTo { shape: to.into() }, vec![f32s(from)], is_shape)
        };
        vec![
            reject(&[3, 5], &[3]),
            reject(&[5], &[3, 5]),
            reject(&[3, 1], &[3, 5]),
        ]
    },
);
