//! The gated linear unit of Llama: `swiglu` and `swiglu_backward`.
//!
//! `silu(gate) up` (Shazeer, "GLU Variants Improve Transformer", 2020): in one pass, without a tensor for
//! `silu(gate)`, forward or backward.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

mod cpu;
mod second;

use crate::kernels::checks::one_float_dtype;
use crate::kernels::math;
use crate::kernels::pointwise::{self, Pointwise, one_pass, pointwise_op};
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::kernels::simd::Isa;
use crate::ops::gradients::reduce_to;
use crate::ops::silu::{exact_slope, sigmoid};
use crate::table::{f32_view, f32s, is_arity, is_dtype, is_shape};
use crate::{Array, Entry, Fill, Reject, Sample};
use highwater_graph::{Autocast, Backward, Cost, DType, Layout, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[SWIGLU, SWIGLU_BACKWARD];

/// `silu(gate) up` of inputs `gate` and `up`, elementwise.
///
/// As `torch.nn.functional.silu(gate) * up`. Two tensors of one float dtype and any layout, as the two
/// halves of one product are, whose shapes broadcast. Computed in `f32` and rounded once; one pass; in
/// place. Backward reads both inputs and makes both gradients in one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swiglu;

/// The gradients of `gate`, which may lie over `g`, and of `up`, which may lie over `up`, of inputs `g`,
/// `gate` and `up` of one shape.
#[derive(Debug, Clone, Copy)]
struct SwigluBackward;

pointwise_op!(Swiglu: 2);

const BACKWARD: &str = "swiglu_backward";

impl Pointwise<2> for Swiglu {
    const NAME: &'static str = "swiglu";
    const FLOPS: f64 = 14.0;
    const AUTOCAST: Autocast = Autocast::Widest;

    #[inline(always)]
    fn value<I: Isa>(&self, [gate, up]: [f32; 2]) -> f32 {
        gate * math::sigmoid::<I>(gate) * up
    }

    fn exact(&self, [gate, up]: [f64; 2]) -> f64 {
        gate * sigmoid(gate) * up
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0) else {
            return Ok(());
        };
        let inputs = [backward.input(0), backward.input(1)];
        let expanded = inputs.each_ref().map(|input| {
            let layout = input.spec.layout.expand(grad.shape());
            layout.map_or_else(|| input.clone(), |layout| input.with_layout(layout))
        });
        let [gate, up] = expanded;
        let grads = backward.emit(SwigluBackward, &[grad, gate, up])?;
        for (i, (grad, input)) in grads.into_iter().zip(inputs).enumerate() {
            if backward.needs(i) {
                let grad = reduce_to(backward, grad, input.shape())?;
                backward.set(i, grad);
            }
        }
        Ok(())
    }
}

impl Op for SwigluBackward {
    fn name(&self) -> &'static str {
        BACKWARD
    }

    fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(BACKWARD, inputs, 3)?;
        let all: SmallVec<[&Spec; 3]> = inputs.iter().collect();
        let dtype = one_float_dtype(BACKWARD, &all)?;
        let shape = inputs[0].shape();
        for input in &inputs[1..] {
            if input.shape() != shape {
                let got = input.shape().to_string();
                return Err(OpError::shape(BACKWARD, shape.to_string(), got));
            }
        }
        let grad = Spec::contiguous(dtype, shape.clone());
        Ok(smallvec![grad.clone(), grad])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        one_pass(inputs, outputs, 20.0 * outputs[0].layout.numel() as f64)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        second::emit(backward)
    }
}

const SWIGLU: Entry = pointwise::binary_entry::<Swiglu>(
    || pointwise::binary_samples(&Swiglu, [Fill::Normal(3.0), Fill::Normal(1.0)]),
    || pointwise::rejects::<2>(&Swiglu),
);

const SWIGLU_BACKWARD: Entry = Entry {
    name: BACKWARD,
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::BackwardKernel::<T>(PhantomData); Precise::new(reference)
    },
    reference,
    samples,
    rejects,
};

/// The plain reference of the gradients.
fn reference(_op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let [g, gate, up] = inputs else {
        return Vec::new();
    };
    let of = |f: &dyn Fn(f64, f64, f64) -> f64| {
        let shape = g.shape.clone();
        Array::from_fn(shape, |i| f(g.data[i], gate.data[i], up.data[i]))
    };
    vec![
        of(&|g, gate, up| g * up * exact_slope(gate)),
        of(&|g, gate, _| g * gate * sigmoid(gate)),
    ]
}

fn samples() -> Vec<Sample> {
    let sample = |shape: &[usize]| {
        let gate = f32s(shape);
        Sample::new(SwigluBackward, &[shape; 3])
            .input(1, gate, Fill::Normal(3.0))
            .tolerance(2e-6)
    };
    let view = |layout| f32_view(layout);
    let half = |start: usize| view(Layout::strided([37, 65], &[130, 1], start));
    let columns = view(Layout::strided([130, 33], &[1, 130], 0));
    let repeated = view(Layout::strided([4, 9, 33], &[0, 33, 1], 0));
    vec![
        sample(&[65]),
        sample(&[3, 5, 37]),
        sample(&[130, 257]),
        sample(&[]),
        sample(&[0, 5]),
        // The two halves of one product.
        sample(&[37, 65])
            .input(1, half(0), Fill::Normal(3.0))
            .input(2, half(65), Fill::Normal(1.0)),
        sample(&[130, 33]).input(0, columns, Fill::Normal(1.0)),
        sample(&[4, 9, 33]).input(2, repeated, Fill::Normal(1.0)),
    ]
}

fn rejects() -> Vec<Reject> {
    let reject = |inputs: Vec<Spec>, error| Reject::new(SwigluBackward, inputs, error);
    vec![
        reject(vec![f32s([3]); 2], is_arity),
        reject(vec![f32s([3]), f32s([3]), f32s([4])], is_shape),
        reject(vec![Spec::contiguous(DType::I64, [3]); 3], is_dtype),
    ]
}
