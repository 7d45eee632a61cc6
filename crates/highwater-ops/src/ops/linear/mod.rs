//! The affine map, and the gradient of its bias.

mod cpu;
mod reference;

pub(crate) use cpu::{each_matrix, staging_bytes};

use crate::kernels::checks::one_float_dtype;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::matmul::{dense, product_like, transposed};
use crate::table::{f32_strided, f32_view, f32s, is_shape};
use crate::{Entry, Fill, Reject, Sample};
use highwater_graph::{Autocast, Backward, Cost, Op, OpError, Operand, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY, BIAS_BACKWARD];

/// `y[.., o] = sum over i of x[.., i] * w[o, i] + b[o]`: `torch.nn.functional.linear`.
///
/// Inputs `x: [.., in]`, `w: [out, in]` and, with `bias`, `b: [out]`, of one float dtype and any
/// strides: weights that are stored `[in, out]` come as a transposed view. Output `[.., out]`.
/// One product that accumulates in `f32` onto the bias; `2 in out` operations per row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Linear {
    /// Whether there is a third input to add.
    pub bias: bool,
}

/// The gradient of [`Linear`]'s bias: `g: [.., out]` summed over all dimensions but the last.
///
/// Rows are added in `f32` in blocks of 64, and the blocks' sums in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BiasBackward;

const ENTRY: Entry = Entry {
    name: "linear",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::LinearKernel::<T>(PhantomData); Precise::new(reference::linear)
    },
    reference: reference::linear,
    samples,
    rejects,
};

const BIAS_BACKWARD: Entry = Entry {
    name: "bias_backward",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::bias_backward::<T>; Precise::new(reference::bias_backward)
    },
    reference: reference::bias_backward,
    samples: bias_samples,
    rejects: bias_rejects,
};

impl Op for Linear {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_u8(self.bias.into());
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, if self.bias { 3 } else { 2 })?;
        let all: SmallVec<[&Spec; 3]> = inputs.iter().collect();
        let dtype = one_float_dtype(self.name(), &all)?;
        let (x, w) = (inputs[0].shape(), inputs[1].shape());
        let bad = |expected: String, got: &Shape| {
            let got = got.to_string();
            Err(OpError::shape(self.name(), expected, got))
        };
        let [out, width] = *w.dims() else {
            return bad("a weight [out, in]".to_owned(), w);
        };
        let Some((&last, lead)) = x.split_last() else {
            return bad(format!("an input [.., {width}]"), x);
        };
        if last != width {
            return bad(format!("an input [.., {width}]"), x);
        }
        if self.bias && *inputs[2].shape() != Shape::from([out]) {
            return bad(format!("a bias [{out}]"), inputs[2].shape());
        }
        let shape: Shape = lead.iter().copied().chain([out]).collect();
        Ok(smallvec![Spec::contiguous(dtype, shape)])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        let width = inputs[1].shape().last().copied().unwrap_or(0);
        Cost {
            matmul_flops: 2.0 * width as f64 * outputs[0].layout.numel() as f64,
            ..Cost::elementwise(inputs, outputs, f64::from(u8::from(self.bias)))
        }
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0) else {
            return Ok(());
        };
        let (x, w) = (backward.input(0), backward.input(1));
        let (rows, rows_of_grad) = (at_least_a_matrix(&x), at_least_a_matrix(&grad));
        if backward.needs(0) {
            let dx = product_like(backward, &x, &rows_of_grad, &w)?;
            backward.set(0, dx);
        }
        if backward.needs(1) {
            let dw = product_like(backward, &w, &transposed(&rows_of_grad), &rows)?;
            backward.set(1, dw);
        }
        if self.bias && backward.needs(2) {
            let db = backward.emit_one(BiasBackward, &[grad])?;
            backward.set(2, db);
        }
        Ok(())
    }
}

