//! What the laws try.

use super::average::{AvgPool2d, AvgPool2dBackward};
use super::maximum::{MaxPool2d, MaxPool2dBackward, MaxPool2dSelect};
use super::windows::{PoolSettings, Windows};
use crate::table::{f32_strided, f32s, is_dtype};
use crate::{Fill, Reject, Sample};
use highwater_graph::{DType, Op, OpError, Spec};
use std::sync::Arc;

fn fixed(
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil_mode: bool,
) -> Windows {
    Windows::Fixed(PoolSettings {
        kernel,
        stride,
        padding,
        dilation,
        ceil_mode,
    })
}

/// Windows, and images for them.
fn cases() -> Vec<(Windows, [usize; 4])> {
    vec![
        (Windows::Fixed(PoolSettings::new([2, 2])), [2, 3, 6, 7]),
        (fixed([3, 3], [2, 2], [1, 1], [1, 1], false), [1, 3, 9, 8]),
        (fixed([3, 2], [2, 1], [1, 0], [1, 1], true), [2, 2, 8, 9]),
        (fixed([2, 2], [3, 3], [0, 0], [1, 1], true), [1, 2, 7, 8]),
        (fixed([1, 4], [1, 2], [0, 2], [1, 1], false), [2, 3, 1, 30]),
        (Windows::Adaptive([1, 1]), [2, 5, 7, 6]),
        (Windows::Adaptive([3, 5]), [2, 2, 7, 6]),
        (Windows::Adaptive([4, 3]), [1, 2, 2, 3]),
        (Windows::Fixed(PoolSettings::new([2, 2])), [0, 3, 6, 7]),
    ]
}

fn sample(op: impl Op, x: Spec) -> Sample {
    Sample {
        op: Arc::new(op),
        inputs: vec![(x, Fill::Normal(1.0))],
        tolerance: 1e-5,
    }
}

/// Channels last.
fn strided() -> Spec {
    f32_strided([2, 4, 6, 5], &[120, 1, 20, 4], 0)
}

pub(super) fn maximum() -> Vec<Sample> {
    let op = |windows| MaxPool2d { windows };
    let mut samples: Vec<Sample> = cases()
        .into_iter()
        .map(|(windows, x)| sample(op(windows), f32s(x)))
        .collect();
    let dilated = fixed([3, 2], [1, 2], [1, 1], [2, 3], false);
    samples.push(sample(op(dilated), f32s([2, 2, 9, 10])));
    samples.push(sample(op(Windows::Adaptive([1, 1])), f32s([1, 2, 20, 20])));
    samples.push(sample(op(cases()[0].0), strided()));
    samples
}

pub(super) fn average() -> Vec<Sample> {
    let op = |windows, count_include_pad| AvgPool2d {
        windows,
        count_include_pad,
    };
    let mut samples = Vec::new();
    for (windows, x) in cases() {
        samples.push(sample(op(windows, true), f32s(x)));
        samples.push(sample(op(windows, false), f32s(x)));
    }
    samples.push(sample(op(cases()[0].0, true), strided()));
    samples
}

/// The shape that comes of images.
fn pooled(windows: &Windows, x: &[usize; 4]) -> [usize; 4] {
    windows.infer("pool", &f32s(x)).unwrap_or([0; 4])
}

pub(super) fn average_backward() -> Vec<Sample> {
    let mut samples = Vec::new();
    for (i, (windows, x)) in cases().into_iter().enumerate() {
        let pool = AvgPool2d {
            windows,
            count_include_pad: i % 2 == 0,
        };
        let sides = [x[2], x[3]];
        let op = AvgPool2dBackward { pool, sides };
        samples.push(sample(op, f32s(pooled(&windows, &x))));
    }
    samples
}

/// Windows all of whose elements are pixels, images for them, and how many elements they have.
fn inner() -> Vec<(Windows, [usize; 4], usize)> {
    vec![
        (Windows::Fixed(PoolSettings::new([2, 2])), [2, 3, 6, 7], 4),
        (
            fixed([3, 3], [2, 1], [0, 0], [1, 1], false),
            [1, 2, 9, 8],
            9,
        ),
        (
            fixed([2, 3], [1, 2], [0, 0], [2, 1], false),
            [2, 2, 8, 9],
            6,
        ),
        (Windows::Adaptive([2, 3]), [2, 2, 6, 7], 6),
        (Windows::Adaptive([1, 1]), [1, 3, 20, 20], 400),
    ]
}

