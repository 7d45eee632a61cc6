//! The last layer of a language model and its loss, without the logits.

mod cpu;
mod reference;
#[cfg(test)]
mod tests;

use crate::kernels::checks::one_float_dtype;
use crate::kernels::float::sums_in;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::cross_entropy::check_labels;
use crate::ops::matmul::{dense, is_column_major};
use crate::table::{f32_strided, f32s, is_attribute, is_shape};
use crate::{Entry, Fill, Reject, Sample, Scale};
use highwater_graph::DType::{I64, U32};
use highwater_graph::{Autocast, Backward, Cost, DType, Layout, Op, OpError, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// The mean of [`CrossEntropy`](crate::CrossEntropy) over the logits `x · wᵀ`, of which only
/// `chunk_rows` rows exist at a time.
///
/// Inputs `x: [.., C]` and `w: [V, C]` of one float dtype and any strides, `labels: [..]` (I64 or
/// U32). Outputs: the loss, a scalar, at least `F32`; with `grad_x` its gradient in `x`, of `x`'s shape; with
/// `grad_w` its gradient in `w`, in `w`'s shape and storage order. The gradients are made in the
/// same pass, since they only want scaling by the gradient of the loss later; so logits are neither
/// kept nor computed twice (as in Liger Kernel, arXiv:2410.10989). Rows whose label is
/// `ignore_index` count nothing; if none counts the loss is NaN and the gradients are zero.
///
/// `2 N V C` operations, three times that with both gradients. Scratch: `chunk_rows` rows of
/// logits, in `f32`. The gradient in `w` adds up chunks in ascending order, so its bits depend on
/// `chunk_rows`; in `BF16` and `F16` it is rounded after each chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearCrossEntropy {
    /// Rows of logits that exist at a time; see [`default_chunk_rows`].
    pub chunk_rows: usize,
    /// Whether to make the gradient in `x`: whether it requires one and gradients are enabled.
    pub grad_x: bool,
    /// Whether to make the gradient in `w`.
    pub grad_w: bool,
    /// The label of rows that count nothing; -100 in PyTorch.
    pub ignore_index: i64,
}

/// Most rows of logits at a time.
const CHUNK_ROWS: usize = 256;
/// Most logits at a time, where that leaves at least 16 rows.
const CHUNK_LOGITS: usize = 1 << 25;

/// A good [`LinearCrossEntropy::chunk_rows`] for `n` rows and `v` classes: even chunks of at most
/// 256 rows and 128 MiB, multiples of 16.
pub fn default_chunk_rows(n: usize, v: usize) -> usize {
    let most = (CHUNK_LOGITS / v.max(1)).clamp(16, CHUNK_ROWS) / 16 * 16;
    let chunks = n.div_ceil(most).max(1);
    n.div_ceil(chunks).next_multiple_of(16).max(16)
}

const ENTRY: Entry = Entry {
    name: "linear_cross_entropy",
    rows: rows_of_floats! {
        T: [T, T, I64] -> [Sums, T], [T, T, U32] -> [Sums, T];
        cpu::LossKernel::<T>(PhantomData);
        Precise::checked(reference::reference, cpu::check_labels)
    },
    reference: reference::reference,
    samples,
    rejects,
};

/// `x: [.., C]` as `[N, C]`, if strides can say so.
fn as_rows(x: &Layout) -> Option<Layout> {
    let (&width, lead) = x.shape().split_last()?;
    x.reshape(&[lead.iter().product(), width].into())
}

impl LinearCrossEntropy {
    /// Elements of scratch: losses of rows (as pairs of `f32`), logits, and rows of `x` where
    /// strides cannot say them.
    fn scratch(&self, x: &Layout, w: &Layout) -> [usize; 3] {
        let width = x.shape().last().copied().unwrap_or(1);
        let rows = x.shape().iter().rev().skip(1).product::<usize>();
        let chunk = self.chunk_rows.min(rows);
        let copied = if as_rows(x).is_some() {
            0
        } else {
            chunk * width
        };
        [2 * rows, chunk * w.shape()[0], copied]
    }

    /// How often a chunk's product for an output passes over something of the weight's size: its
    /// gradient is read and written, everything else reads the weight.
    fn passes(&self, output: usize) -> u64 {
        let of_w = output == 1 + usize::from(self.grad_x);
        1 + u64::from(self.grad_w && of_w)
    }

    /// One product of the rows and the classes, whose chunks but the first pass again over what
    /// they share.
    fn product(&self, inputs: &[Spec], passes: u64) -> Cost {
        let (x, w) = (&inputs[0], &inputs[1]);
        let rows = inputs[2].layout.numel();
        let chunks = rows.div_ceil(self.chunk_rows.max(1)) as u64;
        Cost {
            matmul_flops: 2.0 * x.layout.numel() as f64 * w.shape()[0] as f64,
            read_bytes: chunks.saturating_sub(1) * w.bytes() * passes,
            ..Cost::default()
        }
    }
}

