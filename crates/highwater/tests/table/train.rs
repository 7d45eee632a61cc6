//! Some steps of training a program's leaves: the same bits whenever nodes are computed, and wherever values wait.

use crate::program::{Numbers, Program};
use crate::run::{Told, in_least_budgets, is_not_differentiable, loss_of, steps, tensor};
use highwater::op::DType;
use highwater::optim::{AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions};
use highwater::{Builder, Engine, Parameter, Result, Tensor};
use std::path::Path;

const STEPS: usize = 3;

/// Losses and what the leaves are in the end, as bits.
fn train(program: &Program, engine: &Engine, seed: u64) -> Result<Vec<u32>> {
    let mut parameters = Vec::new();
    let mut leaves: Vec<Tensor> = Vec::new();
    for leaf in &program.leaves {
        let shape = [leaf.data.len()];
        if leaf.dtype.is_float() {
            let fill = |to: &mut [f32]| {
                to.iter_mut()
                    .zip(&leaf.data)
                    .for_each(|(to, &x)| *to = x as f32);
            };
            let parameter = Parameter::new(engine, shape, fill)?;
            leaves.push((*parameter).clone());
            parameters.push(parameter);
        } else {
            leaves.push(tensor(
                engine,
                (leaf.dtype, &leaf.data),
                &shape,
                DType::F32,
            )?);
        }
    }
    let mut choices = Numbers(seed);
    // Small steps: operations are not brought out of the ranges that they take.
    let mut optimizer: Box<dyn Optimizer> = if choices.below(2) == 0 {
        let momentum = [0.0, 0.9][choices.below(2)];
        let options = SgdOptions {
            lr: 1e-4,
            momentum,
            ..SgdOptions::default()
        };
        Box::new(Sgd::new(parameters.clone(), options)?)
    } else {
        let options = AdamWOptions {
            lr: 1e-4,
            ..AdamWOptions::default()
        };
        Box::new(AdamW::new(parameters.clone(), options)?)
    };
    let (early, twice) = (choices.below(3) == 0, choices.below(3) == 0);
    let mut bits = Vec::new();
    for _ in 0..STEPS {
        // Gradients of two backwards add up.
        for _ in 0..=usize::from(twice) {
            let made = steps(program, DType::F32, leaves.clone())?;
            let Some(loss) = loss_of(program, &made)? else {
                return Ok(bits);
            };
            drop(made);
            if early {
                bits.push(loss.item()?.to_bits());
            }
            if !loss.requires_grad()? {
                return Ok(bits);
            }
            loss.backward()?;
            if !early {
                bits.push(loss.item()?.to_bits());
            }
        }
        optimizer.step()?;
    }
    for parameter in &parameters {
        bits.extend(parameter.to_vec::<f32>()?.iter().map(|x| x.to_bits()));
    }
    Ok(bits)
}

/// Trains with plenty, node by node, on three threads, and in the least budgets, beside a disk and not; answers
/// how many runs there were.
pub(crate) fn compare(program: &Program, seed: u64) -> Told<usize> {
    let on = |builder: Builder| {
        let engine = builder.build()?;
        train(program, &engine, seed)
    };
    let plenty = match on(Engine::builder().prices(0).threads(1)) {
        Ok(bits) => bits,
        // Some of a program's losses are not finite: a step that they stop is no training.
        Err(error) if is_not_differentiable(&error) || error.code() == "HW0202" => return Ok(0),
        Err(error) => return Err(error.to_string()),
    };
    for (name, builder) in [
        ("eager", Engine::eager()),
        ("threads", Engine::builder().prices(0).threads(3)),
    ] {
        let bits = on(builder).map_err(|error| format!("{name}: {error}"))?;
        if bits != plenty {
            return Err(format!("other bits: {name}"));
        }
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let ran = in_least_budgets(&plenty, |builder| match seed % 3 {
        0 => on(builder.disk(folder, 16 << 20)),
        _ => on(builder),
    });
    Ok(2 + ran?)
}
