//! In-place activated batch norms beside their plain composition, and the memory that they leave free.

use highwater::nn::{
    BatchNorm2d, BatchNormOptions, Conv2d, ConvSettings, InPlaceAbn, InPlaceAbnOptions, Invertible,
    Module,
};
use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::prelude::*;
use highwater::{GradcheckOptions, gradcheck};

const ACTIVATIONS: [Invertible; 3] = [
    Invertible::LeakyRelu { slope: 0.01 },
    Invertible::Elu { alpha: 1.0 },
    Invertible::Identity,
];

fn engine() -> Engine {
    Engine::builder().memory(256 << 20).seed(2).build().unwrap()
}

fn applied(x: &Tensor, activation: Invertible) -> Result<Tensor> {
    match activation {
        Invertible::Identity => Ok(x.clone()),
        Invertible::LeakyRelu { slope } => x.leaky_relu(slope),
        Invertible::Elu { alpha } => x.elu(alpha),
    }
}

fn close(a: &Tensor, b: &Tensor, what: &str) {
    let (a, b): (Vec<f32>, Vec<f32>) = (a.to_vec().unwrap(), b.to_vec().unwrap());
    assert_eq!(a.len(), b.len());
    for (i, (a, b)) in a.iter().zip(&b).enumerate() {
        assert!(
            (a - b).abs() <= 2e-5 * (1.0 + b.abs()),
            "{what}[{i}]: {a}, {b}"
        );
    }
}

/// Results, gradients of all there is and running statistics, in training and in evaluation. A weight is below
/// zero.
#[test]
fn is_what_the_plain_composition_is() {
    for activation in ACTIVATIONS {
        let engine = engine();
        let options = InPlaceAbnOptions {
            activation,
            ..InPlaceAbnOptions::default()
        };
        let module = InPlaceAbn::new(&engine, 3, options).unwrap();
        let plain = BatchNorm2d::new(&engine, 3, BatchNormOptions::default()).unwrap();
        let (weight, bias) = (
            module.weight.as_ref().unwrap(),
            module.bias.as_ref().unwrap(),
        );
        weight.copy_from_slice(&[0.5, -1.5, 2.0]).unwrap();
        bias.copy_from_slice(&[0.1, -0.4, 0.0]).unwrap();
        let (plain_weight, plain_bias) =
            (plain.weight.as_ref().unwrap(), plain.bias.as_ref().unwrap());
        let moved: Vec<f32> = [0.5_f32, 1.5, 2.0].iter().map(|x| x + 1e-5).collect();
        plain_weight.copy_from_slice(&moved).unwrap();
        plain_bias.copy_from_slice(&[0.1, -0.4, 0.0]).unwrap();
        let factor = Tensor::randn(&engine, [4, 3, 5, 5])
            .unwrap()
            .detach()
            .unwrap();
        let numbers: Vec<f32> = Tensor::randn(&engine, [4, 3, 5, 5])
            .unwrap()
            .to_vec()
            .unwrap();
        let leaf = || {
            let x = engine.tensor(&numbers, [4, 3, 5, 5]).unwrap();
            x.requires_grad_().unwrap()
        };
        let (x, plain_x) = (leaf(), leaf());
        let y = module.forward(&x).unwrap();
        let plain_y = applied(&plain.forward(&plain_x).unwrap(), activation).unwrap();
        close(&y, &plain_y, "y");
        for y in [&y, &plain_y] {
            y.mul(&factor).unwrap().sum().unwrap().backward().unwrap();
        }
        close(&x.grad().unwrap(), &plain_x.grad().unwrap(), "x");
        close(&bias.grad().unwrap(), &plain_bias.grad().unwrap(), "bias");
        let sign = engine.tensor(&[1.0, -1.0, 1.0], [3]).unwrap();
        let signed = plain_weight.grad().unwrap().mul(&sign).unwrap();
        close(&weight.grad().unwrap(), &signed, "weight");
        let mean = plain.running_mean.as_ref().unwrap();
        close(&module.running_mean, mean, "mean");
        let var = plain.running_var.as_ref().unwrap();
        close(&module.running_var, var, "var");
        module.eval();
        plain.eval();
        let y = module.forward(&x).unwrap();
        let plain_y = applied(&plain.forward(&plain_x).unwrap(), activation).unwrap();
        close(&y, &plain_y, "in evaluation");
    }
}

