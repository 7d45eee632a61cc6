//! Products by weights in few bits, which are not trained.

mod cpu;
mod format;
mod reference;

pub use format::WeightFormat;

use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::gradients;
use crate::table::{f32_strided, f32_view, f32s, is_arity, is_dtype, is_shape};
use crate::{Entry, Fill, Reject, Sample};
use highwater_graph::DType::{F32, U8};
use highwater_graph::{Autocast, Backward, Cost, DType, Layout, Op, OpError, Shape, Spec};
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY, ENTRY_BACKWARD];

const NAME: &str = "quantized_linear";
const BACKWARD: &str = "quantized_linear_backward";

/// `y = x wᵀ`, as [`Linear`](crate::Linear), by a weight `[out, in]` that is held in few bits and not trained:
/// `bitsandbytes`' `Linear4bit` and `Linear8bitLt` in their plain form.
///
/// Inputs: `x` `[.., in]` of a float dtype, in any layout; the codes, `U8` `[out, row_bytes]`
/// ([`WeightFormat::row_bytes`]), and the scales, `F32` `[out, scales]` ([`WeightFormat::scales`]), both
/// dense. Output `[.., out]`. A weight is decoded to the dtype of `x` where the product packs it, some
/// hundred numbers of some rows at a time: all of it is never there. Bits are those of
/// [`Linear`](crate::Linear) by the decoded weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantizedLinear {
    /// How the weight is held.
    pub format: WeightFormat,
    /// Numbers in a row of it: the `in` of its shape.
    pub width: usize,
}

/// The gradient of [`QuantizedLinear`]'s `x`: `dx = g w`.
///
/// Inputs: `g` `[.., out]`, codes and scales. Output `[.., in]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantizedLinearBackward {
    /// As in the forward operation.
    pub format: WeightFormat,
    /// As in the forward operation.
    pub width: usize,
}

const ENTRY: Entry = Entry {
    name: NAME,
    rows: rows_of_floats! {
        T: [T, U8, F32] -> [T]; cpu::Forward::<T>(PhantomData); Precise::new(reference::forward)
    },
    reference: reference::forward,
    samples,
    rejects,
};

const ENTRY_BACKWARD: Entry = Entry {
    name: BACKWARD,
    rows: rows_of_floats! {
        T: [T, U8, F32] -> [T]; cpu::Backward::<T>(PhantomData); Precise::new(reference::backward)
    },
    reference: reference::backward,
    samples: backward_samples,
    rejects: backward_rejects,
};

/// Checks codes and scales; answers how many rows the weight has.
fn check(
    op: &'static str,
    inputs: &[Spec],
    format: WeightFormat,
    width: usize,
) -> Result<usize, OpError> {
    OpError::check_arity(op, inputs, 3)?;
    let (x, codes, scales) = (&inputs[0], &inputs[1], &inputs[2]);
    if width == 0 {
        return Err(OpError::Attribute {
            op,
            attribute: "width",
            expected: "1 or more".to_owned(),
            got: width.to_string(),
        });
    }
    if !x.dtype.is_float() {
        return Err(OpError::DType {
            op,
            expected: "a float".to_owned(),
            got: x.dtype,
        });
    }
    OpError::check_dtype(op, codes, DType::U8)?;
    OpError::check_dtype(op, scales, DType::F32)?;
    let bytes = format.row_bytes(width);
    let outs = match *codes.shape().dims() {
        [outs, row] if row == bytes && outs > 0 => outs,
        _ => {
            let expected = format!("codes of [out, {bytes}] for rows of {width} in {format:?}");
            return Err(OpError::shape(op, expected, codes.shape().to_string()));
        }
    };
    let per_row = WeightFormat::scales(width);
    if *scales.shape() != Shape::from([outs, per_row]) {
        let expected = format!("scales of [{outs}, {per_row}]");
        return Err(OpError::shape(op, expected, scales.shape().to_string()));
    }
    for spec in [codes, scales] {
        if !spec.layout.is_contiguous() {
            return Err(OpError::shape(
                op,
                "dense codes and scales",
                spec.to_string(),
            ));
        }
    }
    Ok(outs)
}

/// The input with another last extent.
fn with_last(op: &'static str, x: &Spec, from: usize, to: usize) -> Result<Spec, OpError> {
    match x.shape().split_last() {
        Some((&last, lead)) if last == from => {
            let shape: Shape = lead.iter().copied().chain([to]).collect();
            Ok(Spec::contiguous(x.dtype, shape))
        }
        _ => {
            let expected = format!("an input [.., {from}]");
            Err(OpError::shape(op, expected, x.shape().to_string()))
        }
    }
}

fn cost(inputs: &[Spec], outputs: &[Spec], width: usize) -> Cost {
    let outs = inputs[1].shape()[0];
    let rows = outputs[0].layout.numel() / outputs[0].shape().last().copied().unwrap_or(1).max(1);
    Cost {
        matmul_flops: 2.0 * (rows * outs * width) as f64,
        ..Cost::elementwise(inputs, outputs, 0.0)
    }
}

