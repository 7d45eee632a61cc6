//! Applications that the laws try.

use super::{Packed, ScaledDotProductAttention, ScaledDotProductAttentionBackward};
use crate::table::{f32_strided, f32_view, f32s};
use crate::{Fill, Reject, Sample};
use highwater_graph::{DType, OpError, Shape, Spec};
use std::sync::Arc;

/// Batch, heads, queries, keys, width, causal.
type Case = (usize, usize, usize, usize, usize, bool);

const CASES: [Case; 18] = [
    (1, 1, 1, 1, 1, true),
    (2, 2, 3, 3, 4, true),
    (1, 2, 3, 5, 4, false),
    (2, 3, 5, 5, 16, true),
    (1, 2, 37, 37, 37, true),
    (1, 2, 65, 65, 64, true),
    (1, 1, 130, 130, 128, true),
    (2, 1, 64, 64, 64, false),
    (1, 2, 5, 130, 64, false),
    (1, 1, 130, 5, 16, false),
    (1, 3, 1, 65, 64, false),
    (1, 1, 66, 67, 256, false),
    (1, 1, 330, 330, 8, true),
    (1, 1, 300, 270, 8, false),
    (4, 4, 130, 130, 4, true),
    (0, 2, 5, 5, 16, true),
    (1, 2, 0, 0, 16, true),
    (1, 2, 0, 7, 16, false),
];

fn attention(causal: bool, width: usize) -> ScaledDotProductAttention {
    ScaledDotProductAttention {
        causal,
        window: None,
        documents: false,
        scale: 1.0 / (width as f64).sqrt(),
    }
}

fn gradient(causal: bool, width: usize) -> ScaledDotProductAttentionBackward {
    let ScaledDotProductAttention { causal, scale, .. } = attention(causal, width);
    ScaledDotProductAttentionBackward {
        causal,
        window: None,
        documents: false,
        scale,
        output_grad: true,
        lse_grad: false,
        packed: None,
    }
}

fn strided(shape: [usize; 4], strides: [usize; 4], offset: usize) -> Spec {
    f32_strided(shape, &strides, offset)
}

/// The thirds of a packed projection `[B, T, 3 H D]`.
fn thirds(b: usize, h: usize, t: usize, d: usize) -> (Packed, [Spec; 3]) {
    let c = h * d;
    let packed = Packed {
        strides: [t * 3 * c, d, 3 * c, 1],
        offsets: [0, c, 2 * c],
    };
    let shape = Shape::from([b, h, t, d]);
    let specs = [0, 1, 2].map(|i| f32_view(packed.layout(i, &shape)));
    (packed, specs)
}

fn with(mut sample: Sample, specs: impl IntoIterator<Item = Spec>) -> Sample {
    for (i, spec) in specs.into_iter().enumerate() {
        let fill = sample.inputs[i].1;
        sample = sample.input(i, spec, fill);
    }
    sample
}

fn forward_sample((b, h, q, k, d, causal): Case) -> Sample {
    let (queries, keys) = ([b, h, q, d], [b, h, k, d]);
    Sample::new(attention(causal, d), &[&queries, &keys, &keys])
}

/// With `lse` about as large as it is, so that weights are about as small.
fn backward_sample(op: ScaledDotProductAttentionBackward, (b, h, q, k, d, _): Case) -> Sample {
    let (queries, keys) = ([b, h, q, d], [b, h, k, d]);
    let rows = [b, h, q];
    let mut shapes: Vec<&[usize]> = vec![&queries, &keys, &keys, &queries, &rows];
    if op.output_grad {
        shapes.push(&queries);
    }
    if op.lse_grad {
        shapes.push(&rows);
    }
    let least = ((k as f64) + 1.0).ln() + 0.5;
    let lse = Fill::Uniform(least, least + 1.0);
    Sample::new(op, &shapes).input(4, f32s(rows), lse)
}

/// Batch, heads, of these sharing keys, length, width, window; causal.
type Shared = (usize, usize, usize, usize, usize, Option<usize>);

const SHARED: [Shared; 9] = [
    (1, 4, 2, 5, 4, None),
    (2, 6, 3, 65, 16, None),
    (1, 8, 8, 130, 8, None),
    (2, 4, 1, 9, 16, Some(1)),
    (1, 2, 1, 200, 16, Some(64)),
    (1, 2, 2, 330, 8, Some(70)),
    (1, 4, 4, 300, 8, Some(3)),
    (3, 6, 2, 70, 5, Some(500)),
    (0, 4, 2, 5, 4, Some(2)),
];

/// The same, causal or not, of so many documents of less than a length, as numbers of a dtype.
type Several = (Shared, bool, usize, usize, DType);

