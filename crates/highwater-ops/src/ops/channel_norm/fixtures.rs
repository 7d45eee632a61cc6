//! PyTorch's cases as nodes, for the test `fixtures`.

use crate::build::{Builder, Nodes};
use highwater_graph::Operand;
use highwater_ops::{
    BatchNorm, BatchNormInference, GroupNorm, InPlaceAbn, Invertible, RunningAverage,
};

pub(crate) fn nodes(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let (eps, affine) = (builder.number("eps"), builder.flag("affine"));
    let y = match builder.name {
        "batch_norm" => builder.add_one(BatchNorm { eps, affine }, x)?,
        "inplace_abn" => {
            let setting = builder.number("setting");
            let activation = match builder.text("activation") {
                "leaky_relu" => Invertible::LeakyRelu { slope: setting },
                "elu" => Invertible::Elu { alpha: setting },
                _ => Invertible::Identity,
            };
            let op = InPlaceAbn {
                eps,
                affine,
                activation,
            };
            return Ok(vec![builder.add(op, x)?[0].clone()]);
        }
        "running_average" => return running(builder, x),
        "batch_norm_inference" => builder.add_one(BatchNormInference { eps, affine }, x)?,
        _ => {
            let groups = builder.number("groups") as usize;
            let op = GroupNorm {
                groups,
                eps,
                affine,
            };
            builder.add_one(op, x)?
        }
    };
    Ok(vec![y])
}

/// `y`, and running statistics after it.
fn running(builder: &mut Builder<'_>, x: &[Operand]) -> Nodes {
    let (eps, momentum) = (builder.number("eps"), builder.number("momentum"));
    let outputs = builder.add(BatchNorm { eps, affine: false }, &x[..1])?;
    let shape = x[0].shape();
    let count = (shape.numel() / shape[1]) as f64;
    let mut average = |running: &Operand, statistic: &Operand, correction: f64| {
        let op = RunningAverage {
            momentum,
            correction,
        };
        builder.add_one(op, &[running.clone(), statistic.clone()])
    };
    let mean = average(&x[1], &outputs[1], 1.0)?;
    let var = average(&x[2], &outputs[3], count / (count - 1.0))?;
    Ok(vec![outputs[0].clone(), mean, var])
}
