//! What operations share whose every output element is a function of one element of each input.

use crate::blocks;
use crate::float::{Float, rows_of_floats};
use crate::matmul::one_float_dtype;
use crate::simd::{Isa, multiversion};
use crate::{
    Args, Array, Entry, Fill, Kernel, KernelError, Pairs, Reject, Row, Sample, View, op_as,
};
use highwater_graph::{Backward, Cost, DType, Layout, Op, OpError, Operand, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

/// An operation of `N` inputs that broadcast to one shape, all of one float dtype.
pub(crate) trait Pointwise<const N: usize>: Op {
    /// [`Op::name`].
    const NAME: &'static str;
    /// Floating-point operations per element.
    const FLOPS: f64;

    /// The fast kernel's element.
    fn value<I: Isa>(&self, x: [f32; N]) -> f32;

    /// The plain reference's element.
    fn exact(&self, x: [f64; N]) -> f64;

    /// [`Op::hash_attributes`].
    fn hash(&self, _hasher: &mut dyn Hasher) {}

    /// [`Op::backward`].
    fn emit(&self, _backward: &mut Backward<'_>) -> Result<(), OpError> {
        Err(OpError::NotDifferentiable { op: Self::NAME })
    }
}

/// Has an operation of one input answer the gradient by `op`, of the output's gradient and the input.
pub(crate) fn from_input(backward: &mut Backward<'_>, op: impl Op) -> Result<(), OpError> {
    let input = backward.input(0);
    from(backward, op, &[input])
}

/// As [`from_input`], of the gradient and the output, so that the input need not be kept.
pub(crate) fn from_output(backward: &mut Backward<'_>, op: impl Op) -> Result<(), OpError> {
    let output = backward.output(0);
    from(backward, op, &[output])
}

/// As [`from_input`], of the gradient alone.
pub(crate) fn from_grad(backward: &mut Backward<'_>, op: impl Op) -> Result<(), OpError> {
    from(backward, op, &[])
}

fn from(backward: &mut Backward<'_>, op: impl Op, others: &[Operand]) -> Result<(), OpError> {
    if let Some(grad) = backward.grad(0).filter(|_| backward.needs(0)) {
        let inputs: SmallVec<[Operand; 2]> = std::iter::once(grad)
            .chain(others.iter().cloned())
            .collect();
        let grad = backward.emit_one(op, &inputs)?;
        backward.set(0, grad);
    }
    Ok(())
}

/// Sets the gradient of the `i`-th input, made by `emit` of the output's gradient in the output's shape, if
/// it is wanted: summed over the copies of an input that was broadcast.
pub(crate) fn set_reduced(
    backward: &mut Backward<'_>,
    i: usize,
    emit: impl FnOnce(&mut Backward<'_>, Operand) -> Result<Operand, OpError>,
) -> Result<(), OpError> {
    let Some(grad) = backward.grad(0).filter(|_| backward.needs(i)) else {
        return Ok(());
    };
    let grad = emit(backward, grad)?;
    let shape = backward.input(i).shape().clone();
    let grad = reduce_to(backward, grad, &shape)?;
    backward.set(i, grad);
    Ok(())
}

/// Says that the gradient of the `i`-th input is zero everywhere: one zero, seen in the input's shape.
pub(crate) fn no_slope(backward: &mut Backward<'_>, i: usize) -> Result<(), OpError> {
    if backward.grad(0).is_none() || !backward.needs(i) {
        return Ok(());
    }
    let spec = backward.input(i).spec;
    let zero = zero(backward, spec.dtype)?;
    let layout = zero.spec.layout.expand(spec.shape());
    backward.set(
        i,
        layout.map_or(zero.clone(), |layout| zero.with_layout(layout)),
    );
    Ok(())
}

/// A zero of no dimensions.
pub(crate) fn zero(backward: &mut Backward<'_>, dtype: DType) -> Result<Operand, OpError> {
    let (value, shape) = (0.0, Shape::scalar());
    let zero = crate::Full {
        value,
        dtype,
        shape,
    };
    backward.emit_one(zero, &[])
}

/// Implements [`Op`] by [`Pointwise`].
macro_rules! pointwise_op {
    ($($type:ty: $arity:literal),* $(,)?) => {$(
        impl highwater_graph::Op for $type {
            fn name(&self) -> &'static str {
                <Self as $crate::pointwise::Pointwise<$arity>>::NAME
            }

            fn hash_attributes(&self, hasher: &mut dyn std::hash::Hasher) {
                $crate::pointwise::Pointwise::<$arity>::hash(self, hasher);
            }

            fn infer(
                &self,
                inputs: &[highwater_graph::Spec],
            ) -> Result<smallvec::SmallVec<[highwater_graph::Spec; 2]>, highwater_graph::OpError>
            {
                $crate::pointwise::infer(self.name(), inputs, $arity)
            }

            fn cost(
                &self,
                inputs: &[highwater_graph::Spec],
                outputs: &[highwater_graph::Spec],
                _threads: usize,
            ) -> highwater_graph::Cost {
                let flops = <Self as $crate::pointwise::Pointwise<$arity>>::FLOPS;
                $crate::pointwise::cost(inputs, outputs, flops)
            }

            fn backward(
                &self,
                backward: &mut highwater_graph::Backward<'_>,
            ) -> Result<(), highwater_graph::OpError> {
                $crate::pointwise::Pointwise::<$arity>::emit(self, backward)
            }
        }
    )*};
}
pub(crate) use pointwise_op;

/// The row of a pointwise operation of one input.
pub(crate) const fn unary_entry<F: Pointwise<1>>(
    samples: fn() -> Vec<Sample>,
    rejects: fn() -> Vec<Reject>,
) -> Entry {
    Entry {
        name: F::NAME,
        rows: Unary::<F, f32>::ROWS,
        reference: reference::<F, 1>,
        samples,
        rejects,
    }
}

/// The row of a pointwise operation of two inputs.
pub(crate) const fn binary_entry<F: Pointwise<2>>(
    samples: fn() -> Vec<Sample>,
    rejects: fn() -> Vec<Reject>,
) -> Entry {
    Entry {
        name: F::NAME,
        rows: Binary::<F, f32>::ROWS,
        reference: reference::<F, 2>,
        samples,
        rejects,
    }
}

/// `arity` inputs of one float dtype that broadcast; see [`dense_like`] for how the output lies.
pub(crate) fn infer(
    op: &'static str,
    inputs: &[Spec],
    arity: usize,
) -> Result<SmallVec<[Spec; 2]>, OpError> {
    OpError::check_arity(op, inputs, arity)?;
    let all: SmallVec<[&Spec; 2]> = inputs.iter().collect();
    let dtype = one_float_dtype(op, &all)?;
    let mut shape = inputs[0].shape().clone();
    for input in inputs {
        shape = shape.broadcast(input.shape()).ok_or_else(|| {
            let shapes: Vec<_> = inputs.iter().map(|i| i.shape().to_string()).collect();
            OpError::shape(op, "shapes that broadcast", shapes.join(" and "))
        })?;
    }
    Ok(smallvec![dense_like(inputs, dtype, shape)])
}

/// An output of the shape, laid out as the first of the inputs that covers a storage of its
/// size, so that it can take over that storage; row-major if there is none.
pub(crate) fn dense_like(inputs: &[Spec], dtype: DType, shape: Shape) -> Spec {
    let fits = |spec: &&Spec| *spec.shape() == shape && spec.layout.covers(shape.numel());
    Spec {
        dtype,
        layout: match inputs.iter().find(fits) {
            Some(spec) => spec.layout.clone(),
            None => Layout::contiguous(shape),
        },
    }
}

/// One pass over what the inputs really hold: an element that is repeated is read once.
pub(crate) fn cost(inputs: &[Spec], outputs: &[Spec], flops_per_element: f64) -> Cost {
    Cost {
        read_bytes: inputs.iter().map(held_bytes).sum(),
        ..Cost::elementwise(&[], outputs, flops_per_element)
    }
}

/// Bytes of the elements that a view reaches, each counted once.
pub(crate) fn held_bytes(spec: &Spec) -> u64 {
    let dims = spec.shape().iter().zip(spec.layout.strides());
    let held: Shape = dims
        .map(|(&extent, &stride)| if stride == 0 { extent.min(1) } else { extent })
        .collect();
    spec.dtype.bytes(&held)
}

/// The output may lie over every input like it.
pub(crate) fn in_place(inputs: &[Spec], outputs: &[Spec]) -> Pairs {
    (0..inputs.len())
        .filter(|&i| inputs[i] == outputs[0])
        .map(|i| (i, 0))
        .collect()
}

/// The gradient of an input of this shape that was broadcast: summed over its copies.
pub(crate) fn reduce_to(
    backward: &mut Backward<'_>,
    grad: Operand,
    shape: &Shape,
) -> Result<Operand, OpError> {
    if grad.shape() == shape {
        return Ok(grad);
    }
    let shape = shape.clone();
    backward.emit_one(crate::SumTo { shape }, &[grad])
}

/// The kernel of a pointwise operation of one input. Any input like the output may be overwritten.
struct Unary<F, T>(PhantomData<fn() -> (F, T)>);

impl<F: Pointwise<1>> Unary<F, f32> {
    const ROWS: &'static [Row] = rows_of_floats! {
        T: [T] -> [T]; Unary::<F, T>(PhantomData); Exact::<F, 1>(PhantomData)
    };
}