const DOCUMENTS: [Several; 8] = [
    ((1, 2, 1, 9, 4, None), true, 3, 4, DType::I64),
    ((2, 2, 1, 130, 16, None), true, 4, 33, DType::U32),
    ((2, 4, 2, 200, 8, None), false, 3, 67, DType::I64),
    ((1, 2, 2, 330, 8, Some(70)), true, 3, 110, DType::U32),
    ((3, 2, 1, 70, 5, Some(3)), true, 5, 15, DType::I64),
    ((1, 1, 1, 300, 8, None), true, 40, 8, DType::I64),
    ((2, 2, 1, 65, 16, None), false, 0, 1, DType::U32),
    ((0, 2, 1, 5, 4, None), true, 2, 3, DType::I64),
];

/// With lengths of documents after the values.
fn with_documents(mut sample: Sample, (shared, _, count, below, dtype): Several) -> Sample {
    let lengths = Spec::contiguous(dtype, [shared.0, count]);
    sample.inputs.insert(3, (lengths, Fill::Indices(below)));
    sample
}

/// With keys and values of fewer heads.
fn sharing(mut sample: Sample, (b, h, sharing, t, d, _): Shared) -> Sample {
    let fill = Fill::Normal(1.0);
    for i in [1, 2] {
        let spec = f32s([b, h / sharing, t, d]);
        sample = sample.input(i, spec, fill);
    }
    sample
}

/// Samples of the forward operation.
pub(super) fn forward() -> Vec<Sample> {
    let mut samples: Vec<Sample> = CASES.into_iter().map(forward_sample).collect();
    for (b, h, t, d) in [(2, 3, 9, 16), (1, 2, 70, 64), (2, 1, 33, 5)] {
        let (_, specs) = thirds(b, h, t, d);
        samples.push(with(forward_sample((b, h, t, t, d, true)), specs));
    }
    for shared in SHARED {
        let (b, h, _, t, d, window) = shared;
        let op = ScaledDotProductAttention {
            window,
            ..attention(true, d)
        };
        let sample = Sample {
            op: Arc::new(op),
            ..forward_sample((b, h, t, t, d, true))
        };
        samples.push(sharing(sample, shared));
    }
    let across = (2, 4, 2, 70, 16, None);
    let sample = sharing(forward_sample((2, 4, 5, 70, 16, false)), across);
    samples.push(sample);
    for several in DOCUMENTS {
        let (b, h, _, t, d, window) = several.0;
        let op = ScaledDotProductAttention {
            window,
            documents: true,
            ..attention(several.1, d)
        };
        let mut sample = sharing(forward_sample((b, h, t, t, d, several.1)), several.0);
        sample.op = Arc::new(op);
        samples.push(with_documents(sample, several));
    }
    // Keys of one head for all, elements apart, and an offset.
    let shared = strided([2, 3, 5, 16], [80, 0, 16, 1], 0);
    let apart = strided([2, 3, 5, 16], [1, 160, 32, 2], 7);
    let sample = forward_sample((2, 3, 5, 5, 16, false));
    samples.push(with(sample, [apart.clone(), shared, apart]));
    samples
}

/// Samples of the backward operation.
pub(super) fn backward() -> Vec<Sample> {
    let mut samples: Vec<Sample> = CASES
        .into_iter()
        .map(|case| backward_sample(gradient(case.5, case.4), case))
        .collect();
    for (b, h, t, d) in [(2, 3, 9, 16), (1, 2, 70, 64), (2, 1, 33, 5)] {
        let (packed, specs) = thirds(b, h, t, d);
        let op = ScaledDotProductAttentionBackward {
            packed: Some(packed),
            ..gradient(true, d)
        };
        samples.push(with(backward_sample(op, (b, h, t, t, d, true)), specs));
    }
    for (output_grad, lse_grad) in [(true, true), (false, true)] {
        let op = ScaledDotProductAttentionBackward {
            output_grad,
            lse_grad,
            ..gradient(false, 16)
        };
        samples.push(backward_sample(op, (1, 2, 5, 7, 16, false)));
    }
    for shared in SHARED {
        let (b, h, _, t, d, window) = shared;
        let op = ScaledDotProductAttentionBackward {
            window,
            ..gradient(true, d)
        };
        let sample = backward_sample(op, (b, h, t, t, d, true));
        samples.push(sharing(sample, shared));
    }
    for (several, output_grad) in DOCUMENTS.into_iter().flat_map(|several| {
        let small = several.0.3 < 10 || several.4 == DType::U32 && several.0.3 == 65;
        let both: &[bool] = if small { &[true, false] } else { &[true] };
        both.iter().map(move |&output_grad| (several, output_grad))
    }) {
        let (b, h, _, t, d, window) = several.0;
        let op = ScaledDotProductAttentionBackward {
            window,
            documents: true,
            output_grad,
            lse_grad: !output_grad,
            ..gradient(several.1, d)
        };
        let plain = ScaledDotProductAttentionBackward {
            documents: false,
            ..op
        };
        let mut sample = sharing(
            backward_sample(plain, (b, h, t, t, d, several.1)),
            several.0,
        );
        sample.op = Arc::new(op);
        samples.push(with_documents(sample, several));
    }
    let across = (2, 4, 2, 70, 16, None);
    let sample = backward_sample(gradient(false, 16), (2, 4, 5, 70, 16, false));
    samples.push(sharing(sample, across));
    // Inputs stored in other orders, and a gradient that is the same number everywhere.
    let shape = [2, 3, 5, 16];
    let split = strided(shape, [240, 16, 48, 1], 0);
    let apart = strided(shape, [1, 160, 32, 2], 7);
    let sample = backward_sample(gradient(true, 16), (2, 3, 5, 5, 16, true));
    let sample = with(sample, [split.clone(), apart.clone(), split.clone(), split]);
    samples.push(sample.clone().input(5, apart, Fill::Normal(1.0)));
    let same = strided(shape, [0, 0, 0, 0], 0);
    samples.push(sample.input(5, same, Fill::Normal(1.0)));
    samples
}