#[test]
fn gradients_are_differences() {
    let engine = engine();
    let numbers = |count: usize, from: f64| -> Vec<f64> {
        (0..count).map(|i| (i as f64 * 0.73 + from).sin()).collect()
    };
    for activation in ACTIVATIONS {
        let x = Tensor::from_slice(&engine, &numbers(24, 0.3), [4, 2, 3]).unwrap();
        let weight = Tensor::from_slice(&engine, &[0.7, -1.2], [2]).unwrap();
        let bias = Tensor::from_slice(&engine, &[0.2, -0.1], [2]).unwrap();
        let f = |x: &[Tensor]| {
            let weight = x[1].abs()?.add_scalar(1e-5)?;
            let [y, ..] = x[0].inplace_abn(Some((&weight, &x[2])), 1e-5, activation)?;
            y.mul(&y)
        };
        gradcheck(f, &[x, weight, bias], GradcheckOptions::default()).unwrap();
    }
}

fn conv(engine: &Engine) -> Conv2d {
    let settings = ConvSettings {
        padding: [1; 2],
        ..ConvSettings::default()
    };
    Conv2d::new(engine, 8, 8, [3; 2], settings, false).unwrap()
}

/// One step of six convolutions with norms: the bytes of its arena where nothing is computed again.
fn bytes_of_a_step(norm: impl Fn(&Engine, &Tensor) -> (Tensor, Vec<Parameter>)) -> u64 {
    let engine = engine();
    let mut x = Tensor::randn(&engine, [4, 8, 32, 32]).unwrap();
    let mut parameters = Vec::new();
    for _ in 0..6 {
        let conv = conv(&engine);
        x = conv.forward(&x).unwrap();
        parameters.extend(conv.parameters());
        let (y, more) = norm(&engine, &x);
        (x, parameters) = (y, [parameters, more].concat());
    }
    x.square().unwrap().mean().unwrap().backward().unwrap();
    let mut optimizer = Sgd::new(parameters, SgdOptions::default()).unwrap();
    optimizer.step().unwrap();
    let report = engine.last_step();
    assert_eq!(report.recomputed_nodes, 0);
    report.peak_arena_bytes
}

/// Of each norm a tensor less is held, and nothing is computed again for it.
#[test]
fn holds_less_than_a_norm_and_an_activation() {
    let plain = bytes_of_a_step(|engine, x| {
        let norm = BatchNorm2d::new(engine, 8, BatchNormOptions::default()).unwrap();
        let y = norm.forward(x).unwrap().leaky_relu(0.01).unwrap();
        (y, norm.parameters())
    });
    let in_place = bytes_of_a_step(|engine, x| {
        let norm = InPlaceAbn::new(engine, 8, InPlaceAbnOptions::default()).unwrap();
        (norm.forward(x).unwrap(), norm.parameters())
    });
    let tensor: u64 = 4 * 8 * 32 * 32 * 4;
    assert!(
        in_place + 4 * tensor < plain,
        "{in_place} bytes, and {plain} of the plain composition"
    );
}

/// Its gradient has none, and says so.
#[test]
fn has_no_second_gradient() {
    let engine = engine();
    let numbers: Vec<f32> = (0..24).map(|i| (i as f32).sin()).collect();
    let x = engine.tensor(&numbers, [4, 2, 3]).unwrap();
    let x = x.requires_grad_().unwrap();
    let [y, ..] = x.inplace_abn(None, 1e-5, ACTIVATIONS[0]).unwrap();
    let options = highwater::GradOptions {
        create_graph: true,
        ..Default::default()
    };
    let y = y.square().unwrap().sum().unwrap();
    let slope = highwater::grad_with(&[&y], &[&x], options)
        .unwrap()
        .remove(0);
    let slope = slope.square().unwrap().sum().unwrap();
    let error = slope.backward().unwrap_err().to_string();
    assert!(error.contains("inplace_abn"), "{error}");
}
