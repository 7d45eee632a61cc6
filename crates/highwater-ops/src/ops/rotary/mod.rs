//! Rotary position embedding: `rotary`, whose gradient is the rotation back.

mod cpu;
mod samples;

use crate::kernels::float::sums_in;
use crate::kernels::pointwise::one_pass;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::gradients;
use crate::{Array, Entry};
use highwater_graph::{Backward, Cost, Layout, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

/// Rotates pairs of the last dimension by angles whose cosines and sines are given (Su et al.,
/// "RoFormer", 2021).
///
/// Inputs: `x [.., T, D]` of a float dtype and any layout, and `cos` and `sin` `[.., T, R / 2]`, at least
/// `F32`, whose dimensions before the last broadcast to `x`'s. Output as `x`. The first `R` elements of
/// each row are rotated, those behind them are copied (GPT-NeoX's partial rotary). With half-split pairs
/// element `i` goes with `i + R / 2`, as in Hugging Face's `apply_rotary_pos_emb`; interleaved, `2 i` with
/// `2 i + 1`, as in GPT-J and Meta's Llama. A pair `(a, b)` becomes `(a cos - b sin, b cos + a sin)`,
/// computed in `f32` and rounded once. One pass; in place. The tables get no gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rotary {
    /// Whether neighbours are a pair.
    pub interleaved: bool,
    /// Whether to rotate by the negative angles.
    pub inverse: bool,
}

const NAME: &str = "rotary";

/// How the tables are read in the order of `x`'s rows: none where their rows do not broadcast to them.
fn expanded(table: &Spec, x: &Shape) -> Option<Layout> {
    let (_, rows) = x.split_last()?;
    let half = table.shape().last()?;
    let shape: Shape = rows.iter().chain([half]).copied().collect();
    table.layout.expand(&shape)
}

impl Op for Rotary {
    fn name(&self) -> &'static str {
        NAME
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write(&[self.interleaved.into(), self.inverse.into()]);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(NAME, inputs, 3)?;
        let (x, cos, sin) = (&inputs[0], &inputs[1], &inputs[2]);
        if !x.dtype.is_float() {
            return Err(OpError::DType {
                op: NAME,
                expected: "a float type".to_owned(),
                got: x.dtype,
            });
        }
        for table in [cos, sin] {
            OpError::check_dtype(NAME, table, sums_in(x.dtype))?;
        }
        let bad = |expected: &str, got: &Shape| {
            Err(OpError::shape(NAME, expected.to_owned(), got.to_string()))
        };
        let [.., width] = *x.shape().dims() else {
            return bad("an input [.., T, D]", x.shape());
        };
        if cos.shape() != sin.shape() {
            return bad(
                &format!("a sine for each cosine, {}", cos.shape()),
                sin.shape(),
            );
        }
        let fits = cos.shape().last().is_some_and(|half| 2 * half <= width);
        if !fits || expanded(cos, x.shape()).is_none() {
            let expected = format!(
                "tables [.., T, R / 2] for rows of {}, R at most {width}",
                x.shape()
            );
            return bad(&expected, cos.shape());
        }
        Ok(smallvec![Spec::contiguous(x.dtype, x.shape().clone())])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        one_pass(inputs, outputs, 3.0 * outputs[0].layout.numel() as f64)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        if backward.needs(1) || backward.needs(2) {
            return Err(OpError::NotDifferentiable { op: NAME });
        }
        let back = Self {
            inverse: !self.inverse,
            ..*self
        };
        let (cos, sin) = (backward.input(1), backward.input(2));
        gradients::from(backward, back, &[cos, sin])
    }
}

const ENTRY: Entry = Entry {
    name: NAME,
    rows: rows_of_floats! {
        T: [T, Sums, Sums] -> [T];
        cpu::RotaryKernel::<T>(PhantomData); Precise::new(reference)
    },
    reference,
    samples: samples::samples,
    rejects: samples::rejects,
};

/// The plain reference.
fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &Rotary = op.downcast().expect("rotary");
    let [x, cos, sin] = inputs else {
        return Vec::new();
    };
    let (width, half) = (x.shape[x.shape.rank() - 1], cos.shape[cos.shape.rank() - 1]);
    let table = Spec::contiguous(cos.dtype, cos.shape.clone());
    let layout = expanded(&table, &x.shape).expect("tables that broadcast");
    let at: Vec<usize> = layout.positions().collect();
    let mut y = x.clone();
    for (row, y) in y.data.chunks_mut(width.max(1)).enumerate() {
        for i in 0..half {
            let (first, second) = if op.interleaved {
                (2 * i, 2 * i + 1)
            } else {
                (i, i + half)
            };
            let (a, b, at) = (y[first], y[second], at[row * half + i]);
            let sin = if op.inverse {
                -sin.data[at]
            } else {
                sin.data[at]
            };
            y[first] = a * cos.data[at] - b * sin;
            y[second] = b * cos.data[at] + a * sin;
        }
    }
    vec![y]
}