impl<F: Pointwise<1>, T: Float> Kernel for Unary<F, T> {
    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        in_place(inputs, outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let f: &F = op_as(op)?;
        let output = &mut args.outputs[0];
        blocks::map_floats::<T, 1>(args.pool, [&args.inputs[0]], output, |_, [x], y| {
            unary(f, x, y);
        })
    }
}

/// The same for two inputs.
struct Binary<F, T>(PhantomData<fn() -> (F, T)>);

impl<F: Pointwise<2>> Binary<F, f32> {
    const ROWS: &'static [Row] = rows_of_floats! {
        T: [T] -> [T]; Binary::<F, T>(PhantomData); Exact::<F, 2>(PhantomData)
    };
}

impl<F: Pointwise<2>, T: Float> Kernel for Binary<F, T> {
    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        in_place(inputs, outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let f: &F = op_as(op)?;
        let inputs = [&args.inputs[0], &args.inputs[1]];
        let output = &mut args.outputs[0];
        blocks::map_floats::<T, 2>(args.pool, inputs, output, |_, [a, b], y| {
            binary(f, a, b, y);
        })
    }
}

/// The kernel for `F64`: the plain reference's element. Any input like the output may be overwritten.
struct Exact<F, const N: usize>(PhantomData<fn() -> F>);

