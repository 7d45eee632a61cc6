//! What the laws try.

use super::{GridBackward, GridMode, GridPadding, GridSample, InputBackward};
use crate::table::{f32_strided, f32s, is_arity, is_dtype, is_shape};
use crate::{Fill, Reject, Sample};
use highwater_graph::{DType, Op, Spec};
use std::sync::Arc;

/// Places within images and beside them.
const PLACES: Fill = Fill::Normal(0.8);

/// All settings, with images and what is seen of them.
fn cases() -> Vec<(GridSample, [usize; 4], [usize; 2])> {
    let mut cases = Vec::new();
    for mode in [GridMode::Bilinear, GridMode::Nearest] {
        for padding in [
            GridPadding::Zeros,
            GridPadding::Border,
            GridPadding::Reflection,
        ] {
            for align_corners in [false, true] {
                let op = GridSample {
                    mode,
                    padding,
                    align_corners,
                };
                cases.extend([
                    (op, [2, 3, 4, 5], [6, 3]),
                    (op, [1, 2, 1, 7], [2, 2]),
                    (op, [2, 11, 6, 9], [13, 17]),
                ]);
            }
        }
    }
    let op = cases[0].0;
    cases.extend([
        (op, [0, 2, 4, 5], [3, 3]),
        (op, [2, 0, 4, 5], [3, 3]),
        (op, [2, 2, 4, 5], [0, 3]),
    ]);
    cases
}

fn sample(op: impl Op, inputs: Vec<(Spec, Fill)>) -> Sample {
    Sample {
        op: Arc::new(op),
        inputs,
        tolerance: 5e-6,
    }
}

fn normal(spec: Spec) -> (Spec, Fill) {
    (spec, Fill::Normal(1.0))
}

fn grid(batch: usize, [rows, columns]: [usize; 2]) -> (Spec, Fill) {
    (f32s([batch, rows, columns, 2]), PLACES)
}

pub(super) fn forward() -> Vec<Sample> {
    let mut samples: Vec<Sample> = (cases().into_iter())
        .map(|(op, images, seen)| sample(op, vec![normal(f32s(images)), grid(images[0], seen)]))
        .collect();
    samples.push(sample(
        cases()[0].0,
        vec![
            normal(f32_strided([2, 3, 4, 5], &[60, 1, 15, 3], 0)),
            (f32_strided([2, 3, 2, 2], &[14, 4, 1, 2], 3), PLACES),
        ],
    ));
    samples
}

pub(super) fn input_backward() -> Vec<Sample> {
    let samples = cases().into_iter().map(|(forward, [n, c, h, w], seen)| {
        let sides = [h, w];
        let g = f32s([n, c, seen[0], seen[1]]);
        sample(
            InputBackward { forward, sides },
            vec![normal(g), grid(n, seen)],
        )
    });
    samples.collect()
}

pub(super) fn grid_backward() -> Vec<Sample> {
    let samples = cases().into_iter().map(|(op, images, seen)| {
        let g = f32s([images[0], images[1], seen[0], seen[1]]);
        let inputs = vec![normal(g), normal(f32s(images)), grid(images[0], seen)];
        // Slopes are as large as images.
        sample(GridBackward(op), inputs).tolerance(2e-5)
    });
    samples.collect()
}

fn first() -> GridSample {
    cases()[0].0
}

pub(super) fn forward_rejects() -> Vec<Reject> {
    let reject = |inputs, error| Reject::new(first(), inputs, error);
    let (images, grid) = (f32s([2, 3, 4, 5]), f32s([2, 6, 7, 2]));
    vec![
        reject(vec![f32s([3, 4, 5]), grid.clone()], is_shape),
        reject(vec![f32s([2, 3, 0, 5]), grid.clone()], is_shape),
        reject(vec![images.clone(), f32s([2, 6, 7, 3])], is_shape),
        reject(vec![images.clone(), f32s([1, 6, 7, 2])], is_shape),
        reject(
            vec![images.clone(), Spec::contiguous(DType::F16, [2, 6, 7, 2])],
            is_dtype,
        ),
        reject(vec![images], is_arity),
    ]
}

pub(super) fn input_backward_rejects() -> Vec<Reject> {
    let op = InputBackward {
        forward: first(),
        sides: [4, 5],
    };
    let empty = InputBackward {
        forward: first(),
        sides: [0, 5],
    };
    let (g, grid) = (f32s([2, 3, 6, 7]), f32s([2, 6, 7, 2]));
    vec![
        Reject::new(op, vec![f32s([2, 3, 6, 8]), grid.clone()], is_shape),
        Reject::new(op, vec![g.clone()], is_arity),
        Reject::new(empty, vec![g, grid], is_shape),
    ]
}

pub(super) fn grid_backward_rejects() -> Vec<Reject> {
    let op = GridBackward(first());
    let (g, images, grid) = (f32s([2, 3, 6, 7]), f32s([2, 3, 4, 5]), f32s([2, 6, 7, 2]));
    vec![
        Reject::new(
            op,
            vec![f32s([2, 3, 6, 8]), images.clone(), grid.clone()],
            is_shape,
        ),
        Reject::new(op, vec![g, images], is_arity),
    ]
}
