//! Rows of a table by index.

mod cpu;
mod reference;

use crate::kernels::checks::{check_indices, one_float_dtype};
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::gradients;
use crate::table::{f32_strided, f32s, is_arity, is_shape};
use crate::{Entry, Fill, Reject, Sample, op_as};
use highwater_graph::DType::{I64, U32};
use highwater_graph::{Backward, Cost, DType, Layout, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY, BACKWARD];

/// `y[.., c] = weight[indices[..], c]`: `torch.nn.functional.embedding`.
///
/// Inputs `weight: [rows, C]` of a float dtype and `indices` (I64 or U32) of any shape. Output
/// `[.., C]`. An index outside the table stops the step with the index and its position. The
/// gradient is dense; see [`EmbeddingBackward`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Embedding;

/// The gradient of [`Embedding`]'s table: `dw[r, :]` is the sum of `g[i, :]` over all `i` with
/// `indices[i] = r`, added in ascending order of `i`.
///
/// Inputs `g: [.., C]`, `indices: [..]` and, with `accumulate`, the gradient that the table has so
/// far, `[rows, C]`, which the sum starts from and which the output may lie over. Output
/// `[rows, C]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddingBackward {
    /// Rows of the table.
    pub rows: usize,
    /// Whether there is a third input to start from, instead of zero.
    pub accumulate: bool,
}

const ENTRY: Entry = Entry {
    name: "embedding",
    rows: rows_of_floats! {
        T: [T, I64] -> [T], [T, U32] -> [T]; cpu::embedding::<T>; cpu::embedding::<f64>
    },
    reference: reference::embedding,
    samples,
    rejects,
};

const BACKWARD: Entry = Entry {
    name: "embedding_backward",
    rows: rows_of_floats! {
        T: [T, I64, T] -> [T], [T, U32, T] -> [T];
        cpu::BackwardKernel::<T>(PhantomData);
        Precise::checked(reference::backward, |op, inputs| {
            cpu::check(&inputs[1], op_as::<EmbeddingBackward>(op)?.rows)
        })
    },
    reference: reference::backward,
    samples: backward_samples,
    rejects: backward_rejects,
};

impl Op for Embedding {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 2)?;
        let dtype = one_float_dtype(self.name(), &[&inputs[0]])?;
        check_indices(self.name(), &inputs[1])?;
        let [_, width] = *inputs[0].shape().dims() else {
            let got = inputs[0].shape().to_string();
            return Err(OpError::shape(self.name(), "a weight [rows, C]", got));
        };
        let shape: Shape = inputs[1].shape().iter().copied().chain([width]).collect();
        Ok(smallvec![Spec::contiguous(dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        let written_bytes = outputs[0].bytes();
        Cost {
            read_bytes: inputs[1].bytes() + written_bytes,
            written_bytes,
            ..Cost::default()
        }
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let (rows, indices) = (backward.input(0).shape()[0], backward.input(1));
        let op = |accumulate| EmbeddingBackward { rows, accumulate };
        gradients::added_from(backward, op, &[indices])
    }
}

impl Op for EmbeddingBackward {
    fn name(&self) -> &'static str {
        BACKWARD.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_usize(self.rows);
        hasher.write_u8(self.accumulate.into());
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, if self.accumulate { 3 } else { 2 })?;
        check_indices(self.name(), &inputs[1])?;
        let (grad, indices) = (inputs[0].shape(), inputs[1].shape());
        let Some((&width, _)) = grad
            .split_last()
            .filter(|(_, lead)| *lead == indices.dims())
        else {
            let expected = format!("a gradient of shape {indices} and one dimension more");
            return Err(OpError::shape(self.name(), expected, grad.to_string()));
        };
        let dtype = one_float_dtype(self.name(), &[&inputs[0]])?;
        let out = Spec::contiguous(dtype, [self.rows, width]);
        if let Some(existing) = inputs.get(2) {
            OpError::check_dtype(self.name(), existing, dtype)?;
            if existing.shape() != out.shape() {
                let expected = format!("a gradient so far {}", out.shape());
                let got = existing.shape().to_string();
                return Err(OpError::shape(self.name(), expected, got));
            }
        }
        Ok(smallvec![out])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        let grad = inputs[0].bytes();
        Cost {
            vector_flops: inputs[0].layout.numel() as f64,
            // The rows that are added to are read and written once more.
            read_bytes: inputs.iter().map(Spec::bytes).sum::<u64>() + 2 * grad,
            written_bytes: outputs[0].bytes(),
            ..Cost::default()
        }
    }

    /// The rows of the table's gradient that `g` was added to.
    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0) else {
            return Ok(());
        };
        if backward.needs(0) {
            let indices = backward.input(1);
            let rows = backward.emit_one(Embedding, &[grad.clone(), indices])?;
            backward.set(0, rows);
        }
        if self.accumulate && backward.needs(2) {
            backward.set(2, grad);
        }
        Ok(())
    }
}

