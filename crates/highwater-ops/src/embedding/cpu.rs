#![expect(unsafe_code, reason = "tasks own columns of one output")]

use super::EmbeddingBackward;
use crate::indices::Indices;
use crate::strided::gather;
use crate::{Args, Disjoint, Kernel, KernelError, Pairs, View, op_as};
use highwater_graph::{Op, Spec};

/// Rows of the output that one task copies.
const ROWS: usize = 16;
/// Elements of the gradient that one task fills with its start.
const START: usize = 1 << 16;
/// Columns of the gradient that one task sums.
const COLUMNS: usize = 128;

pub(super) fn embedding(_op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let weight = &args.inputs[0];
    let [rows, width] = *weight.dims() else {
        return Ok(());
    };
    let indices = Indices::of(&args.inputs[1])?;
    indices.check(rows, None)?;
    let (layout, weight) = (weight.layout(), weight.storage::<f32>()?);
    let out = args.outputs[0].slice_mut::<f32>()?;
    args.pool.for_each_chunk(out, ROWS * width, |task, out| {
        for (i, row) in out.chunks_mut(width).enumerate() {
            let index = indices.get(task * ROWS + i) as usize;
            gather(weight, layout, index * width, row);
        }
    });
    Ok(())
}

/// May overwrite the gradient so far.
pub(super) struct BackwardKernel;

impl Kernel for BackwardKernel {
    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        let existing = inputs.get(2).filter(|&existing| *existing == outputs[0]);
        existing.map(|_| (2, 0)).into_iter().collect()
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        backward(*op_as(op)?, args)
    }
}

fn backward(op: EmbeddingBackward, args: &mut Args<'_>) -> Result<(), KernelError> {
    let rows = op.rows;
    let [grad, indices, existing @ ..] = &*args.inputs else {
        return Ok(());
    };
    let indices = Indices::of(indices)?;
    indices.check(rows, None)?;
    let in_place = existing.iter().any(View::is_overwritten);
    let existing = existing.first().filter(|_| !in_place);
    let existing = existing.map(|view| Ok((view.layout(), view.storage::<f32>()?)));
    let existing = existing.transpose()?;
    let out = args.outputs[0].slice_mut::<f32>()?;
    if !in_place {
        args.pool
            .for_each_chunk(out, START, |task, out| match existing {
                Some((layout, data)) => gather(data, layout, task * START, out),
                None => out.fill(0.0),
            });
    }
    let width = out.len() / rows.max(1);
    let (layout, grad) = (grad.layout(), grad.storage::<f32>()?);
    let out = Disjoint::new(out);
    args.pool.for_each(width.div_ceil(COLUMNS), |task| {
        let mut buffer = [0.0_f32; COLUMNS];
        let start = task * COLUMNS;
        let piece = &mut buffer[..COLUMNS.min(width - start)];
        for i in 0..indices.len() {
            gather(grad, layout, i * width + start, piece);
            let at = indices.get(i) as usize * width + start;
            // SAFETY: a task only touches its own columns, one part at a time.
            let sums = unsafe { out.part(at, piece.len()) };
            sums.iter_mut().zip(&*piece).for_each(|(sum, g)| *sum += g);
        }
    });
    Ok(())
}
