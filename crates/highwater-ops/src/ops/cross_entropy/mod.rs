//! Softmax and negative log likelihood in one pass.

mod cpu;
mod reference;
mod row;
mod second;

pub(crate) use reference::loss_and_gradient;
pub(crate) use row::{loss_of_row, softmax_minus_label};

use crate::kernels::checks::{check_indices, one_float_dtype};
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::table::{f32_strided, f32s, is_dtype, is_shape};
use crate::{Entry, Fill, Reject, Sample, op_as};
use highwater_graph::DType::{I64, U32};
use highwater_graph::{Autocast, Backward, Cost, DType, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY, BACKWARD];

/// How the losses of rows become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reduction {
    /// Their sum over the number of rows whose label is not ignored; NaN if there are none.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

impl Reduction {
    /// What each of `count` rows' losses is multiplied by.
    pub(crate) fn factor(self, count: usize) -> f64 {
        match self {
            Self::Mean => 1.0 / count as f64,
            Self::Sum => 1.0,
        }
    }

    /// The loss of rows whose losses are given; those that are ignored count zero.
    pub(crate) fn reduce(self, losses: &[f64], count: usize) -> f64 {
        let sum: f64 = losses.iter().sum();
        match self {
            Self::Mean => sum / count as f64,
            Self::Sum => sum,
        }
    }
}

/// `log(sum over c of exp(x[i, c])) - x[i, label[i]]`, averaged or summed over rows:
/// `torch.nn.functional.cross_entropy` with class indices.
///
/// Inputs `x: [.., C]` of a float dtype, `labels: [..]` (I64 or U32). Output: a scalar. Rows whose
/// label is `ignore_index` count nothing; any other label outside `0..C` stops the step. Each row
/// is summed in lanes of `f32`, rows in `f64` in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrossEntropy {
    /// How the losses of rows become one.
    pub reduction: Reduction,
    /// The label of rows that count nothing; -100 in PyTorch.
    pub ignore_index: i64,
}

/// The gradient of [`CrossEntropy`] in `x`: `(softmax(x) - onehot(label)) * g`, with `mean` over
/// the number of rows that count. Inputs `x`, `labels`, `g` (scalar); the output may lie over `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrossEntropyBackward {
    /// As in [`CrossEntropy`].
    pub reduction: Reduction,
    /// As in [`CrossEntropy`].
    pub ignore_index: i64,
}

const ENTRY: Entry = Entry {
    name: "cross_entropy",
    rows: rows_of_floats! {
        T: [T, I64] -> [T], [T, U32] -> [T];
        cpu::ForwardKernel::<T>(PhantomData);
        Precise::checked(reference::forward, |op, inputs| {
            cpu::check_labels(inputs, op_as::<CrossEntropy>(op)?.ignore_index)
        })
    },
    reference: reference::forward,
    samples: || all_samples(forward_sample),
    rejects,
};

const BACKWARD: Entry = Entry {
    name: "cross_entropy_backward",
    rows: rows_of_floats! {
        T: [T, I64, T] -> [T], [T, U32, T] -> [T];
        cpu::BackwardKernel::<T>(PhantomData);
        Precise::checked(reference::backward, |op, inputs| {
            cpu::check_labels(inputs, op_as::<CrossEntropyBackward>(op)?.ignore_index)
        })
    },
    reference: reference::backward,
    samples: || all_samples(backward_sample),
    rejects: backward_rejects,
};

/// Checks that labels are indices, one for each row of `[.., C]`.
pub(crate) fn check_labels(op: &'static str, x: &Spec, labels: &Spec) -> Result<(), OpError> {
    check_indices(op, labels)?;
    let rows = x.shape().split_last().map(|(_, rows)| rows);
    if rows == Some(labels.shape().dims()) {
        return Ok(());
    }
    let got = format!("{} with labels {}", x.shape(), labels.shape());
    Err(OpError::shape(op, "rows [.., C] with labels [..]", got))
}

fn hash(reduction: Reduction, ignore_index: i64, hasher: &mut dyn Hasher) {
    hasher.write_u8(reduction as u8);
    hasher.write_i64(ignore_index);
}

