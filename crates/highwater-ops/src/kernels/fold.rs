//! Reductions that are no sums: what the elements of each result make of a few numbers.
//!
//! An operation says in [`Fold`] how elements are taken in, along a row and side by side, and how what
//! two parts became is joined. Everything else follows: shapes, the kernel, the plain reference. The
//! order in which elements are taken in, and how long reductions are cut, follow from shape, strides and
//! dimensions alone, as for sums.
//!
//! Results side by side are taken 1,024 at a time, with three rows of `f64` for them (24 KiB); those along
//! rows as many to a task as come to 32,768 elements, 1,024 elements at a time. What an operation does with
//! these is in its `cpu.rs`, compiled for every instruction set. Parts of a long reduction are left in
//! scratch memory by whichever thread had them, and joined in their order afterwards.

#![expect(unsafe_code, reason = "tasks write disjoint results")]

use crate::kernels::blocks::{BLOCK, Reader};
use crate::kernels::float::Float;
use crate::kernels::pointwise::one_pass;
use crate::kernels::reduction::{Mask, Plan, TASK, plan_dims};
use crate::kernels::whole::Wholes;
use crate::table::{f32_view, f32s, is_arity, is_attribute, is_dtype, is_shape};
use crate::{Args, Array, Disjoint, Kernel, KernelError, Reject, Sample, op_as};
use highwater_graph::{Autocast, Backward, Cost, DType, Layout, Op, OpError, Operand, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

/// What the elements that were taken in have become.
pub(crate) type State = [f64; 3];

/// A reduction over dimensions.
pub(crate) trait Fold: Op {
    /// Whether there is a second output (I64): which element the result is, counted in the row-major order
    /// of the dimensions that go.
    const PLACE: bool = false;
    /// What is made of whole numbers.
    const WHOLES: Wholes = Wholes::Refused;
    /// Operations for each element, about.
    const FLOPS: f64 = 1.0;
    /// [`Op::autocast`].
    const AUTOCAST: Autocast = Autocast::AsTaken;

    /// Which dimensions (none for all), and whether they stay, with extent 1.
    fn over(&self) -> (&[usize], bool);

    /// Whether nothing at all has a result.
    fn is_of_nothing(&self) -> bool {
        true
    }

    /// What nothing becomes.
    fn start(&self) -> State;

    /// Takes in some elements of one result, the first of which is its `at`-th.
    fn row(&self, state: State, at: usize, x: &[f32]) -> State;

    /// Takes in one element of each of several results: their `at`-th.
    fn column(&self, state: [&mut [f64]; 3], at: usize, x: &[f32]);

    /// Joins what some elements became with what those behind them did.
    fn join(&self, state: State, behind: State) -> State;

    /// The result of `count` elements, and its place.
    fn value(&self, state: State, count: usize) -> [f64; 2];

    /// The plain reference: the result of elements in order, and its place.
    fn exact(&self, x: &[f64]) -> [f64; 2];
}

/// Feeds dimensions and whether they stay.
pub(crate) fn hash_over(op: &impl Fold, mut hasher: &mut dyn Hasher) {
    op.over().hash(&mut hasher);
}

pub(crate) fn plan<F: Fold>(op: &F, input: &Shape) -> Result<(Mask, Shape), OpError> {
    let (dims, keepdim) = op.over();
    plan_dims(op.name(), dims, keepdim, input)
}

/// [`Op::infer`].
pub(crate) fn infer<F: Fold>(op: &F, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
    OpError::check_arity(op.name(), inputs, 1)?;
    let dtype = F::WHOLES.dtype_of(op.name(), &inputs[0])?;
    let (mask, shape) = plan(op, inputs[0].shape())?;
    let mut reduced = inputs[0].shape().iter().zip(&mask);
    if !op.is_of_nothing() && reduced.any(|(&extent, &goes)| goes && extent == 0) {
        let expected = "elements in the dimensions that are reduced, for nothing has no result";
        return Err(OpError::shape(
            op.name(),
            expected,
            inputs[0].shape().to_string(),
        ));
    }
    let value = Spec::contiguous(dtype, shape.clone());
    if F::PLACE {
        return Ok(smallvec![value, Spec::contiguous(DType::I64, shape)]);
    }
    Ok(smallvec![value])
}

/// [`Op::cost`].
pub(crate) fn cost<F: Fold>(_op: &F, inputs: &[Spec], outputs: &[Spec]) -> Cost {
    one_pass(inputs, outputs, F::FLOPS * inputs[0].layout.numel() as f64)
}

/// Implements [`Op`] by [`Fold`], with a name, attributes beside the dimensions, and a backward.
macro_rules! fold_op {
    ($type:ty: |$this:ident| $name:expr, |$hashed:ident, $hasher:ident| $hash:expr,
     |$op:ident, $backward:ident| $emit:expr) => {
        impl highwater_graph::Op for $type {
            fn name(&self) -> &'static str {
                let $this = self;
                $name
            }

            fn hash_attributes(&self, $hasher: &mut dyn std::hash::Hasher) {
                $crate::kernels::fold::hash_over(self, $hasher);
                let $hashed = self;
                $hash
            }

            fn infer(
                &self,
                inputs: &[highwater_graph::Spec],
            ) -> Result<smallvec::SmallVec<[highwater_graph::Spec; 2]>, highwater_graph::OpError>
            {
                $crate::kernels::fold::infer(self, inputs)
            }

            fn cost(
                &self,
                inputs: &[highwater_graph::Spec],
                outputs: &[highwater_graph::Spec],
                _threads: usize,
            ) -> highwater_graph::Cost {
                $crate::kernels::fold::cost(self, inputs, outputs)
            }

            fn autocast(&self) -> highwater_graph::Autocast {
                <Self as $crate::kernels::fold::Fold>::AUTOCAST
            }

            fn backward(
                &self,
                $backward: &mut highwater_graph::Backward<'_>,
            ) -> Result<(), highwater_graph::OpError> {
                let $op = self;
                $emit
            }
        }
    };
}
pub(crate) use fold_op;

