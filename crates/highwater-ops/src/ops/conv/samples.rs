//! What the laws try.

use super::{Conv2d, Conv2dWeight, ConvSettings, ConvTranspose2d};
use crate::table::{f32_strided, f32s, is_arity};
use crate::{Fill, Reject, Sample};
use highwater_graph::{Op, OpError, Spec};
use std::sync::Arc;

const PLAIN: ConvSettings = ConvSettings {
    stride: [1; 2],
    padding: [0; 2],
    dilation: [1; 2],
    groups: 1,
};

fn settings(
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
) -> ConvSettings {
    ConvSettings {
        stride,
        padding,
        dilation,
        groups,
    }
}

/// Settings, images and a weight of a convolution.
fn cases() -> Vec<(ConvSettings, [usize; 4], [usize; 4])> {
    let same = settings([1, 1], [1, 1], [1, 1], 1);
    let halving = settings([2, 2], [1, 1], [1, 1], 1);
    vec![
        (PLAIN, [2, 3, 5, 6], [4, 3, 3, 2]),
        (same, [2, 5, 7, 7], [3, 5, 3, 3]),
        (halving, [1, 2, 9, 8], [5, 2, 3, 3]),
        (
            settings([2, 2], [0, 0], [1, 1], 1),
            [2, 3, 7, 6],
            [4, 3, 1, 1],
        ),
        (
            settings([3, 2], [2, 3], [2, 3], 1),
            [2, 2, 11, 13],
            [3, 2, 3, 2],
        ),
        (
            settings([2, 3], [1, 0], [1, 2], 2),
            [1, 4, 8, 9],
            [6, 2, 2, 3],
        ),
        (
            settings([1, 2], [1, 1], [2, 1], 3),
            [2, 3, 6, 7],
            [6, 1, 3, 3],
        ),
        (
            settings([1, 1], [1, 1], [1, 1], 4),
            [2, 4, 5, 5],
            [4, 1, 3, 3],
        ),
        (
            settings([3, 3], [1, 1], [1, 1], 1),
            [1, 2, 8, 8],
            [3, 2, 2, 2],
        ),
        (PLAIN, [3, 33, 4, 5], [37, 33, 1, 1]),
        (PLAIN, [2, 6, 1, 40], [5, 6, 1, 7]),
        (same, [2, 50, 6, 7], [20, 50, 3, 3]),
        // Most pixels lie under no element.
        (
            settings([2, 2], [0, 0], [1, 1], 1),
            [2, 5, 14, 13],
            [3, 5, 1, 1],
        ),
        (PLAIN, [0, 3, 4, 4], [2, 3, 3, 3]),
        (PLAIN, [2, 0, 4, 4], [2, 0, 3, 3]),
    ]
}

/// The same shape with channels last.
fn channels_last(&[n, c, h, w]: &[usize; 4]) -> Spec {
    f32_strided([n, c, h, w], &[h * w * c, 1, w * c, c], 0)
}

fn sample(op: impl Op, inputs: Vec<Spec>) -> Sample {
    Sample {
        op: Arc::new(op),
        inputs: inputs
            .into_iter()
            .map(|spec| (spec, Fill::Normal(1.0)))
            .collect(),
        tolerance: 1e-4,
    }
}

/// The sides of what a convolution makes.
fn made(settings: &ConvSettings, x: &[usize; 4], w: &[usize; 4]) -> [usize; 4] {
    let sides = settings
        .shrunk("conv2d", [x[2], x[3]], [w[2], w[3]])
        .unwrap_or([0; 2]);
    [x[0], w[0], sides[0], sides[1]]
}

pub(super) fn conv() -> Vec<Sample> {
    let mut samples = Vec::new();
    for (i, (settings, x, w)) in cases().into_iter().enumerate() {
        let bias = i % 2 == 0;
        let mut inputs = vec![f32s(x), f32s(w)];
        inputs.extend(bias.then(|| f32s([w[0]])));
        samples.push(sample(Conv2d { settings, bias }, inputs));
    }
    let (settings, x, w) = cases().swap_remove(1);
    let scattered = f32_strided([w[0]], &[3], 1);
    let inputs = vec![channels_last(&x), channels_last(&w), scattered];
    let bias = true;
    samples.push(sample(Conv2d { settings, bias }, inputs));
    samples
}