/// With places of maxima behind the first input.
fn with_places(op: impl Op, first: Spec, places: &[usize; 4], most: usize) -> Sample {
    let dtype = if most <= 256 { DType::U8 } else { DType::I64 };
    let mut sample = sample(op, first);
    let places = Spec::contiguous(dtype, *places);
    sample.inputs.push((places, Fill::Indices(most)));
    sample
}

pub(super) fn maximum_backward() -> Vec<Sample> {
    let samples = inner().into_iter().map(|(windows, x, most)| {
        let sides = [x[2], x[3]];
        let g = pooled(&windows, &x);
        with_places(MaxPool2dBackward { windows, sides }, f32s(g), &g, most)
    });
    samples.collect()
}

pub(super) fn select() -> Vec<Sample> {
    let samples = inner().into_iter().map(|(windows, x, most)| {
        let places = pooled(&windows, &x);
        with_places(MaxPool2dSelect { windows }, f32s(x), &places, most)
    });
    samples.collect()
}

fn is_shape(error: &OpError) -> bool {
    matches!(error, OpError::Shape { .. })
}

fn is_attribute(error: &OpError) -> bool {
    matches!(error, OpError::Attribute { .. })
}

pub(super) fn maximum_rejects() -> Vec<Reject> {
    let op = |windows| MaxPool2d { windows };
    let still = fixed([2, 2], [0, 1], [0, 0], [1, 1], false);
    let padded = fixed([2, 2], [1, 1], [2, 0], [1, 1], false);
    vec![
        Reject::new(op(cases()[0].0), vec![f32s([3, 6, 7])], is_shape),
        Reject::new(op(cases()[0].0), vec![f32s([2, 3, 1, 7])], is_shape),
        Reject::new(
            op(Windows::Adaptive([1, 1])),
            vec![f32s([2, 3, 0, 7])],
            is_shape,
        ),
        Reject::new(op(still), vec![f32s([2, 3, 6, 7])], is_attribute),
        Reject::new(op(padded), vec![f32s([2, 3, 6, 7])], is_attribute),
    ]
}

pub(super) fn maximum_backward_rejects() -> Vec<Reject> {
    let windows = cases()[0].0;
    let op = MaxPool2dBackward {
        windows,
        sides: [6, 7],
    };
    let g = f32s([2, 3, 3, 3]);
    let places = |shape: &[usize]| Spec::contiguous(DType::U8, shape);
    vec![
        Reject::new(op, vec![g.clone(), places(&[2, 3, 3, 2])], is_shape),
        Reject::new(
            op,
            vec![f32s([2, 3, 3, 2]), places(&[2, 3, 3, 3])],
            is_shape,
        ),
        Reject::new(op, vec![g.clone(), g], is_dtype),
    ]
}

pub(super) fn select_rejects() -> Vec<Reject> {
    let op = MaxPool2dSelect {
        windows: cases()[0].0,
    };
    let places = Spec::contiguous(DType::U8, [2, 3, 3, 2]);
    vec![Reject::new(op, vec![f32s([2, 3, 6, 7]), places], is_shape)]
}

pub(super) fn average_rejects() -> Vec<Reject> {
    let op = |windows| AvgPool2d {
        windows,
        count_include_pad: true,
    };
    let dilated = fixed([2, 2], [1, 1], [0, 0], [2, 1], false);
    vec![
        Reject::new(op(cases()[0].0), vec![f32s([2, 3, 1, 7])], is_shape),
        Reject::new(op(dilated), vec![f32s([2, 3, 6, 7])], is_attribute),
    ]
}

pub(super) fn average_backward_rejects() -> Vec<Reject> {
    let pool = AvgPool2d {
        windows: cases()[0].0,
        count_include_pad: true,
    };
    let op = AvgPool2dBackward {
        pool,
        sides: [6, 7],
    };
    vec![Reject::new(op, vec![f32s([2, 3, 3, 4])], is_shape)]
}