impl Op for CrossEntropy {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hash(self.reduction, self.ignore_index, hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 2)?;
        let dtype = one_float_dtype(self.name(), &[&inputs[0]])?;
        check_labels(self.name(), &inputs[0], &inputs[1])?;
        Ok(smallvec![Spec::contiguous(dtype, [])])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost {
            vector_flops: 14.0 * inputs[0].layout.numel() as f64,
            ..Cost::elementwise(inputs, outputs, 0.0)
        }
    }

    fn autocast(&self) -> Autocast {
        Autocast::Full
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0).filter(|_| backward.needs(0)) else {
            return Ok(());
        };
        let op = CrossEntropyBackward {
            reduction: self.reduction,
            ignore_index: self.ignore_index,
        };
        let (x, labels) = (backward.input(0), backward.input(1));
        let dx = backward.emit_one(op, &[x, labels, grad])?;
        backward.set(0, dx);
        Ok(())
    }
}

impl Op for CrossEntropyBackward {
    fn name(&self) -> &'static str {
        BACKWARD.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hash(self.reduction, self.ignore_index, hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 3)?;
        let dtype = one_float_dtype(self.name(), &[&inputs[0], &inputs[2]])?;
        check_labels(self.name(), &inputs[0], &inputs[1])?;
        if inputs[2].layout.numel() != 1 {
            let got = inputs[2].shape().to_string();
            return Err(OpError::shape(self.name(), "a scalar gradient", got));
        }
        Ok(smallvec![Spec::contiguous(
            dtype,
            inputs[0].shape().clone()
        )])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost::elementwise(inputs, outputs, 16.0)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        second::emit(*self, backward)
    }
}

fn forward_sample(reduction: Reduction, shape: &[usize]) -> Sample {
    let op = CrossEntropy {
        reduction,
        ignore_index: -100,
    };
    Sample::new(op, &[shape, &[]])
}

fn backward_sample(reduction: Reduction, shape: &[usize]) -> Sample {
    let op = CrossEntropyBackward {
        reduction,
        ignore_index: -100,
    };
    Sample::new(op, &[shape, &[], &[]])
}

fn all_samples(sample: fn(Reduction, &[usize]) -> Sample) -> Vec<Sample> {
    let labelled = |reduction, shape: &[usize], dtype, fill| {
        let labels = Spec::contiguous(dtype, &shape[..shape.len() - 1]);
        sample(reduction, shape)
            .input(0, f32s(shape), Fill::Normal(3.0))
            .input(1, labels, fill)
    };
    let strided = |shape, strides: &[usize], offset| f32_strided(shape, strides, offset);
    let (mean, sum) = (Reduction::Mean, Reduction::Sum);
    vec![
        labelled(mean, &[5, 37], DType::I64, Fill::Labels(37)),
        labelled(mean, &[65, 130], DType::U32, Fill::Indices(130)),
        labelled(sum, &[2, 9, 48], DType::I64, Fill::Labels(48)),
        labelled(mean, &[3, 1025], DType::I64, Fill::Indices(1025)),
        labelled(mean, &[7, 1], DType::I64, Fill::Indices(1)),
        labelled(mean, &[9], DType::I64, Fill::Indices(9)),
        labelled(sum, &[0, 9], DType::I64, Fill::Indices(9)),
        labelled(mean, &[6, 700], DType::I64, Fill::Labels(700)).input(
            0,
            strided([6, 700], &[1, 6], 0),
            Fill::Normal(3.0),
        ),
        labelled(sum, &[5, 37], DType::I64, Fill::Labels(37)).input(
            0,
            strided([5, 37], &[0, 2], 3),
            Fill::Normal(3.0),
        ),
        labelled(sum, &[3, 9], DType::I64, Fill::Constant(-100.0)),
    ]
}

fn rejects() -> Vec<Reject> {
    let op = CrossEntropy {
        reduction: Reduction::Mean,
        ignore_index: -100,
    };
    let reject = |x: &[usize], labels: Spec, error| Reject::new(op, vec![f32s(x), labels], error);
    vec![
        reject(&[5, 3], Spec::contiguous(DType::I64, [4]), is_shape),
        reject(&[], Spec::contiguous(DType::I64, []), is_shape),
        reject(&[5, 3], f32s([5, 3]), is_dtype),
    ]
}

fn backward_rejects() -> Vec<Reject> {
    let op = CrossEntropyBackward {
        reduction: Reduction::Mean,
        ignore_index: -100,
    };
    vec![Reject::new(
        op,
        vec![f32s([5, 3]), Spec::contiguous(DType::I64, [5]), f32s([5])],
        is_shape,
    )]
}
