use super::{CrossEntropy, CrossEntropyBackward, loss_of_row, softmax_minus_label};
use crate::indices::Indices;
use crate::strided::gather;
use crate::{Args, Kernel, KernelError, Pairs, op_as, pointwise};
use highwater_graph::{Op, Spec};

/// Rows per task.
const ROWS: usize = 4;

/// Keeps the losses of rows in scratch memory.
pub(super) struct ForwardKernel;

impl Kernel for ForwardKernel {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], _threads: usize) -> u64 {
        (inputs[1].layout.numel() * size_of::<f64>()) as u64
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        forward(*op_as(op)?, args)
    }
}

/// May overwrite the logits.
pub(super) struct BackwardKernel;

impl Kernel for BackwardKernel {
    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        pointwise::in_place(&inputs[..1], outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        backward(*op_as(op)?, args)
    }
}

fn forward(op: CrossEntropy, args: &mut Args<'_>) -> Result<(), KernelError> {
    let CrossEntropy {
        reduction,
        ignore_index,
    } = op;
    let Args {
        inputs,
        outputs,
        scratch,
        pool,
    } = args;
    let (x, labels) = (&inputs[0], Indices::of(&inputs[1])?);
    let width = x.dims().last().copied().unwrap_or(1);
    let count = labels.check(width, Some(ignore_index))?;
    let (layout, x) = (x.layout(), x.storage::<f32>()?);
    let losses = &mut bytemuck::cast_slice_mut::<u8, f64>(scratch)[..labels.len()];
    pool.for_each_chunk(losses, ROWS, |task, losses| {
        for (i, loss) in losses.iter_mut().enumerate() {
            let row = task * ROWS + i;
            let label = labels.get(row);
            *loss = if label == ignore_index {
                0.0
            } else {
                loss_of_row(x, layout, row, label as usize)
            };
        }
    });
    outputs[0].slice_mut::<f32>()?[0] = reduction.reduce(losses, count) as f32;
    Ok(())
}

fn backward(op: CrossEntropyBackward, args: &mut Args<'_>) -> Result<(), KernelError> {
    let CrossEntropyBackward {
        reduction,
        ignore_index,
    } = op;
    let [x, labels, grad] = &*args.inputs else {
        return Ok(());
    };
    let labels = Indices::of(labels)?;
    let width = x.dims().last().copied().unwrap_or(1);
    let count = labels.check(width, Some(ignore_index))?;
    let grad = f64::from(grad.storage::<f32>()?[grad.layout().offset()]);
    let factor = reduction.factor(count) * grad;
    let (layout, in_place) = (x.layout(), x.is_overwritten());
    let source = if in_place { &[] } else { x.storage::<f32>()? };
    let out = args.outputs[0].slice_mut::<f32>()?;
    args.pool.for_each_chunk(out, ROWS * width, |task, out| {
        for (i, out) in out.chunks_mut(width).enumerate() {
            let row = task * ROWS + i;
            let label = labels.get(row);
            if label == ignore_index {
                out.fill(0.0);
                continue;
            }
            if !in_place {
                gather(source, layout, row * width, out);
            }
            softmax_minus_label(out, label as usize, factor);
        }
    });
    Ok(())
}