impl Op for BiasBackward {
    fn name(&self) -> &'static str {
        BIAS_BACKWARD.name
    }

    fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 1)?;
        let dtype = one_float_dtype(self.name(), &[&inputs[0]])?;
        let Some(&out) = inputs[0].shape().last() else {
            return Err(OpError::shape(
                self.name(),
                "a tensor [.., out]",
                "a scalar",
            ));
        };
        Ok(smallvec![Spec::contiguous(dtype, [out])])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost {
            vector_flops: inputs[0].layout.numel() as f64,
            ..Cost::elementwise(inputs, outputs, 0.0)
        }
    }

    /// Repeats the gradient by a view.
    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0).filter(|_| backward.needs(0)) else {
            return Ok(());
        };
        let shape = backward.input(0).shape().clone();
        let repeated = grad.spec.layout.expand(&shape);
        let refused = || OpError::shape(self.name(), shape.to_string(), grad.spec.to_string());
        backward.set(0, grad.with_layout(repeated.ok_or_else(refused)?));
        Ok(())
    }
}

/// A vector as a matrix of one row; other tensors as they are.
fn at_least_a_matrix(operand: &Operand) -> Operand {
    match operand.shape().dims() {
        &[width] => {
            let layout = operand.spec.layout.reshape(&[1, width].into());
            layout.map_or_else(|| operand.clone(), |layout| operand.with_layout(layout))
        }
        _ => operand.clone(),
    }
}

fn samples() -> Vec<Sample> {
    let plain = |bias, shapes: &[&[usize]]| Sample::new(Linear { bias }, shapes).tolerance(1e-4);
    let normal = Fill::Normal(1.0);
    let columns = f32_view(dense(&[65, 37].into(), true));
    let scattered = f32_strided([2, 9, 7], &[63, 1, 9], 0);
    let repeated = f32_strided([5], &[0], 2);
    vec![
        plain(false, &[&[5, 7], &[3, 7]]),
        plain(true, &[&[5, 7], &[3, 7], &[3]]),
        plain(true, &[&[33, 37], &[65, 37], &[65]]).input(1, columns.clone(), normal),
        plain(false, &[&[130, 37], &[65, 37]]).input(1, columns, normal),
        plain(true, &[&[2, 9, 600], &[37, 600], &[37]]),
        plain(true, &[&[7], &[3, 7], &[3]]),
        plain(true, &[&[1, 64], &[1, 64], &[1]]),
        plain(true, &[&[0, 5], &[3, 5], &[3]]),
        plain(true, &[&[4, 0], &[3, 0], &[3]]),
        plain(true, &[&[2, 9, 7], &[5, 7], &[5]])
            .input(0, scattered, normal)
            .input(2, repeated, normal),
    ]
}

fn rejects() -> Vec<Reject> {
    let reject = |bias, shapes: &[&[usize]], error| {
        Reject::new(
            Linear { bias },
            shapes.iter().map(|&s| f32s(s)).collect(),
            error,
        )
    };
    let shape = |error: &OpError| matches!(error, OpError::Shape { op: "linear", .. });
    let arity = |error: &OpError| matches!(error, OpError::Arity { op: "linear", .. });
    vec![
        reject(false, &[&[5, 6], &[3, 7]], shape),
        reject(false, &[&[], &[3, 7]], shape),
        reject(false, &[&[5, 7], &[7]], shape),
        reject(true, &[&[5, 7], &[3, 7], &[7]], shape),
        reject(true, &[&[5, 7], &[3, 7]], arity),
        reject(false, &[&[5, 7], &[3, 7], &[3]], arity),
    ]
}

fn bias_samples() -> Vec<Sample> {
    let sample = |shape: &[usize]| Sample::new(BiasBackward, &[shape]).tolerance(1e-4);
    let columns = f32_view(dense(&[130, 300].into(), true));
    let scattered = f32_strided([2, 9, 7], &[63, 1, 9], 0);
    vec![
        sample(&[3]),
        sample(&[37, 5]),
        sample(&[2, 65, 130]),
        sample(&[0, 5]),
        sample(&[4, 0]),
        sample(&[130, 300]).input(0, columns, Fill::Normal(1.0)),
        sample(&[2, 9, 7]).input(0, scattered, Fill::Normal(1.0)),
    ]
}

fn bias_rejects() -> Vec<Reject> {
    vec![Reject::new(BiasBackward, vec![f32s([])], is_shape)]
}
