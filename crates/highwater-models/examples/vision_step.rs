//! Steps of a model of images on made-up pictures, one line of JSON each: what `benches/pytorch/vision.py` sets
//! beside PyTorch's.
//!
//! `vision_step MODEL [--batch 16] [--size 224] [--steps 4] [--threads 2] [--memory MIB] [--arena MIB]
//! [--profile]`; the last line tells memory, and with `--profile` a line for each operation goes before it.

#![expect(clippy::print_stdout, reason = "a table for people and scripts")]

use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::{Engine, Tensor};
use highwater_models::vision::image_model;
use std::error::Error;
use std::time::Instant;

const CLASSES: usize = 1000;

/// What the command line says.
struct Options {
    model: String,
    batch: usize,
    size: usize,
    steps: usize,
    threads: usize,
    memory: Option<u64>,
    arena: Option<u64>,
    profile: bool,
}

impl Options {
    fn parse() -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            model: "resnet50".into(),
            batch: 16,
            size: 224,
            steps: 4,
            threads: 2,
            memory: None,
            arena: None,
            profile: false,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut number = || -> Result<u64, Box<dyn Error>> {
                let value = args.next().ok_or("a flag lacks its value")?;
                Ok(value.parse()?)
            };
            match arg.as_str() {
                "--batch" => options.batch = number()? as usize,
                "--size" => options.size = number()? as usize,
                "--steps" => options.steps = number()? as usize,
                "--threads" => options.threads = number()? as usize,
                "--memory" => options.memory = Some(number()? << 20),
                "--arena" => options.arena = Some(number()? << 20),
                "--profile" => options.profile = true,
                _ if !arg.starts_with('-') => options.model = arg,
                _ => return Err(format!("unknown flag {arg}").into()),
            }
        }
        Ok(options)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse()?;
    let mut builder = Engine::builder().threads(options.threads);
    if let Some(bytes) = options.memory {
        builder = builder.memory(bytes);
    }
    if let Some(bytes) = options.arena {
        builder = builder.arena(bytes);
    }
    let engine = builder.build()?;
    let model = image_model(&engine, &options.model, CLASSES, options.size)?
        .ok_or_else(|| format!("no model is called {}", options.model))?;
    let mut sgd = Sgd::new(
        model.parameters(),
        SgdOptions {
            momentum: 0.9,
            ..SgdOptions::default()
        },
    )?;
    sgd.set_lr(0.01)?;
    let shape = [options.batch, 3, options.size, options.size];
    let pixels: Vec<f32> = (0..shape.iter().product::<usize>() as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0)
        .collect();
    let labels: Vec<i64> = (0..options.batch as i64)
        .map(|i| i * 37 % CLASSES as i64)
        .collect();
    for step in 0..options.steps {
        let start = Instant::now();
        let images = engine.tensor(&pixels, shape)?;
        let labels = Tensor::from_slice(&engine, &labels, [options.batch])?;
        let loss: Tensor = model.logits(&images)?.cross_entropy(&labels)?;
        loss.backward()?;
        sgd.step()?;
        sgd.zero_grad();
        let loss = loss.item()?;
        let report = engine.last_step();
        println!(
            "{{\"step\": {step}, \"loss\": {loss}, \"seconds\": {}, \"planning\": {}, \"recomputed\": {}, \
             \"arena\": {}, \"state\": {}, \"process\": {}}}",
            start.elapsed().as_secs_f64(),
            report.choose_seconds,
            report.recomputed_nodes,
            report.planned_arena_bytes,
            report.state_bytes,
            report.planned_process_bytes,
        );
    }
    if options.profile {
        let mut rows = engine.profile();
        rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        for row in rows {
            println!(
                "{{\"op\": \"{}\", \"runs\": {}, \"op_seconds\": {:.4}, \"gflops\": {:.1}, \"gbytes\": {:.1}}}",
                row.op,
                row.runs,
                row.seconds,
                row.flops / row.seconds / 1e9,
                row.bytes / row.seconds / 1e9,
            );
        }
    }
    Ok(())
}
