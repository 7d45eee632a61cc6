//! Weights held in half precision: the bits are those of the same numbers held in `F32`, wherever they are.

use crate::models::Random;
use highwater::nn::Linear;
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Builder, DType, Engine, Module, Parameter, Result};
use std::sync::atomic::{AtomicU64, Ordering};

const WIDTH: usize = 256;
const LAYERS: usize = 4;

/// Numbers that both half types hold exactly.
fn numbers(seed: u64) -> Vec<f32> {
    let values = Random(seed).values(WIDTH * WIDTH);
    values.iter().map(|x| (x * 64.0).round() / 512.0).collect()
}

fn bytes(dtype: DType, values: &[f32]) -> Vec<u8> {
    let half = |x: &f32| match dtype {
        DType::BF16 => half::bf16::from_f32(*x).to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f32(*x).to_le_bytes().to_vec(),
        _ => x.to_le_bytes().to_vec(),
    };
    values.iter().flat_map(half).collect()
}

/// Frozen layers in a type with trained ones between them: losses and trained weights.
fn train(builder: Builder, dtype: DType) -> Result<Vec<u32>> {
    let engine = builder.seed(3).threads(2).build()?;
    let frozen = |i: usize| {
        let source = bytes(dtype, &numbers(i as u64));
        Parameter::frozen(&engine, dtype, [WIDTH, WIDTH], |own| {
            own.copy_from_slice(&source);
        })
    };
    let frozen: Vec<Parameter> = (0..LAYERS).map(frozen).collect::<Result<_>>()?;
    let layer = |_| Linear::new(&engine, WIDTH, WIDTH, true);
    let trained: Vec<Linear> = (0..LAYERS).map(layer).collect::<Result<_>>()?;
    let parameters = trained.iter().flat_map(Module::parameters).collect();
    let mut optimizer = AdamW::new(parameters, AdamWOptions::default())?;
    let mut bits = Vec::new();
    for step in 0..3 {
        let data = Random(100 + step).values(8 * WIDTH);
        let mut x = engine.tensor(&data, [8, WIDTH])?;
        for (weight, layer) in frozen.iter().zip(&trained) {
            x = x.matmul(&weight.to_dtype(DType::F32)?)?;
            x = layer.forward(&x)?.gelu()?;
        }
        let loss = x.mul(&x)?.mean()?;
        loss.backward()?;
        optimizer.step()?;
        bits.push(loss.item()?.to_bits());
    }
    for layer in &trained {
        bits.extend(layer.weight.to_vec::<f32>()?.iter().map(|x| x.to_bits()));
    }
    Ok(bits)
}

#[test]
fn frozen_weights_may_be_held_in_half_precision_anywhere() {
    let expected = train(Engine::builder(), DType::F32).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for dtype in [DType::BF16, DType::F16] {
        assert_eq!(train(Engine::builder(), dtype).unwrap(), expected);
        for mib in [2, 3, 5] {
            let small = || Engine::builder().arena(mib << 20);
            let disk = small().disk(folder.path(), 64 << 20).on_plan(count);
            assert_eq!(train(disk, dtype).unwrap(), expected, "{mib} MiB");
            let read_only = || small().disk(folder.path(), 64 << 20).forbid_disk_writes();
            // What is trained stays in memory then: 4 MiB of weights and moments.
            let fits = train(read_only(), dtype);
            assert!(fits.is_err() || fits.unwrap() == expected, "{mib} MiB");
        }
    }
    assert!(READ.load(Ordering::Relaxed) > 0);
}

static READ: AtomicU64 = AtomicU64::new(0);

fn count(_: &highwater::plan::Problem, plan: &highwater::plan::Plan) {
    READ.fetch_add(plan.disk.read_bytes, Ordering::Relaxed);
}

/// Trained weights in `F32` that are cast where they are used, with everything between them in a type:
/// losses and trained weights.
fn train_in(builder: Builder, dtype: DType) -> Result<Vec<f32>> {
    let engine = builder.seed(3).threads(2).build()?;
    let layer = |_| Linear::new(&engine, WIDTH, WIDTH, true);
    let layers: Vec<Linear> = (0..LAYERS).map(layer).collect::<Result<_>>()?;
    let parameters = layers.iter().flat_map(Module::parameters).collect();
    let mut optimizer = AdamW::new(parameters, AdamWOptions::default())?;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let data = Random(100).values(64 * WIDTH);
        let mut x = engine.tensor(&data, [64, WIDTH])?.to_dtype(dtype)?;
        for layer in &layers {
            let bias = layer.bias.as_ref().map(|bias| bias.to_dtype(dtype));
            let y = x.linear(&layer.weight.to_dtype(dtype)?, bias.transpose()?.as_ref())?;
            x = x.add(&y.gelu()?)?.softmax()?;
        }
        let loss = x.to_dtype(DType::F32)?.mul_scalar(16.0)?.square()?.mean()?;
        loss.backward()?;
        optimizer.step()?;
        seen.push(loss.item()?);
    }
    for layer in &layers {
        seen.extend(layer.weight.to_vec::<f32>()?);
    }
    Ok(seen)
}

#[test]
fn training_in_half_precision_has_the_same_bits_in_any_arena() {
    let close = train_in(Engine::builder(), DType::F32).unwrap();
    for (dtype, digits) in [(DType::BF16, 0.03), (DType::F16, 0.004)] {
        let expected = train_in(Engine::builder(), dtype).unwrap();
        for (half, whole) in expected.iter().zip(&close).take(4) {
            assert!(
                (half - whole).abs() <= digits * whole.abs(),
                "{half} beside {whole}"
            );
        }
        assert_ne!(expected, close);
        for kib in [5_500, 6_000, 8_000] {
            let small = Engine::builder().arena(kib << 10);
            assert_eq!(train_in(small, dtype).unwrap(), expected, "{kib} KiB");
        }
    }
}
