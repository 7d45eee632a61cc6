//! What the laws try of an update in all forms but the plain one. Kernels give the references' bits.

use super::{Draws, Formats, Master, Moments, StateCell, Update};
use crate::kernels::cells;
use crate::table::{f32s, is_dtype, is_shape};
use crate::{Fill, Reject, Sample};
use highwater_graph::{DType, Layout, Shape, Spec};
use std::sync::Arc;

const DRAWS: Draws = Draws {
    seed: 11,
    offset: 3,
    start: 20,
};

/// Dtypes of parameters with the forms there are for them.
fn forms() -> Vec<(DType, Formats)> {
    let of = |master, moments| Formats {
        master,
        moments,
        step: 5,
    };
    let mut forms = vec![(DType::F32, of(Master::None, Moments::Int8))];
    for moments in [Moments::Float, Moments::Int8] {
        forms.push((DType::F16, of(Master::F32, moments)));
        let masters = [Master::F32, Master::Split, Master::Stochastic(DRAWS)];
        forms.extend(masters.map(|master| (DType::BF16, of(master, moments))));
    }
    forms
}

fn inputs(dtype: DType, formats: &Formats, kinds: &[&str], gradient: Spec) -> Vec<(Spec, Fill)> {
    let shape = gradient.shape().clone();
    let fill = |cell: &StateCell| match cell.dtype {
        DType::I16 => Fill::Uniform(-32768.0, 32768.0),
        DType::U8 => Fill::Indices(256),
        _ if cell.kind == "master" => Fill::Normal(1.0),
        _ => Fill::Uniform(1e-4, 0.05),
    };
    let mut inputs = vec![(Spec::contiguous(dtype, shape.clone()), Fill::Normal(1.0))];
    let beside = formats.cells(dtype, &shape, kinds);
    inputs.extend(beside.iter().map(|cell| {
        let spec = Spec::contiguous(cell.dtype, cell.shape.clone());
        (spec, fill(cell))
    }));
    inputs.push((gradient, Fill::Normal(0.2)));
    inputs
}

/// Applications of an update in the plain form, with what its moments are filled with.
pub(crate) fn plain_samples(op: impl Update, moments: &[Fill], tolerance: f64) -> Vec<Sample> {
    let layouts = [
        Layout::contiguous([5, 37]),
        Layout::contiguous([]),
        Layout::contiguous([0, 5]),
        Layout::contiguous([3, 130, 131]),
        Layout::strided([37, 41], &[1, 40], 3),
        Layout::strided([130, 150], &[0, 2], 1),
    ];
    let sample = |(i, layout): (usize, Layout)| {
        let cell = f32s(layout.shape().clone());
        // A dimension too few is no rows of a larger cell.
        let parameter = if i % 2 == 0 && layout.shape().rank() > 1 {
            cells::rows_of_cell(layout.shape())
        } else {
            cell.clone()
        };
        let mut inputs = vec![(parameter, Fill::Normal(1.0))];
        inputs.extend(moments.iter().map(|&fill| (cell.clone(), fill)));
        let dtype = DType::F32;
        inputs.push((Spec { dtype, layout }, Fill::Normal(0.2)));
        Sample {
            op: Arc::new(op),
            inputs,
            tolerance,
        }
    };
    layouts.into_iter().enumerate().map(sample).collect()
}

/// Applications of an update in all other forms.
pub(crate) fn samples(op: impl Update) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (dtype, formats) in forms() {
        let mut add = |gradient: DType, layout: Layout, rows: bool| {
            let gradient = Spec {
                dtype: gradient,
                layout,
            };
            let mut inputs = inputs(dtype, &formats, op.moments(), gradient);
            if rows {
                let layout = cells::rows_of_cell(inputs[0].0.shape()).layout;
                inputs[0].0.layout = layout;
            }
            samples.push(Sample {
                op: Arc::new(op.in_formats(formats)),
                inputs,
                tolerance: 0.0,
            });
        };
        add(dtype, Layout::contiguous([3, 130, 131]), false);
        add(dtype, Layout::strided([37, 41], &[1, 40], 3), true);
        add(dtype, Layout::contiguous([0, 5]), false);
        add(DType::F32, Layout::contiguous([]), false);
        add(DType::F32, Layout::contiguous([130, 131]), true);
        add(DType::F32, Layout::strided([130, 150], &[0, 2], 1), false);
        // Some of the parameter is what the master rounds to.
        if let Some(sample) = samples.last_mut()
            && formats.master == Master::F32
        {
            sample.inputs[0].1 = Fill::Constant(1.0);
            sample.inputs[1].1 = Fill::Uniform(0.9995, 1.004);
        }
    }
    samples
}

/// What it must refuse in them.
pub(crate) fn rejects(op: impl Update) -> Vec<Reject> {
    let shape = || Shape::from([3, 5]);
    let of = |dtype| Spec::contiguous(dtype, shape());
    let mut rejects = Vec::new();
    for (dtype, formats) in forms() {
        let good: Vec<Spec> = inputs(dtype, &formats, op.moments(), of(dtype))
            .into_iter()
            .map(|(spec, _)| spec)
            .collect();
        let mut with = |i: usize, spec: Spec, error| {
            let mut inputs = good.clone();
            inputs[i] = spec;
            rejects.push(Reject::new(op.in_formats(formats), inputs, error));
        };
        let last = good.len() - 1;
        with(0, of(DType::F64), is_dtype);
        with(last, of(DType::F64), is_dtype);
        with(last, Spec::contiguous(dtype, [5, 3]), is_shape);
        let transposed = Layout::strided(shape(), &[1, 3], 0);
        for (i, spec) in good.iter().enumerate().take(last).skip(1) {
            with(i, of(DType::I64), is_dtype);
            with(i, Spec::contiguous(spec.dtype, [3, 5, 1]), is_shape);
        }
        let layout = transposed;
        with(0, Spec { dtype, layout }, is_shape);
    }
    // Formats that are not for a dtype.
    for (dtype, master) in [
        (DType::F32, Master::Split),
        (DType::F16, Master::Split),
        (DType::F16, Master::Stochastic(DRAWS)),
        (DType::F32, Master::F32),
    ] {
        let formats = Formats {
            master,
            ..Formats::PLAIN
        };
        let inputs = inputs(dtype, &formats, op.moments(), of(dtype));
        let inputs = inputs.into_iter().map(|(spec, _)| spec).collect();
        rejects.push(Reject::new(op.in_formats(formats), inputs, is_dtype));
    }
    rejects
}