fn samples() -> Vec<Sample> {
    let sample = |rows, width, indices: Spec| {
        Sample::new(Embedding, &[&[rows, width], &[0]])
            .input(1, indices, Fill::Indices(rows))
            .tolerance(0.0)
    };
    let i64 = |shape: &[usize]| Spec::contiguous(DType::I64, shape);
    let strided = Spec {
        dtype: DType::U32,
        layout: Layout::strided([3, 5], &[1, 3], 0),
    };
    let table = f32_strided([9, 65], &[1, 9], 0);
    vec![
        sample(11, 37, i64(&[2, 5])),
        sample(3, 130, i64(&[4, 17])),
        sample(64, 5, i64(&[])),
        sample(9, 4, i64(&[0])),
        sample(9, 0, i64(&[3])),
        sample(6, 8, strided.clone()),
        sample(9, 65, strided).input(0, table, Fill::Normal(1.0)),
    ]
}

fn rejects() -> Vec<Reject> {
    let reject = |weight: &[usize], indices: Spec, error| {
        Reject::new(Embedding, vec![f32s(weight), indices], error)
    };
    vec![
        reject(&[4], Spec::contiguous(DType::I64, [2]), |error| {
            matches!(
                error,
                OpError::Shape {
                    op: "embedding",
                    ..
                }
            )
        }),
        reject(&[4, 3], f32s([2]), |error| {
            matches!(
                error,
                OpError::DType {
                    op: "embedding",
                    ..
                }
            )
        }),
    ]
}

fn backward_samples() -> Vec<Sample> {
    let sample = |rows, accumulate, shape: &[usize], dtype| {
        let width = shape[shape.len() - 1];
        let indices = Spec::contiguous(dtype, &shape[..shape.len() - 1]);
        let op = EmbeddingBackward { rows, accumulate };
        let shapes: [&[usize]; 3] = [shape, &[0], &[rows, width]];
        let inputs = if accumulate { 3 } else { 2 };
        Sample::new(op, &shapes[..inputs]).input(1, indices, Fill::Indices(rows.max(1)))
    };
    let columns = |rows, cols| f32_strided([rows, cols], &[1, rows], 0);
    vec![
        sample(11, false, &[2, 5, 37], DType::I64),
        sample(3, true, &[40, 130], DType::U32),
        sample(70, true, &[7, 300], DType::I64).input(2, columns(70, 300), Fill::Normal(1.0)),
        sample(70, false, &[7, 65], DType::I64).input(0, columns(7, 65), Fill::Normal(1.0)),
        sample(5, false, &[0, 4], DType::I64),
        sample(0, false, &[0, 4], DType::I64),
        sample(5, true, &[3, 0], DType::I64),
    ]
}

fn backward_rejects() -> Vec<Reject> {
    let reject = |accumulate, shapes: &[&[usize]], error| {
        let mut inputs: Vec<Spec> = shapes.iter().map(|&s| f32s(s)).collect();
        inputs[1].dtype = DType::I64;
        let op = EmbeddingBackward {
            rows: 9,
            accumulate,
        };
        let op = Arc::new(op);
        Reject { op, inputs, error }
    };
    vec![
        reject(false, &[&[3, 4], &[2]], is_shape),
        reject(false, &[&[], &[]], is_shape),
        reject(true, &[&[2, 4], &[2], &[9, 5]], is_shape),
        reject(true, &[&[2, 4], &[2]], is_arity),
    ]
}
