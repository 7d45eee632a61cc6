//! Gradients of gradients beside PyTorch's and beside differences, and a penalty on gradients that trains a
//! critic: see `fixtures/make_second.py`.

use highwater::nn::{BatchNorm2d, BatchNormOptions, Conv2d, ConvSettings, Linear, Module};
use highwater::prelude::*;
use highwater::{GradOptions, GradcheckOptions, grad_of_used, grad_with, gradgradcheck};
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::path::Path;

const CREATE: GradOptions<'static> = GradOptions {
    grad_outputs: None,
    create_graph: true,
};

const LABELS: [i64; 5] = [2, 0, -100, 6, 3];

fn engine() -> Engine {
    Engine::builder().memory(256 << 20).build().unwrap()
}

struct Fixture {
    file: Vec<u8>,
    case: &'static str,
    engine: Engine,
}

impl Fixture {
    fn new(case: &'static str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/second.safetensors");
        Self {
            file: std::fs::read(path).unwrap(),
            case,
            engine: engine(),
        }
    }

    fn find(&self, name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
        let tensors = SafeTensors::deserialize(&self.file).unwrap();
        let view = tensors.tensor(&format!("{}.{name}", self.case)).ok()?;
        let (chunks, _) = view.data().as_chunks();
        let numbers = chunks.iter().map(|&chunk| f32::from_le_bytes(chunk));
        Some((view.shape().to_vec(), numbers.collect()))
    }

    fn tensor(&self, name: &str) -> Tensor {
        let (shape, numbers) = self.find(name).expect(name);
        self.engine.tensor(&numbers, shape).unwrap()
    }

    fn close(&self, name: &str, got: Option<&Tensor>) {
        let (_, expected) = self.find(name).expect(name);
        let got = got.map_or_else(|| vec![0.0; expected.len()], |got| got.to_vec().unwrap());
        assert_eq!(got.len(), expected.len(), "{}.{name}", self.case);
        let size = expected.iter().fold(1.0_f32, |size, x| size.max(x.abs()));
        for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
            assert!(
                (got - expected).abs() <= 2e-5 * size,
                "{}.{name}[{i}]: {got} instead of {expected}",
                self.case
            );
        }
    }
}

/// Both gradients of a function beside PyTorch's.
fn check(case: &'static str, f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let fixture = Fixture::new(case);
    let given = (0..).map_while(|i| {
        let name = format!("input.{i}");
        fixture.find(&name).map(|_| fixture.tensor(&name))
    });
    let inputs: Vec<Tensor> = given.map(|x| x.requires_grad_().unwrap()).collect();
    let u = fixture.tensor("u").requires_grad_().unwrap();
    let references: Vec<&Tensor> = inputs.iter().collect();
    let options = GradOptions {
        grad_outputs: Some(&[&u]),
        create_graph: true,
    };
    let first = grad_with(&[&f(&inputs).unwrap()], &references, options).unwrap();
    let mut total = None;
    for (i, grad) in first.iter().enumerate() {
        fixture.close(&format!("first.{i}"), Some(grad));
        let part = grad.mul(&fixture.tensor(&format!("h.{i}"))).unwrap();
        let part = part.sum().unwrap();
        total = Some(match total {
            None => part,
            Some(total) => part.add(&total).unwrap(),
        });
    }
    let wanted: Vec<&Tensor> = references.into_iter().chain([&u]).collect();
    let second = grad_of_used(&[&total.unwrap()], &wanted, GradOptions::default()).unwrap();
    let (of_u, second) = second.split_last().unwrap();
    fixture.close("second.u", of_u.as_ref());
    for (i, grad) in second.iter().enumerate() {
        fixture.close(&format!("second.{i}"), grad.as_ref());
    }
}

/// Second gradients in `F64` beside differences.
fn differences(shapes: &[&[usize]], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let engine = engine();
    let inputs: Vec<Tensor> = (shapes.iter().enumerate())
        .map(|(k, &shape)| {
            let count: usize = shape.iter().product();
            let one = |i: usize| ((i * 7 + k * 3 + 1) as f64 * 0.83).sin() * 1.3;
            let numbers: Vec<f64> = (0..count).map(one).collect();
            Tensor::from_slice(&engine, &numbers, shape).unwrap()
        })
        .collect();
    gradgradcheck(f, &inputs, GradcheckOptions::default()).unwrap();
}

#[test]
fn cross_entropy() {
    let mean = |x: &[Tensor]| x[0].cross_entropy(&Tensor::from_slice(x[0].engine(), &LABELS, [5])?);
    check("cross_entropy", mean);
    differences(&[&[5, 7]], mean);
}

#[test]
fn norms_of_channels() {
    let channels: [&[usize]; 3] = [&[4, 3, 5, 2], &[3], &[3]];
    let batch = |x: &[Tensor]| {
        let [y, ..] = x[0].batch_norm(Some((&x[1], &x[2])), 1e-5)?;
        Ok(y)
    };
    check("batch_norm", batch);
    differences(&channels, batch);
    differences(&[&[4, 3, 2]], |x| {
        let [y, ..] = x[0].transpose(0, 2)?.batch_norm(None, 1e-3)?;
        Ok(y)
    });
    let inference = |x: &[Tensor]| {
        let constant = |value: f32| {
            x[0].engine()
                .tensor(&[value; 3], [3])?
                .to_dtype(x[0].dtype())
        };
        let statistics = (&constant(0.25)?, &constant(1.5)?);
        x[0].batch_norm_inference(statistics, Some((&x[1], &x[2])), 1e-5)
    };
    check("batch_norm_inference", inference);
    differences(&channels, inference);
    let group = |x: &[Tensor]| x[0].group_norm(2, Some((&x[1], &x[2])), 1e-5);
    check("group_norm", group);
    differences(&[&[3, 4, 5], &[4], &[4]], group);
    let instance = |x: &[Tensor]| x[0].instance_norm(None, 1e-5);
    check("instance_norm", instance);
    differences(&[&[2, 3, 4, 2]], instance);
}

