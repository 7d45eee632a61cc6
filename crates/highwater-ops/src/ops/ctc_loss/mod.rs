//! Connectionist temporal classification (Graves et al., 2006): `ctc_loss` and `ctc_loss_backward`.

mod cpu;
mod lattice;
mod reference;
mod samples;

use crate::Entry;
use crate::kernels::checks::{check_indices, check_shape, one_float_dtype};
use crate::kernels::pointwise::held_bytes;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::gradients;
use highwater_graph::DType::{I64, U32};
use highwater_graph::{Autocast, Backward, Cost, Op, OpError, Spec};
use lattice::Sizes;
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[FORWARD, BACKWARD];

/// The negative logarithm of how probable each target is, over all ways to spread its labels over frames, with blanks
/// between and repeats: `torch.nn.functional.ctc_loss` without a reduction.
///
/// Inputs: `log_probs: [T, N, C]` of a float dtype and any layout, logarithms of probabilities; `targets`, `[N, S]` or
/// one behind the other `[sum]`; `input_lengths: [N]` and `target_lengths: [N]`. The last three are I64 or U32, and
/// both lengths of one dtype. Output: `[N]`. What is behind a length is not read. Labels, lengths that are out of range
/// and, where targets are one behind the other, lengths that do not sum up to them stop the step.
///
/// Sums are of `f64`. The gradient is that of the function, the negative of how probable each label is at each frame.
/// PyTorch's has the probabilities added to it, which changes nothing where `log_probs` comes of `log_softmax`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CtcLoss {
    /// The class that stands for no label.
    pub blank: usize,
    /// Whether the loss of a target that does not fit into its frames, which is infinite, and its gradient are 0.
    pub zero_infinity: bool,
}

/// The gradient of [`CtcLoss`] in `log_probs`: inputs `g: [N]`, and those of the loss. Where a loss is infinite it is
/// NaN, as in PyTorch. Has no gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CtcLossBackward(CtcLoss);

const FORWARD: Entry = Entry {
    name: "ctc_loss",
    rows: rows_of_floats! {
        T: [T, I64, I64, I64] -> [T], [T, U32, I64, I64] -> [T], [T, I64, U32, U32] -> [T], [T, U32, U32, U32] -> [T];
        cpu::ForwardKernel::<T>(PhantomData);
        Precise::checked(reference::forward, cpu::check)
    },
    reference: reference::forward,
    samples: samples::forward,
    rejects: samples::forward_rejects,
};

const BACKWARD: Entry = Entry {
    name: "ctc_loss_backward",
    rows: rows_of_floats! {
        T: [T, T, I64, I64, I64] -> [T], [T, T, U32, I64, I64] -> [T], [T, T, I64, U32, U32] -> [T],
            [T, T, U32, U32, U32] -> [T];
        cpu::BackwardKernel::<T>(PhantomData);
        Precise::checked(reference::backward, |op, inputs| cpu::check(op, &inputs[1..]))
    },
    reference: reference::backward,
    samples: samples::backward,
    rejects: samples::backward_rejects,
};

impl CtcLoss {
    /// Checks what the loss is of.
    fn check(self, op: &'static str, inputs: &[Spec]) -> Result<Sizes, OpError> {
        let &[frames, batch, classes] = inputs[0].shape().dims() else {
            let got = inputs[0].shape().to_string();
            return Err(OpError::shape(op, "log_probs [T, N, C]", got));
        };
        for indices in &inputs[1..] {
            check_indices(op, indices)?;
        }
        OpError::check_dtype(op, &inputs[3], inputs[2].dtype)?;
        check_shape(op, &inputs[2], &[batch])?;
        check_shape(op, &inputs[3], &[batch])?;
        let (width, packed) = match *inputs[1].shape().dims() {
            [rows, width] if rows == batch => (width, false),
            [total] => (total, true),
            _ => {
                let expected = format!("targets [{batch}, S] or [sum of lengths]");
                return Err(OpError::shape(op, expected, inputs[1].shape().to_string()));
            }
        };
        if self.blank >= classes {
            return Err(OpError::Attribute {
                op,
                attribute: "blank",
                expected: format!("below the number of classes, {classes}"),
                got: self.blank.to_string(),
            });
        }
        Ok(Sizes {
            frames,
            batch,
            classes,
            width,
            packed,
        })
    }

    fn hash_to(self, hasher: &mut dyn Hasher) {
        hasher.write_usize(self.blank);
        hasher.write_u8(self.zero_infinity.into());
    }
}

/// An exponential and a logarithm for each state at each frame, `passes` times.
fn cost(inputs: &[Spec], outputs: &[Spec], passes: f64) -> Cost {
    let [log_probs, targets, ..] = inputs else {
        return Cost::default();
    };
    let frames = log_probs.shape().first().copied().unwrap_or(0);
    let states = 2 * targets.layout.numel() + outputs[0].shape().first().copied().unwrap_or(0);
    Cost {
        vector_flops: passes * 50.0 * (frames * states) as f64,
        read_bytes: inputs.iter().map(held_bytes).sum(),
        written_bytes: outputs.iter().map(Spec::bytes).sum(),
        ..Cost::default()
    }
}

impl Op for CtcLoss {
    fn name(&self) -> &'static str {
        FORWARD.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.hash_to(hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 4)?;
        let dtype = one_float_dtype(self.name(), &[&inputs[0]])?;
        let sizes = self.check(self.name(), inputs)?;
        Ok(smallvec![Spec::contiguous(dtype, [sizes.batch])])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, 1.0)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Full
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let inputs = [0, 1, 2, 3].map(|i| backward.input(i));
        gradients::from(backward, CtcLossBackward(*self), &inputs)
    }
}

impl Op for CtcLossBackward {
    fn name(&self) -> &'static str {
        BACKWARD.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        self.0.hash_to(hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 5)?;
        let dtype = one_float_dtype(self.name(), &[&inputs[0], &inputs[1]])?;
        let sizes = self.0.check(self.name(), &inputs[1..])?;
        check_shape(self.name(), &inputs[0], &[sizes.batch])?;
        let shape = inputs[1].shape().clone();
        Ok(smallvec![Spec::contiguous(dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(&inputs[1..], outputs, 3.0)
    }
}