impl<F: Pointwise<N>, const N: usize> Kernel for Exact<F, N> {
    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        in_place(inputs, outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let f: &F = op_as(op)?;
        let inputs: [&View<'_>; N] = std::array::from_fn(|i| &args.inputs[i]);
        blocks::map::<f64, f64, N>(args.pool, inputs, &mut args.outputs[0], |_, x, y| {
            for (i, y) in y.iter_mut().enumerate() {
                *y = f.exact(std::array::from_fn(|k| x[k][i]));
            }
        })
    }
}

multiversion! {
    fn unary[I, F: Pointwise<1>](f: &F, x: &[f32], y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = f.value::<I>([x]);
        }
    }
}

multiversion! {
    fn binary[I, F: Pointwise<2>](f: &F, a: &[f32], b: &[f32], y: &mut [f32]) {
        for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
            *y = f.value::<I>([a, b]);
        }
    }
}

fn reference<F: Pointwise<N>, const N: usize>(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let f: &F = op.downcast().expect("the reference of this operation");
    let shape = inputs.iter().fold(Shape::scalar(), |shape, input| {
        shape
            .broadcast(&input.shape)
            .expect("shapes that broadcast")
    });
    let positions: Vec<Vec<usize>> = inputs
        .iter()
        .map(|input| {
            let layout = Layout::contiguous(input.shape.clone()).expand(&shape);
            layout.expect("a broadcast").positions().collect()
        })
        .collect();
    vec![Array::from_fn(shape, |flat| {
        f.exact(std::array::from_fn(|i| inputs[i].data[positions[i][flat]]))
    })]
}