/// What a gradient is made from: the input, the output and the output's gradient, both with the dimensions
/// that went.
pub(crate) struct Turn {
    pub(crate) x: Operand,
    pub(crate) y: Operand,
    pub(crate) g: Operand,
}

impl Turn {
    /// `None` where nobody asks for the gradient.
    pub(crate) fn of<F: Fold>(op: &F, backward: &Backward<'_>) -> Result<Option<Self>, OpError> {
        let Some(g) = backward.grad(0).filter(|_| backward.needs(0)) else {
            return Ok(None);
        };
        let (x, y) = (backward.input(0), backward.output(0));
        let kept = kept(op, x.shape())?;
        let back = |operand: Operand| {
            let layout = operand.spec.layout.reshape(&kept);
            let layout = layout.ok_or_else(|| {
                let got = operand.spec.to_string();
                OpError::shape(op.name(), kept.to_string(), got)
            })?;
            Ok(operand.with_layout(layout))
        };
        let (y, g) = (back(y)?, back(g)?);
        Ok(Some(Self { x, y, g }))
    }
}

/// The shape with extents of 1 where a dimension goes.
fn kept<F: Fold>(op: &F, input: &Shape) -> Result<Shape, OpError> {
    let (mask, _) = plan(op, input)?;
    let extents = input.iter().zip(&mask);
    Ok(extents
        .map(|(&extent, &goes)| if goes { 1 } else { extent })
        .collect())
}

/// Keeps the states of parts of long reductions in scratch memory.
pub(crate) struct FoldKernel<F, T>(pub(crate) PhantomData<fn() -> (F, T)>);

impl<F: Fold, T: Float> Kernel for FoldKernel<F, T> {
    fn scratch_bytes(&self, op: &dyn Op, inputs: &[Spec], _: &[Spec], _threads: usize) -> u64 {
        let layout = &inputs[0].layout;
        let mask = op
            .downcast()
            .and_then(|op: &F| plan(op, layout.shape()).ok());
        let plan = mask.map(|(mask, _)| Plan::new(layout, &mask));
        plan.map_or(0, |plan| 3 * plan.scratch_bytes())
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let op: &F = op_as(op)?;
        let input = &args.inputs[0];
        let (mask, _) =
            plan(op, input.spec().shape()).map_err(|_| KernelError::WrongOp { op: op.name() })?;
        let plan = Plan::new(input.layout(), &mask);
        let reader = Reader::<T>::through(input, &plan.layout)?;
        let [value, place @ ..] = &mut *args.outputs else {
            return Ok(());
        };
        let value = Disjoint::new(value.slice_mut::<T>()?);
        let place = place.first_mut().map(|place| place.slice_mut::<i64>());
        let place = place.transpose()?.map(Disjoint::new);
        let write = |start: usize, states: [&[f64]; 3]| {
            let len = states[0].len();
            // SAFETY: results are written once.
            let values = unsafe { value.part(start, len) };
            // SAFETY: as above.
            let mut places = place
                .as_ref()
                .map(|place| unsafe { place.part(start, len) });
            for (i, y) in values.iter_mut().enumerate() {
                let [value, at] = op.value(states.map(|plane| plane[i]), plan.count);
                *y = T::nearest(value as f32);
                if let Some(places) = &mut places {
                    places[i] = at as i64;
                }
            }
        };
        let segments = plan.segments();
        if segments == 1 {
            for_each_tile(args.pool, op, &plan, &reader, |_, start, states| {
                write(start, states);
            });
            return Ok(());
        }
        let scratch: &mut [State] = bytemuck::cast_slice_mut(args.scratch);
        let parts = Disjoint::new(&mut scratch[..segments * plan.sums]);
        for_each_tile(args.pool, op, &plan, &reader, |segment, start, states| {
            let at = segment * plan.sums + start;
            // SAFETY: tiles of one segment, and rows of different segments, do not overlap.
            let parts = unsafe { parts.part(at, states[0].len()) };
            for (i, part) in parts.iter_mut().enumerate() {
                *part = states.map(|plane| plane[i]);
            }
        });
        args.pool.for_each(plan.sums.div_ceil(BLOCK), |task| {
            for result in task * BLOCK..plan.sums.min((task + 1) * BLOCK) {
                let of_segments = scratch[result..].iter().step_by(plan.sums).take(segments);
                let state = of_segments.fold(op.start(), |state, &behind| op.join(state, behind));
                write(result, state.each_ref().map(std::slice::from_ref));
            }
        });
        Ok(())
    }
}