/// The gradient of a gradient of a gradient: statistics have gradients of their own.
#[test]
fn batch_norm_three_times() {
    differences(&[&[4, 2, 3], &[2], &[2]], |x| {
        let [y, ..] = x[0].batch_norm(Some((&x[1], &x[2])), 1e-2)?;
        let y = y.square()?.sum()?;
        let x = grad_with(&[&y], &[&x[0]], CREATE)?.remove(0);
        x.square()
    });
}

#[test]
fn products() {
    let along = |x: &[Tensor]| x[0].prod_dim(1, false);
    let all = |x: &[Tensor]| x[0].prod();
    check("prod", along);
    check("prod_all", all);
    differences(&[&[3, 4]], along);
    differences(&[&[3, 2]], |x| x[0].transpose(0, 1)?.prod());
    differences(&[&[3, 4]], |x| x[0].prod_dim(0, true));
}

#[test]
fn attention() {
    let plain = |x: &[Tensor]| x[0].scaled_dot_product_attention(&x[1], &x[2], false);
    let causal = |x: &[Tensor]| x[0].scaled_dot_product_attention(&x[1], &x[2], true);
    check("attention", plain);
    check("attention_causal", causal);
    let shapes: [&[usize]; 3] = [&[1, 4, 5, 3], &[1, 2, 5, 3], &[1, 2, 5, 3]];
    differences(&shapes, causal);
    differences(&shapes, |x| x[0].sliding_window_attention(&x[1], &x[2], 2));
    differences(&shapes, |x| {
        let lengths = x[0].engine().indices(&[2, 1], [1, 2])?;
        x[0].document_attention(&x[1], &x[2], &lengths, true, None)
    });
    // The thirds of one packed projection.
    differences(&[&[2, 4, 3, 6]], |x| {
        let third = |i| x[0].narrow(2, i, 1)?.reshape([2, 4, 2, 3])?.transpose(1, 2);
        third(0)?.scaled_dot_product_attention(&third(1)?, &third(2)?, true)
    });
}

#[derive(Debug, Module)]
struct Critic {
    #[module(rename = "0")]
    first: Conv2d,
    #[module(rename = "1")]
    first_norm: BatchNorm2d,
    #[module(rename = "3")]
    second: Conv2d,
    #[module(rename = "4")]
    second_norm: BatchNorm2d,
    #[module(rename = "7")]
    last: Linear,
}

impl Critic {
    fn new(engine: &Engine) -> Result<Self> {
        let settings = |stride| ConvSettings {
            stride: [stride; 2],
            padding: [1; 2],
            ..ConvSettings::default()
        };
        let norm = || BatchNorm2d::new(engine, 8, BatchNormOptions::default());
        Ok(Self {
            first: Conv2d::new(engine, 3, 8, [3, 3], settings(1), true)?,
            first_norm: norm()?,
            second: Conv2d::new(engine, 8, 8, [4, 4], settings(2), true)?,
            second_norm: norm()?,
            last: Linear::new(engine, 128, 1, true)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.first_norm.forward(&self.first.forward(x)?)?;
        let x = self.second.forward(&x.leaky_relu(0.2)?)?;
        let x = self.second_norm.forward(&x)?.leaky_relu(0.2)?;
        self.last.forward(&x.flatten(1, 3)?)
    }

    /// The loss of WGAN-GP.
    fn loss(&self, real: &Tensor, fake: &Tensor, share: &Tensor) -> Result<Tensor> {
        let between = fake.add(&real.sub(fake)?.mul(share)?)?;
        let engine = between.engine();
        let between = engine.tensor(&between.to_vec::<f32>()?, between.shape().clone())?;
        let between = between.requires_grad_()?;
        let score = self.forward(&between)?.sum()?;
        let slope = grad_with(&[&score], &[&between], CREATE)?.remove(0);
        let length = slope
            .flatten(1, 3)?
            .square()?
            .sum_dims(&[1], false)?
            .sqrt()?;
        let penalty = length.sub_scalar(1.0)?.square()?.mean()?;
        let distance = self
            .forward(fake)?
            .mean()?
            .sub(&self.forward(real)?.mean()?)?;
        distance.add(&penalty.mul_scalar(10.0)?)
    }
}

/// The loss of WGAN-GP through batch norms, its gradients and running statistics.
#[test]
fn a_critic_with_batch_norms_is_pytorchs() {
    let fixture = Fixture::new("critic");
    let critic = Critic::new(&fixture.engine).unwrap();
    let values: BTreeMap<String, Vec<f32>> = (critic.named_parameters().into_iter())
        .map(|(name, _)| {
            let numbers = fixture.find(&format!("param.{name}")).expect(&name).1;
            (name, numbers)
        })
        .collect();
    for (name, parameter) in critic.named_parameters() {
        parameter.copy_from_slice(&values[&name]).unwrap();
    }
    let [real, fake, share] = ["real", "fake", "share"].map(|name| fixture.tensor(name));
    let loss = critic.loss(&real, &fake, &share).unwrap();
    loss.backward().unwrap();
    fixture.close("loss", Some(&loss));
    for (name, parameter) in critic.named_parameters() {
        fixture.close(&format!("grad.{name}"), parameter.grad().as_ref());
    }
    for (name, buffer) in critic.named_buffers() {
        if name.contains("running") {
            fixture.close(&format!("buffer.{name}"), Some(&buffer));
        }
    }
}
