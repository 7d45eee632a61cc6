//! The negative of what each row says of its label: `nll_loss` and `nll_loss_backward`.

mod cpu;
mod reference;

use crate::kernels::checks::{check_indices, one_float_dtype};
use crate::kernels::indices::Indices;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::cross_entropy::check_labels;
use crate::ops::gradients;
use crate::table::{f32_strided, f32s, is_dtype, is_shape};
use crate::{Entry, Fill, Reject, Sample, op_as};
use highwater_graph::DType::{I64, U32};
use highwater_graph::{Backward, Cost, DType, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[FORWARD, BACKWARD];

/// `-x[i, label[i]]` of each row, and 0 where the label is ignored: `torch.nn.functional.nll_loss` without a
/// reduction.
///
/// Inputs `x: [.., C]` of a float dtype, `labels: [..]` (I64 or U32). Output: `[..]`. Any other label outside
/// `0..C` stops the step. Backward has a gradient of its own: this operation again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NllLoss {
    /// The label of rows that count nothing; -100 in PyTorch.
    pub ignore_index: i64,
}

/// The gradient of [`NllLoss`] in `x`: `-g[i]` at `[i, label[i]]`, else 0. Inputs `g: [..]`, `labels: [..]`.
#[derive(Debug, Clone, Copy)]
struct NllLossBackward {
    ignore_index: i64,
    classes: usize,
}

const FORWARD: Entry = Entry {
    name: "nll_loss",
    rows: rows_of_floats! {
        T: [T, I64] -> [T], [T, U32] -> [T];
        cpu::forward::<T>;
        Precise::checked(reference::forward, |op, inputs| {
            let op: &NllLoss = op_as(op)?;
            let classes = inputs[0].dims().last().copied().unwrap_or(1);
            Indices::of(&inputs[1])?.check(classes, Some(op.ignore_index))?;
            Ok(())
        })
    },
    reference: reference::forward,
    samples: forward_samples,
    rejects: forward_rejects,
};

const BACKWARD: Entry = Entry {
    name: "nll_loss_backward",
    rows: rows_of_floats! {
        T: [T, I64] -> [T], [T, U32] -> [T];
        cpu::backward::<T>;
        Precise::checked(reference::backward, |op, inputs| {
            let op: &NllLossBackward = op_as(op)?;
            Indices::of(&inputs[1])?.check(op.classes, Some(op.ignore_index))?;
            Ok(())
        })
    },
    reference: reference::backward,
    samples: backward_samples,
    rejects: backward_rejects,
};

impl Op for NllLoss {
    fn name(&self) -> &'static str {
        FORWARD.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_i64(self.ignore_index);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 2)?;
        let dtype = one_float_dtype(self.name(), &[&inputs[0]])?;
        check_labels(self.name(), &inputs[0], &inputs[1])?;
        Ok(smallvec![Spec::contiguous(
            dtype,
            inputs[1].shape().clone()
        )])
    }

    /// Of the rows, one element each is read.
    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost {
            read_bytes: inputs[1].bytes() + outputs[0].bytes(),
            ..Cost::elementwise(&[], outputs, 1.0)
        }
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let (x, labels) = (backward.input(0), backward.input(1));
        let op = NllLossBackward {
            ignore_index: self.ignore_index,
            classes: x.shape().last().copied().unwrap_or(1),
        };
        gradients::from(backward, op, &[labels])
    }
}

impl Op for NllLossBackward {
    fn name(&self) -> &'static str {
        BACKWARD.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_i64(self.ignore_index);
        hasher.write_usize(self.classes);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 2)?;
        let dtype = one_float_dtype(self.name(), &[&inputs[0]])?;
        check_indices(self.name(), &inputs[1])?;
        let (grad, labels) = (inputs[0].shape(), inputs[1].shape());
        if grad != labels {
            let got = format!("{grad} with labels {labels}");
            return Err(OpError::shape(
                self.name(),
                "a gradient for each label",
                got,
            ));
        }
        let shape: Shape = grad.iter().copied().chain([self.classes]).collect();
        Ok(smallvec![Spec::contiguous(dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost::elementwise(inputs, outputs, 1.0)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let (labels, ignore_index) = (backward.input(1), self.ignore_index);
        gradients::from(backward, NllLoss { ignore_index }, &[labels])
    }
}

const IGNORED: i64 = -100;
const OP: NllLoss = NllLoss {
    ignore_index: IGNORED,
};

fn forward_samples() -> Vec<Sample> {
    let sample = |shape: &[usize], dtype, fill| {
        let labels = Spec::contiguous(dtype, &shape[..shape.len() - 1]);
        let sample = Sample::new(OP, &[shape, &[]]).tolerance(0.0);
        sample.input(1, labels, fill)
    };
    let column = f32_strided([6, 70], &[1, 6], 3);
    vec![
        sample(&[5, 37], DType::I64, Fill::Labels(37)),
        sample(&[65, 130], DType::U32, Fill::Indices(130)),
        sample(&[2, 9, 48], DType::I64, Fill::Labels(48)),
        sample(&[9], DType::I64, Fill::Indices(9)),
        sample(&[0, 9], DType::I64, Fill::Indices(9)),
        sample(&[5000, 7], DType::I64, Fill::Labels(7)),
        sample(&[6, 70], DType::I64, Fill::Labels(70)).input(0, column, Fill::Normal(1.0)),
    ]
}

fn backward_samples() -> Vec<Sample> {
    let sample = |shape: &[usize], classes, dtype, fill| {
        let op = NllLossBackward {
            ignore_index: IGNORED,
            classes,
        };
        let sample = Sample::new(op, &[shape, &[]]).tolerance(0.0);
        sample.input(1, Spec::contiguous(dtype, shape), fill)
    };
    vec![
        sample(&[5], 37, DType::I64, Fill::Labels(37)),
        sample(&[65], 130, DType::U32, Fill::Indices(130)),
        sample(&[2, 9], 48, DType::I64, Fill::Labels(48)),
        sample(&[], 9, DType::I64, Fill::Indices(9)),
        sample(&[0], 9, DType::I64, Fill::Indices(9)),
        sample(&[5000], 7, DType::I64, Fill::Labels(7)),
    ]
}

fn forward_rejects() -> Vec<Reject> {
    let reject = |x: &[usize], labels: Spec, error| Reject::new(OP, vec![f32s(x), labels], error);
    vec![
        reject(&[5, 3], Spec::contiguous(DType::I64, [4]), is_shape),
        reject(&[], Spec::contiguous(DType::I64, []), is_shape),
        reject(&[5, 3], f32s([5]), is_dtype),
    ]
}

fn backward_rejects() -> Vec<Reject> {
    let op = NllLossBackward {
        ignore_index: IGNORED,
        classes: 3,
    };
    vec![Reject::new(
        op,
        vec![f32s([5]), Spec::contiguous(DType::I64, [4])],
        is_shape,
    )]
}
