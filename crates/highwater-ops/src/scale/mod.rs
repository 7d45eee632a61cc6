//! A tensor times a number.

use crate::matmul::one_float_dtype;
use crate::strided::gather;
use crate::{Args, Array, Entry, Fill, Kernel, KernelError, Pairs, Reject, Row, Sample, pointwise};
use highwater_graph::{Backward, Cost, DType, Layout, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// Elements that one task multiplies.
const BLOCK: usize = 1 << 14;

/// `y = x * s` for a tensor `x` and a tensor `s` of one element, of one float dtype: how gradients
/// that were made along with a loss take up the gradient of that loss. The output has the storage
/// order of `x` where that is dense, and may lie over it. Differentiable in `x` alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale;

const ENTRY: Entry = Entry {
    name: "scale",
    rows: &[Row::f32(|| Arc::new(ScaleKernel))],
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
        let dtype = one_float_dtype(self.name(), &[x, s])?;
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
        if let Some(grad) = backward.grad(0).filter(|_| backward.needs(0)) {
            let factor = backward.input(1);
            let grad = backward.emit_one(Self, &[grad, factor])?;
            backward.set(0, grad);
        }
        Ok(())
    }
}

/// May overwrite the tensor.
struct ScaleKernel;

impl Kernel for ScaleKernel {
    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        pointwise::in_place(&inputs[..1], outputs)
    }

    fn launch(&self, _op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        scale(args)
    }
}

fn scale(args: &mut Args<'_>) -> Result<(), KernelError> {
    let [x, factor] = &*args.inputs else {
        return Ok(());
    };
    let factor = factor.storage::<f32>()?[factor.layout().offset()];
    let out = &mut args.outputs[0];
    let in_place = x.is_overwritten();
    // The same order in both storages: then any order will do.
    let dense = is_whole(x.layout()).then(|| Layout::contiguous([x.numel()]));
    let layout = dense.as_ref().unwrap_or(x.layout());
    let source = if in_place { &[] } else { x.storage::<f32>()? };
    let out = &mut out.storage_mut::<f32>()?[..x.numel()];
    args.pool.for_each_chunk(out, BLOCK, |task, out| {
        if !in_place {
            gather(source, layout, task * BLOCK, out);
        }
        for y in out.iter_mut() {
            *y *= factor;
        }
    });
    Ok(())
}

fn reference(_op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let (x, factor) = (&inputs[0], inputs[1].data[0]);
    vec![Array::from_fn(x.shape.clone(), |i| x.data[i] * factor)]
}

fn samples() -> Vec<Sample> {
    let sample = |layout: Layout| {
        let spec = Spec {
            dtype: DType::F32,
            layout,
        };
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
        inputs: vec![Spec::contiguous(DType::F32, [2]); 2],
        error: |error| matches!(error, OpError::Shape { op: "scale", .. }),
    }]
}