pub(super) fn transpose() -> Vec<Sample> {
    let mut samples = Vec::new();
    for (i, (settings, x, w)) in cases().into_iter().enumerate() {
        let y = made(&settings, &x, &w);
        let op = settings.transpose([x[2], x[3]], [w[2], w[3]]);
        let bias = i % 2 == 1;
        let mut inputs = vec![f32s(y), f32s(w)];
        inputs.extend(bias.then(|| f32s([x[1]])));
        samples.push(sample(ConvTranspose2d { bias, ..op }, inputs));
    }
    let (settings, x, w) = cases().swap_remove(2);
    let y = made(&settings, &x, &w);
    let op = settings.transpose([x[2], x[3]], [w[2], w[3]]);
    samples.push(sample(op, vec![channels_last(&y), channels_last(&w)]));
    let far = ConvTranspose2d {
        settings: ConvSettings {
            dilation: [3, 3],
            ..PLAIN
        },
        output_padding: [2, 1],
        bias: true,
    };
    samples.push(sample(
        far,
        vec![f32s([2, 3, 4, 5]), f32s([3, 2, 2, 3]), f32s([2])],
    ));
    samples
}

pub(super) fn weight() -> Vec<Sample> {
    let sample = |settings, w: [usize; 4], x: Spec, g: Spec| {
        let kernel = [w[2], w[3]];
        sample(Conv2dWeight { settings, kernel }, vec![x, g])
    };
    let mut samples: Vec<Sample> = cases()
        .into_iter()
        .map(|(settings, x, w)| {
            let g = made(&settings, &x, &w);
            sample(settings, w, f32s(x), f32s(g))
        })
        .collect();
    let (settings, x, w) = cases().swap_remove(2);
    let g = made(&settings, &x, &w);
    samples.push(sample(settings, w, channels_last(&x), channels_last(&g)));
    let repeated = f32_strided(g, &[0; 4], 1);
    samples.push(sample(settings, w, f32s(x), repeated));
    samples
}

fn reject(op: impl Op, shapes: &[&[usize]], error: fn(&OpError) -> bool) -> Reject {
    Reject::new(op, shapes.iter().map(|&shape| f32s(shape)).collect(), error)
}

fn is_shape(error: &OpError) -> bool {
    matches!(error, OpError::Shape { .. })
}

fn is_attribute(error: &OpError) -> bool {
    matches!(error, OpError::Attribute { .. })
}

pub(super) fn conv_rejects() -> Vec<Reject> {
    let op = |settings| Conv2d {
        settings,
        bias: false,
    };
    let biased = Conv2d {
        settings: PLAIN,
        bias: true,
    };
    let still = settings([0, 1], [0, 0], [1, 1], 1);
    let grouped = settings([1, 1], [0, 0], [1, 1], 2);
    vec![
        reject(op(PLAIN), &[&[2, 3, 4], &[2, 3, 1, 1]], is_shape),
        reject(op(PLAIN), &[&[2, 3, 4, 4], &[2, 2, 1, 1]], is_shape),
        reject(op(PLAIN), &[&[2, 3, 4, 4], &[2, 3, 5, 1]], is_shape),
        reject(op(PLAIN), &[&[2, 3, 4, 4], &[2, 3, 0, 1]], is_shape),
        reject(op(still), &[&[2, 3, 4, 4], &[2, 3, 1, 1]], is_attribute),
        reject(op(grouped), &[&[2, 3, 4, 4], &[2, 1, 1, 1]], is_attribute),
        reject(biased, &[&[2, 3, 4, 4], &[2, 3, 1, 1], &[3]], is_shape),
        reject(biased, &[&[2, 3, 4, 4], &[2, 3, 1, 1]], is_arity),
    ]
}

pub(super) fn transpose_rejects() -> Vec<Reject> {
    let op = |settings, output_padding| ConvTranspose2d {
        settings,
        output_padding,
        bias: false,
    };
    let padded = settings([1, 1], [2, 2], [1, 1], 1);
    vec![
        reject(op(PLAIN, [0; 2]), &[&[2, 3, 4, 4], &[2, 3, 1, 1]], is_shape),
        reject(
            op(PLAIN, [1, 0]),
            &[&[2, 3, 4, 4], &[3, 2, 1, 1]],
            is_attribute,
        ),
        reject(
            op(padded, [0; 2]),
            &[&[2, 3, 4, 4], &[3, 2, 1, 1]],
            is_shape,
        ),
    ]
}

pub(super) fn weight_rejects() -> Vec<Reject> {
    let op = Conv2dWeight {
        settings: PLAIN,
        kernel: [3, 3],
    };
    vec![
        reject(op, &[&[2, 3, 4, 4], &[2, 5, 3, 2]], is_shape),
        reject(op, &[&[2, 3, 4, 4], &[1, 5, 2, 2]], is_shape),
        reject(op, &[&[2, 3, 2, 4], &[2, 5, 2, 2]], is_shape),
    ]
}
