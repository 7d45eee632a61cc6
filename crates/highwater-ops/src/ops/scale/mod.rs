//! A tensor times a number.

use crate::device::in_place;
use crate::kernels::blocks;
use crate::kernels::checks::one_float_dtype;
use crate::kernels::float::{Float, sums_in};
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::gradients;
use crate::table::{f32_view, f32s};
use crate::{Args, Array, Entry, Fill, Kernel, KernelError, Pairs, Reject, Sample};
use highwater_graph::{Backward, Cost, Layout, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// `y = x * s` for a tensor `x` of a float dtype and a tensor `s` of one element, at least `F32`: how
/// gradients that were made along with a loss take up the gradient of that loss, which may be the scale
/// of one. The output has the storage
/// order of `x` where that is dense, and may lie over it. Differentiable in `x` alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale;

const ENTRY: Entry = Entry {
    name: "scale",
    rows: rows_of_floats! {
        T: [T, Sums] -> [T]; ScaleKernel::<T>(PhantomData); Precise::new(reference)
    },
    reference,
    samples,
    rejects,
};

/// Whether a layout is of a whole storage, in whatever order.
fn is_whole(layout: &Layout) -> bool {
    layout.offset() == 0 && layout.covers(layout.numel())
}

impl Op for Scale {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 2)?;
        let (x, s) = (&inputs[0], &inputs[1]);
        let dtype = one_float_dtype(self.name(), &[x])?;
        OpError::check_dtype(self.name(), s, sums_in(dtype))?;
        if s.layout.numel() != 1 {
            let got = s.shape().to_string();
            return Err(OpError::shape(self.name(), "a factor of one element", got));
        }
        Ok(smallvec![if is_whole(&x.layout) {
            x.clone()
        } else {
            Spec::contiguous(dtype, x.shape().clone())
        }])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost::elementwise(inputs, outputs, 1.0)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        if backward.needs(1) {
            return Err(OpError::NotDifferentiable { op: self.name() });
        }
        let factor = backward.input(1);
        gradients::from(backward, Self, &[factor])
    }
}

/// May overwrite the tensor.
struct ScaleKernel<T>(PhantomData<fn() -> T>);

impl<T: Float> Kernel for ScaleKernel<T> {
    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        in_place(&inputs[..1], outputs)
    }

    fn launch(&self, _op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let factor = &args.inputs[1];
        let factor = factor.storage::<f32>()?[factor.layout().offset()];
        let (x, output) = (&args.inputs[0], &mut args.outputs[0]);
        blocks::map_floats::<T, 1>(args.pool, [x], output, &|_, [x], y| {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = x * factor;
            }
        })
    }
}

fn reference(_op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let (x, factor) = (&inputs[0], inputs[1].data[0]);
    vec![Array::from_fn(x.shape.clone(), |i| x.data[i] * factor)]
}

fn samples() -> Vec<Sample> {
    let sample = |layout: Layout| {
        let spec = f32_view(layout);
        Sample::new(Scale, &[&[], &[]]).input(0, spec, Fill::Normal(1.0))
    };
    vec![
        sample(Layout::contiguous([])),
        sample(Layout::contiguous([0, 3])),
        sample(Layout::contiguous([130, 300])),
        sample(Layout::strided([37, 65], &[1, 37], 0)),
        sample(Layout::strided([37, 65], &[0, 2], 9)),
    ]
}

fn rejects() -> Vec<Reject> {
    vec![Reject {
        op: Arc::new(Scale),
        inputs: vec![f32s([2]); 2],
        error: |error| matches!(error, OpError::Shape { op: "scale", .. }),
    }]
}