fn specs(shapes: &[&[usize]]) -> Vec<Spec> {
    let spec = |&shape: &&[usize]| f32s(shape);
    shapes.iter().map(spec).collect()
}

fn is_shape(error: &OpError) -> bool {
    matches!(error, OpError::Shape { .. })
}

fn is_attribute(error: &OpError) -> bool {
    matches!(error, OpError::Attribute { .. })
}

fn documents() -> ScaledDotProductAttention {
    ScaledDotProductAttention {
        documents: true,
        ..attention(false, 16)
    }
}

/// Specs, and one of lengths of documents.
fn lengths(shapes: &[&[usize]], lengths: &[usize]) -> Vec<Spec> {
    let mut specs = specs(shapes);
    specs.push(Spec::contiguous(DType::I64, lengths));
    specs
}

fn windowed(causal: bool, window: usize) -> ScaledDotProductAttention {
    ScaledDotProductAttention {
        window: Some(window),
        ..attention(causal, 16)
    }
}

fn is_dtype(error: &OpError) -> bool {
    matches!(error, OpError::DType { .. })
}

fn is_arity(error: &OpError) -> bool {
    matches!(error, OpError::Arity { .. })
}

/// What the forward operation refuses.
pub(super) fn forward_rejects() -> Vec<Reject> {
    let (a, b): (&[usize], &[usize]) = (&[1, 2, 5, 16], &[1, 2, 7, 16]);
    let whole = vec![Spec::contiguous(DType::I64, a); 3];
    let mut mixed = specs(&[a, a, a]);
    mixed[2].dtype = DType::BF16;
    let wide: &[usize] = &[1, 1, 2, 257];
    vec![
        Reject::new(attention(true, 16), specs(&[a, a]), is_arity),
        Reject::new(attention(true, 16), specs(&[a, b, b]), is_shape),
        Reject::new(attention(false, 16), specs(&[a, b, a]), is_shape),
        Reject::new(
            attention(false, 16),
            specs(&[a, &[1, 3, 5, 16], a]),
            is_shape,
        ),
        Reject::new(attention(false, 16), specs(&[&[2, 5, 16], a, a]), is_shape),
        Reject::new(attention(false, 16), specs(&[wide, wide, wide]), is_shape),
        Reject::new(
            attention(false, 16),
            specs(&[&[1, 4, 5, 16], &[1, 0, 5, 16], &[1, 0, 5, 16]]),
            is_shape,
        ),
        Reject::new(windowed(false, 3), specs(&[a, a, a]), is_attribute),
        Reject::new(windowed(true, 0), specs(&[a, a, a]), is_attribute),
        Reject::new(attention(false, 16), whole, is_dtype),
        Reject::new(attention(false, 16), mixed, is_dtype),
        Reject::new(documents(), specs(&[a, a, a]), is_arity),
        Reject::new(documents(), specs(&[a, a, a, &[1, 3]]), is_dtype),
        Reject::new(documents(), lengths(&[a, a, a], &[2, 3]), is_shape),
        Reject::new(documents(), lengths(&[a, a, a], &[3]), is_shape),
        Reject::new(documents(), lengths(&[a, b, b], &[1, 3]), is_shape),
    ]
}

/// What the backward operation refuses.
pub(super) fn backward_rejects() -> Vec<Reject> {
    let a: &[usize] = &[1, 2, 5, 16];
    let lse: &[usize] = &[1, 2, 5];
    let op = gradient(true, 16);
    let mut half = specs(&[a, a, a, a, lse, a]);
    half[5].dtype = DType::BF16;
    let (mut packed, _) = thirds(1, 2, 5, 16);
    packed.offsets[2] += 1;
    let overlapping = ScaledDotProductAttentionBackward {
        packed: Some(packed),
        ..op
    };
    vec![
        Reject::new(op, specs(&[a, a, a, a, lse]), is_arity),
        Reject::new(op, specs(&[a, a, a, a, lse, &[1, 2, 6, 16]]), is_shape),
        Reject::new(op, specs(&[a, a, a, a, &[1, 2, 6], a]), is_shape),
        Reject::new(op, half, is_dtype),
        Reject::new(overlapping, specs(&[a, a, a, a, lse, a]), is_attribute),
    ]
}
