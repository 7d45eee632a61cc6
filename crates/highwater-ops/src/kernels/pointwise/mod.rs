//! What operations share whose every output element is a function of one element of each input.

mod kernels;
mod samples;

pub(crate) use samples::{
    binary_samples, of_many_nodes, rejects, ternary_samples, unary_samples, whole_samples,
};

use crate::kernels::checks::one_float_dtype;
use crate::kernels::simd::Isa;
use crate::{Array, Entry, Reject, Sample};
use highwater_graph::{
    Autocast, Backward, Cost, DType, Layout, Op, OpError, Promotion, Shape, Spec,
};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;

/// An operation of `N` inputs that broadcast to one shape, all of one float dtype or, for some, of `I64`.
pub(crate) trait Pointwise<const N: usize>: Op {
    /// [`Op::name`].
    const NAME: &'static str;
    /// Floating-point operations per element.
    const FLOPS: f64;

    /// The fast kernel's element.
    fn value<I: Isa>(&self, x: [f32; N]) -> f32;

    /// The plain reference's element.
    fn exact(&self, x: [f64; N]) -> f64;

    /// Whether it takes `I64` as well.
    const WHOLE: bool = false;
    /// [`Op::autocast`].
    const AUTOCAST: Autocast = Autocast::AsTaken;
    /// [`Op::promotion`].
    const PROMOTION: Option<Promotion> = None;

    /// The element of whole numbers, which wrap around.
    fn whole(&self, x: [i64; N]) -> i64 {
        x[0]
    }

    /// [`Op::hash_attributes`].
    fn hash(&self, _hasher: &mut dyn Hasher) {}

    /// [`Op::backward`].
    fn emit(&self, _backward: &mut Backward<'_>) -> Result<(), OpError> {
        Err(OpError::NotDifferentiable { op: Self::NAME })
    }
}

/// Implements [`Op`] by [`Pointwise`].
macro_rules! pointwise_op {
    ($($type:ty: $arity:literal),* $(,)?) => {$(
        impl highwater_graph::Op for $type {
            fn name(&self) -> &'static str {
                <Self as $crate::kernels::pointwise::Pointwise<$arity>>::NAME
            }

            fn hash_attributes(&self, hasher: &mut dyn std::hash::Hasher) {
                $crate::kernels::pointwise::Pointwise::<$arity>::hash(self, hasher);
            }

            fn infer(
                &self,
                inputs: &[highwater_graph::Spec],
            ) -> Result<smallvec::SmallVec<[highwater_graph::Spec; 2]>, highwater_graph::OpError>
            {
                $crate::kernels::pointwise::infer::<Self, $arity>(inputs)
            }

            fn cost(
                &self,
                inputs: &[highwater_graph::Spec],
                outputs: &[highwater_graph::Spec],
                _threads: usize,
            ) -> highwater_graph::Cost {
                let flops = <Self as $crate::kernels::pointwise::Pointwise<$arity>>::FLOPS;
                $crate::kernels::pointwise::cost(inputs, outputs, flops)
            }

            fn autocast(&self) -> highwater_graph::Autocast {
                <Self as $crate::kernels::pointwise::Pointwise<$arity>>::AUTOCAST
            }

            fn promotion(&self) -> Option<highwater_graph::Promotion> {
                <Self as $crate::kernels::pointwise::Pointwise<$arity>>::PROMOTION
            }

            fn backward(
                &self,
                backward: &mut highwater_graph::Backward<'_>,
            ) -> Result<(), highwater_graph::OpError> {
                $crate::kernels::pointwise::Pointwise::<$arity>::emit(self, backward)
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
        rows: kernels::Unary::<F, f32>::ROWS,
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
        rows: if F::WHOLE {
            &kernels::Whole::<F>::ROWS
        } else {
            kernels::Binary::<F, f32>::ROWS
        },
        reference: reference::<F, 2>,
        samples,
        rejects,
    }
}

/// The row of a pointwise operation of three inputs.
pub(crate) const fn ternary_entry<F: Pointwise<3>>(
    samples: fn() -> Vec<Sample>,
    rejects: fn() -> Vec<Reject>,
) -> Entry {
    Entry {
        name: F::NAME,
        rows: kernels::Ternary::<F, f32>::ROWS,
        reference: reference::<F, 3>,
        samples,
        rejects,
    }
}

/// `N` inputs of one dtype that broadcast; see [`dense_like`] for how the output lies.
pub(crate) fn infer<F: Pointwise<N>, const N: usize>(
    inputs: &[Spec],
) -> Result<SmallVec<[Spec; 2]>, OpError> {
    OpError::check_arity(F::NAME, inputs, N)?;
    let dtype = if F::WHOLE && inputs[0].dtype == DType::I64 {
        for input in inputs {
            OpError::check_dtype(F::NAME, input, DType::I64)?;
        }
        DType::I64
    } else {
        let all: SmallVec<[&Spec; 3]> = inputs.iter().collect();
        one_float_dtype(F::NAME, &all)?
    };
    let shape = broadcast(F::NAME, inputs)?;
    Ok(smallvec![dense_like(inputs, dtype, shape)])
}

/// The shape to which all inputs broadcast.
pub(crate) fn broadcast(op: &'static str, inputs: &[Spec]) -> Result<Shape, OpError> {
    let mut shape = Shape::scalar();
    for input in inputs {
        shape = shape.broadcast(input.shape()).ok_or_else(|| {
            let shapes: Vec<_> = inputs.iter().map(|i| i.shape().to_string()).collect();
            OpError::shape(op, "shapes that broadcast", shapes.join(" and "))
        })?;
    }
    Ok(shape)
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

/// One pass with so many operations for each element of the outputs.
pub(crate) fn cost(inputs: &[Spec], outputs: &[Spec], flops_per_element: f64) -> Cost {
    let elements: usize = outputs.iter().map(|spec| spec.layout.numel()).sum();
    one_pass(inputs, outputs, flops_per_element * elements as f64)
}

/// One pass over what the inputs really hold: an element that is repeated is read once.
pub(crate) fn one_pass(inputs: &[Spec], outputs: &[Spec], vector_flops: f64) -> Cost {
    Cost {
        vector_flops,
        read_bytes: inputs.iter().map(held_bytes).sum(),
        written_bytes: outputs.iter().map(Spec::bytes).sum(),
        ..Cost::default()
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

fn reference<F: Pointwise<N>, const N: usize>(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let f: &F = op.downcast().expect("the reference of this operation");
    vec![map_arrays(inputs, |x| f.exact(x))]
}

/// A function of one element of each array, which broadcast.
pub(crate) fn map_arrays<const N: usize>(inputs: &[Array], f: impl Fn([f64; N]) -> f64) -> Array {
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
    Array::from_fn(shape, |flat| {
        f(std::array::from_fn(|i| inputs[i].data[positions[i][flat]]))
    })
}