/// Samples that every operation of one input should pass, filled with `fill`.
pub(crate) fn unary_samples(op: &(impl Op + Clone), fill: Fill) -> Vec<Sample> {
    layouts()
        .into_iter()
        .map(|layout| sample(op, &[layout], &[fill]))
        .collect()
}

/// Samples that every operation of two inputs should pass, filled with `fills`.
pub(crate) fn binary_samples(op: &(impl Op + Clone), fills: [Fill; 2]) -> Vec<Sample> {
    let mut samples: Vec<Sample> = layouts()
        .into_iter()
        .map(|layout| {
            let other = Layout::contiguous(layout.shape().clone());
            sample(op, &[layout, other], &fills)
        })
        .collect();
    let broadcasts: [[&[usize]; 2]; 7] = [
        [&[2, 5, 37], &[37]],
        [&[37], &[2, 5, 37]],
        [&[2, 1, 48], &[2, 5, 1]],
        [&[40, 130], &[]],
        [&[3, 1, 5, 1], &[4, 1, 7]],
        [&[0, 5], &[5]],
        [&[300, 1], &[1, 300]],
    ];
    samples.extend(broadcasts.map(|shapes| sample(op, &shapes.map(Layout::contiguous), &fills)));
    samples
}

fn sample(op: &(impl Op + Clone), layouts: &[Layout], fills: &[Fill]) -> Sample {
    let spec = |layout: &Layout| Spec {
        dtype: DType::F32,
        layout: layout.clone(),
    };
    let inputs = layouts.iter().map(spec).zip(fills.iter().copied());
    Sample {
        op: Arc::new(op.clone()),
        inputs: inputs.collect(),
        tolerance: 1e-6,
    }
}

/// Odd sizes, more than a block, more than a task, views of every kind, a scalar and nothing.
fn layouts() -> Vec<Layout> {
    vec![
        Layout::contiguous([65]),
        Layout::contiguous([3, 5, 37]),
        Layout::contiguous([130, 257]),
        Layout::strided([37, 130], &[1, 37], 0),
        Layout::strided([9, 4, 33], &[300, 33, 1], 7),
        Layout::strided([4, 33, 9], &[9, 0, 1], 0),
        Layout::strided([70, 31], &[64, 2], 1),
        Layout::contiguous(Shape::scalar()),
        Layout::contiguous([0, 5]),
    ]
}

/// What an operation of `N` inputs must refuse.
pub(crate) fn rejects<const N: usize>(op: &(impl Op + Clone)) -> Vec<Reject> {
    let f32s = |shape: &[usize]| Spec::contiguous(DType::F32, shape);
    let reject = |inputs: Vec<Spec>, error| Reject {
        op: Arc::new(op.clone()),
        inputs,
        error,
    };
    let mut rejects = vec![
        reject(vec![f32s(&[3]); N + 1], |error| {
            matches!(error, OpError::Arity { .. })
        }),
        reject(vec![f32s(&[3]); N - 1], |error| {
            matches!(error, OpError::Arity { .. })
        }),
        reject(vec![Spec::contiguous(DType::I64, [3]); N], |error| {
            matches!(
                error,
                OpError::DType {
                    got: DType::I64,
                    ..
                }
            )
        }),
    ];
    if N == 2 {
        let shapes = vec![f32s(&[2, 3]), f32s(&[2])];
        rejects.push(reject(shapes, |error| {
            matches!(error, OpError::Shape { .. })
        }));
    }
    rejects
}