/// What every segment's elements become, for up to [`BLOCK`] neighbouring results at a time; handed on with
/// the segment's number and the first result's position.
fn for_each_tile<F: Fold>(
    pool: &crate::Pool,
    op: &F,
    plan: &Plan,
    reader: &Reader<'_, impl Float>,
    done: impl Fn(usize, usize, [&[f64]; 3]) + Send + Sync,
) {
    let width = if plan.columns {
        BLOCK
    } else {
        (TASK / plan.count.clamp(1, TASK)).min(BLOCK)
    };
    let tiles = plan.sums.div_ceil(width);
    pool.for_each(tiles * plan.segments(), |task| {
        let (segment, start) = (task / tiles, task % tiles * width);
        let (len, range) = (width.min(plan.sums - start), plan.range(segment));
        let (mut planes, mut buffer) = (op.start().map(|x| [x; BLOCK]), [0.0; BLOCK]);
        let [a, b, c] = planes.each_mut().map(|plane| &mut plane[..len]);
        if plan.columns {
            for at in range {
                let x = reader.read(at * plan.sums + start, &mut buffer[..len]);
                op.column([&mut *a, &mut *b, &mut *c], at, x);
            }
        } else {
            for i in 0..len {
                let mut state = op.start();
                for first in range.clone().step_by(BLOCK) {
                    let len = BLOCK.min(range.end - first);
                    let from = (start + i) * plan.count + first;
                    state = op.row(state, first, reader.read(from, &mut buffer[..len]));
                }
                [a[i], b[i], c[i]] = state;
            }
        }
        done(segment, start, [a, b, c]);
    });
}

/// The plain reference.
pub(crate) fn reference<F: Fold>(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &F = op.downcast().expect("the reference of this operation");
    let input = &inputs[0];
    let (_, shape) = plan(op, &input.shape).expect("dimensions of the input");
    let kept = kept(op, &input.shape).expect("dimensions of the input");
    let targets = Layout::contiguous(kept).expand(&input.shape);
    let mut elements = vec![Vec::new(); shape.numel()];
    for (target, &x) in targets.expect("a broadcast").positions().zip(&input.data) {
        elements[target].push(x);
    }
    let results: Vec<[f64; 2]> = elements.iter().map(|x| op.exact(x)).collect();
    let values = results.iter().map(|[value, _]| *value).collect();
    let dtype = F::WHOLES.made_of(input.dtype);
    let mut outputs = vec![Array::new(dtype, shape.clone(), values)];
    if F::PLACE {
        let places = results.iter().map(|[_, place]| *place).collect();
        outputs.push(Array::new(DType::I64, shape, places));
    }
    outputs
}

/// Samples of a reduction, filled with `fill`.
pub(crate) fn samples<F: Fold>(
    op: impl Fn(Vec<usize>, bool) -> F,
    fill: crate::Fill,
) -> Vec<Sample> {
    let cases = crate::kernels::reduction::cases().into_iter().enumerate();
    let taken = cases.filter(|(_, (layout, dims))| {
        let goes = |dim: usize| dims.is_empty() || dims.contains(&dim);
        let mut extents = layout.shape().iter().enumerate();
        op(dims.clone(), false).is_of_nothing()
            || !extents.any(|(dim, &extent)| goes(dim) && extent == 0)
    });
    taken
        .map(|(i, (layout, dims))| {
            let spec = f32_view(layout);
            Sample {
                op: Arc::new(op(dims, i % 2 == 0)),
                inputs: vec![(spec, fill)],
                tolerance: 2e-6,
            }
        })
        .collect()
}

/// Without those samples in which an element counts for several: of a choice among equals there are no
/// finite differences.
pub(crate) fn without_repeats(mut samples: Vec<Sample>) -> Vec<Sample> {
    samples.retain(|sample| {
        let layout = &sample.inputs[0].0.layout;
        layout.strides().iter().all(|&stride| stride > 0)
    });
    samples
}

/// What a reduction must refuse.
pub(crate) fn rejects<F: Fold>(op: impl Fn(Vec<usize>, bool) -> F) -> Vec<Reject> {
    let reject = |dims: &[usize], inputs, error| Reject {
        op: Arc::new(op(dims.to_vec(), false)),
        inputs,
        error,
    };
    let mut rejects = vec![
        reject(&[2], vec![f32s([3, 4])], is_attribute),
        reject(&[1, 1], vec![f32s([3, 4])], is_attribute),
        reject(&[], vec![], is_arity),
        reject(
            &[],
            vec![Spec::contiguous(F::WHOLES.refused(), [3])],
            is_dtype,
        ),
    ];
    if !op(Vec::new(), false).is_of_nothing() {
        rejects.push(reject(&[0], vec![f32s([0, 4])], is_shape));
    }
    rejects
}