impl Op for QuantizedLinear {
    fn name(&self) -> &'static str {
        NAME
    }

    fn hash_attributes(&self, mut hasher: &mut dyn Hasher) {
        std::hash::Hash::hash(&(self.format, self.width), &mut hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let outs = check(NAME, inputs, self.format, self.width)?;
        Ok(smallvec![with_last(NAME, &inputs[0], self.width, outs)?])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, self.width)
    }

    fn autocast(&self) -> Autocast {
        Autocast::LowFirst
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        if backward.needs(2) {
            return Err(OpError::NotDifferentiable { op: NAME });
        }
        let Self { format, width } = *self;
        let (codes, scales) = (backward.input(1), backward.input(2));
        let op = QuantizedLinearBackward { format, width };
        gradients::from(backward, op, &[codes, scales])
    }
}

impl Op for QuantizedLinearBackward {
    fn name(&self) -> &'static str {
        BACKWARD
    }

    fn hash_attributes(&self, mut hasher: &mut dyn Hasher) {
        std::hash::Hash::hash(&(self.format, self.width), &mut hasher);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let outs = check(BACKWARD, inputs, self.format, self.width)?;
        Ok(smallvec![with_last(
            BACKWARD, &inputs[0], outs, self.width
        )?])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, self.width)
    }
}

/// Leading extents of `x`, rows of the weight, numbers in each.
type Case = (&'static [usize], usize, usize);

const CASES: [Case; 7] = [
    (&[5], 3, 7),
    (&[], 9, 64),
    (&[33], 65, 151),
    (&[2, 9], 37, 600),
    (&[70], 300, 129),
    (&[0], 3, 5),
    (&[1], 1, 1),
];

const FORMATS: [WeightFormat; 2] = [WeightFormat::Int8, WeightFormat::Nf4];

/// Rows of so many numbers by a weight.
fn sample(op: impl Op, format: WeightFormat, rows: &[usize], (_, outs, width): Case) -> Sample {
    let rows = Layout::contiguous(rows);
    let x = f32_view(rows);
    let codes = Spec::contiguous(DType::U8, [outs, format.row_bytes(width)]);
    let scales = Spec::contiguous(DType::F32, [outs, WeightFormat::scales(width)]);
    Sample {
        op: Arc::new(op),
        inputs: vec![
            (x, Fill::Normal(1.0)),
            (codes, Fill::Indices(256)),
            (scales, Fill::Uniform(0.1, 1.0)),
        ],
        tolerance: 1e-4,
    }
}

fn lead(case: Case, last: usize) -> Vec<usize> {
    case.0.iter().copied().chain([last]).collect()
}

fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    for format in FORMATS {
        for case in CASES {
            let width = case.2;
            let op = QuantizedLinear { format, width };
            samples.push(sample(op, format, &lead(case, width), case));
        }
    }
    let op = QuantizedLinear {
        format: WeightFormat::Nf4,
        width: 70,
    };
    let scattered = f32_strided([2, 9, 70], &[700, 1, 10], 3);
    let sample = sample(op, op.format, &[2, 9, 70], (&[2, 9], 40, 70));
    samples.push(sample.input(0, scattered, Fill::Normal(1.0)));
    samples
}

fn backward_samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    for format in FORMATS {
        for case in CASES {
            let width = case.2;
            let op = QuantizedLinearBackward { format, width };
            samples.push(sample(op, format, &lead(case, case.1), case));
        }
    }
    samples
}

fn refused(
    op: impl Op,
    change: impl FnOnce(&mut Vec<Spec>),
    error: fn(&OpError) -> bool,
) -> Reject {
    let of = |dtype, shape: [usize; 2]| Spec::contiguous(dtype, shape);
    let mut inputs = vec![
        of(DType::F32, [5, 70]),
        of(DType::U8, [70, 35]),
        of(DType::F32, [70, 2]),
    ];
    change(&mut inputs);
    Reject::new(op, inputs, error)
}

fn rejects_of<O: Op + Copy>(op: O, empty: O) -> Vec<Reject> {
    let bytes = |shape: &[usize]| Spec::contiguous(DType::U8, shape);
    let transposed = Layout::strided([70, 35], &[1, 70], 0);
    vec![
        refused(op, |x| x[0] = f32s([5, 71]), is_shape),
        refused(op, |x| x[0] = f32s([]), is_shape),
        refused(op, |x| x[0] = bytes(&[5, 70]), is_dtype),
        refused(op, |x| x[1] = bytes(&[70, 70]), is_shape),
        refused(op, |x| x[1] = bytes(&[0, 35]), is_shape),
        refused(op, |x| x[1] = f32s([70, 35]), is_dtype),
        refused(op, |x| x[1].layout = transposed, is_shape),
        refused(op, |x| x[2] = f32s([70, 1]), is_shape),
        refused(op, |x| x[2].dtype = DType::BF16, is_dtype),
        refused(op, |x| drop(x.pop()), is_arity),
        refused(
            empty,
            |_| (),
            |error| {
                matches!(
                    error,
                    OpError::Attribute {
                        attribute: "width",
                        ..
                    }
                )
            },
        ),
    ]
}

fn rejects() -> Vec<Reject> {
    let of = |width| QuantizedLinear {
        format: WeightFormat::Nf4,
        width,
    };
    rejects_of(of(70), of(0))
}

fn backward_rejects() -> Vec<Reject> {
    let of = |width| QuantizedLinearBackward {
        format: WeightFormat::Nf4,
        width,
    };
    rejects_of(of(70), of(0))
}