impl Op for LinearCrossEntropy {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_usize(self.chunk_rows);
        hasher.write_u8(self.grad_x.into());
        hasher.write_u8(self.grad_w.into());
        hasher.write_i64(self.ignore_index);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 3)?;
        let (x, w) = (&inputs[0], &inputs[1]);
        let dtype = one_float_dtype(self.name(), &[x, w])?;
        check_labels(self.name(), x, &inputs[2])?;
        if w.shape().rank() != 2 || w.shape().last() != x.shape().last() {
            let got = format!("{} and {}", x.shape(), w.shape());
            let expected = "an input [.., C] and a weight [V, C]";
            return Err(OpError::shape(self.name(), expected, got));
        }
        if self.chunk_rows < 16 {
            return Err(OpError::Attribute {
                op: self.name(),
                attribute: "chunk_rows",
                expected: "at least 16".to_owned(),
                got: self.chunk_rows.to_string(),
            });
        }
        let mut outputs = smallvec![Spec::contiguous(sums_in(dtype), [])];
        if self.grad_x {
            outputs.push(Spec::contiguous(dtype, x.shape().clone()));
        }
        if self.grad_w {
            let layout = dense(w.shape(), is_column_major(&w.layout));
            outputs.push(Spec { dtype, layout });
        }
        Ok(outputs)
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        let (classes, rows) = (inputs[1].shape()[0], inputs[2].layout.numel());
        let once = Cost::elementwise(inputs, outputs, 0.0);
        let mut cost = Cost {
            vector_flops: 16.0 * rows as f64 * classes as f64,
            ..self.product(inputs, 1)
        };
        cost.read_bytes += once.read_bytes;
        cost.written_bytes += once.written_bytes;
        for output in 1..outputs.len() {
            let part = self.product(inputs, self.passes(output));
            cost.matmul_flops += part.matmul_flops;
            cost.read_bytes += part.read_bytes;
        }
        cost
    }

    /// Its logits are `F32` all the same, and so is its loss.
    fn autocast(&self) -> Autocast {
        Autocast::Low
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let outputs = 1 + usize::from(self.grad_x) + usize::from(self.grad_w);
        if (1..outputs).any(|i| backward.grad(i).is_some()) {
            return Err(OpError::NotDifferentiable { op: self.name() });
        }
        let Some(grad) = backward.grad(0) else {
            return Ok(());
        };
        let mut output = 1;
        for (input, made) in [self.grad_x, self.grad_w].into_iter().enumerate() {
            if !made {
                if backward.needs(input) {
                    return Err(OpError::NotDifferentiable { op: self.name() });
                }
                continue;
            }
            if backward.needs(input) {
                let mut gradient = backward.output(output);
                if !backward.is_one(&grad) {
                    gradient = backward.emit_one(Scale, &[gradient, grad.clone()])?;
                }
                backward.set(input, gradient);
            }
            output += 1;
        }
        Ok(())
    }
}

fn samples() -> Vec<Sample> {
    let sample = |chunk_rows, grads: [bool; 2], x: &[usize], classes: usize| {
        let op = LinearCrossEntropy {
            chunk_rows,
            grad_x: grads[0],
            grad_w: grads[1],
            ignore_index: -100,
        };
        let labels = Spec::contiguous(DType::I64, &x[..x.len() - 1]);
        Sample::new(op, &[x, &[classes, x[x.len() - 1]], &[]]).input(
            2,
            labels,
            Fill::Labels(classes),
        )
    };
    let strided = |shape: &[usize], strides: &[usize]| f32_strided(shape, strides, 0);
    let normal = Fill::Normal(1.0);
    vec![
        sample(16, [true, true], &[5, 7], 11),
        sample(16, [false, false], &[33, 37], 101),
        sample(16, [true, true], &[65, 37], 130),
        sample(32, [true, false], &[2, 40, 16], 257),
        sample(16, [false, true], &[37, 16], 65),
        sample(256, [true, true], &[130, 65], 700),
        sample(16, [true, true], &[40, 16], 65).input(1, strided(&[65, 16], &[1, 65]), normal),
        sample(16, [true, true], &[4, 9, 7], 65).input(0, strided(&[4, 9, 7], &[63, 1, 9]), normal),
        sample(16, [false, false], &[0, 7], 5).input(
            2,
            Spec::contiguous(DType::U32, [0]),
            Fill::Indices(5),
        ),
    ]
}

fn rejects() -> Vec<Reject> {
    let reject = |chunk_rows, x: &[usize], w: &[usize], labels: &[usize], error| {
        Reject::new(
            LinearCrossEntropy {
                chunk_rows,
                grad_x: true,
                grad_w: true,
                ignore_index: -100,
            },
            vec![f32s(x), f32s(w), Spec::contiguous(DType::I64, labels)],
            error,
        )
    };
    vec![
        reject(16, &[5, 7], &[9, 6], &[5], is_shape),
        reject(16, &[5, 7], &[7], &[5], is_shape),
        reject(16, &[5, 7], &[9, 7], &[4], is_shape),
        reject(4, &[5, 7], &[9, 7], &[5], is_attribute),
    ]
}
