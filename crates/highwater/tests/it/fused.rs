//! Pointwise nodes that run as one: the same bits as one by one, and never more memory.

use crate::models::Random;
use crate::share::{one_of, some};
use highwater::op::DType;
use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::{
    Builder, Engine, Error, GradOptions, Parameter, Result, Tensor, eval, grad_of_used,
};

const PAGE: u64 = 4096;

fn numbers(choices: &mut Random, count: usize) -> Vec<f32> {
    let number = |_| (choices.below(4001) as f32 - 2000.0) / 1000.0;
    (0..count).map(number).collect()
}

/// What a seed's program computes with.
struct Leaves {
    shape: [usize; 2],
    floats: DType,
    /// Of the whole shape, or broadcast to it.
    all: Vec<Tensor>,
}

/// Shapes that broadcast to a whole one.
fn shapes([rows, columns]: [usize; 2]) -> [Vec<usize>; 5] {
    [
        vec![rows, columns],
        vec![rows, columns],
        vec![columns],
        vec![rows, 1],
        vec![],
    ]
}

/// A shape and what it is filled with.
type Data = (Vec<usize>, Vec<f32>);

fn leaf_data(seed: u64) -> ([usize; 2], Vec<Data>) {
    let mut choices = Random(seed);
    let rows = choices.of(&[1, 3, 17, 40, 130]);
    let shape = [rows, choices.of(&[5, 64, 257, 300])];
    let leaf = |shape: Vec<usize>| {
        let numbers = numbers(&mut choices, shape.iter().product());
        (shape, numbers)
    };
    (shape, shapes(shape).into_iter().map(leaf).collect())
}

/// An operation on the newest values, or on older ones now and then.
fn step(choices: &mut Random, leaves: &Leaves, made: &[Tensor]) -> Result<Tensor> {
    let at = match choices.below(4) {
        0 => choices.below(made.len()),
        _ => made.len() - 1,
    };
    let x = &made[at];
    let other = match choices.below(3) {
        0 => made[choices.below(made.len())].clone(),
        _ => choices.of(&[0, 1, 2, 3, 4].map(|i| &leaves.all[i])).clone(),
    };
    let [rows, columns] = leaves.shape;
    match choices.below(24) {
        0 => x.tanh(),
        1 => x.sigmoid(),
        2 => x.relu(),
        3 => x.silu(),
        4 => x.gelu(),
        5 => x.abs()?.neg(),
        6 => x.square()?.mul_scalar(0.25),
        7 => x.add_scalar(0.5)?.clamp(-1.5, 1.5),
        8 | 9 => x.add(&other),
        10 => x.sub(&other),
        11..=13 => x.mul(&other)?.tanh(),
        14 => x.maximum(&other),
        15 => Tensor::where_(&x.gt(&other)?, x, &other.mul_scalar(0.5)?),
        16 => {
            let to = choices.of(&[DType::F32, DType::BF16, DType::F16]);
            x.to_dtype(to)?.sigmoid()?.to_dtype(leaves.floats)
        }
        // A view of what was made.
        17 => x.t()?.tanh()?.t(),
        18 => x.mul(&x.narrow(0, rows / 2, 1)?),
        // What is no chain.
        19 => x.sub(&x.mean_dims(&[1], true)?),
        20 => x.softmax(),
        21 => x.matmul(&x.t()?.matmul(x)?)?.mul_scalar(0.01)?.tanh(),
        22 => x.flip(&[1])?.mul(&x.sigmoid()?),
        _ => x
            .reshape([columns, rows])?
            .exp()?
            .neg()?
            .reshape([rows, columns])?
            .sigmoid(),
    }
}

/// The values of a program, the last of which are a loss's.
fn values(seed: u64, leaves: &Leaves) -> Result<(Vec<Tensor>, Tensor)> {
    let mut choices = Random(seed ^ 0xf05e);
    let mut made = vec![leaves.all[0].add(&leaves.all[1])?];
    for _ in 0..4 + choices.below(16) {
        let next = step(&mut choices, leaves, &made)?;
        made.push(next);
    }
    let last = made[made.len() - 1].to_dtype(DType::F32)?.mean()?;
    let loss = last.add(
        &made[made.len() / 2]
            .to_dtype(DType::F32)?
            .square()?
            .mean()?,
    )?;
    let read = made.len() - 1 - choices.below(3);
    let outputs = made.split_off(read);
    Ok((outputs, loss))
}

/// Bits of values and gradients, read one after the other.
fn evaluate(builder: Builder, seed: u64) -> Result<Vec<u32>> {
    let engine = builder.prices(0).build()?;
    let (shape, data) = leaf_data(seed);
    let floats = [DType::F32, DType::BF16, DType::F16][(seed % 3) as usize];
    let given = |(shape, data): &Data| -> Result<Tensor> {
        Tensor::from_slice(&engine, data, &shape[..])?.requires_grad_()
    };
    let given: Vec<Tensor> = data.iter().map(given).collect::<Result<_>>()?;
    let mut all = Vec::new();
    for leaf in &given {
        all.push(leaf.to_dtype(floats)?);
    }
    // One that lies the other way round, and a part of a larger one.
    all[1] = all[1].t()?.contiguous()?.t()?;
    let leaves = Leaves { shape, floats, all };
    let (outputs, loss) = values(seed, &leaves)?;
    drop(leaves);
    let wanted: Vec<&Tensor> = given.iter().collect();
    let grads = grad_of_used(&[&loss], &wanted, GradOptions::default())?;
    let read = outputs.into_iter().chain(grads.into_iter().flatten());
    let read: Vec<Tensor> = read.map(Tensor::keep).collect();
    eval(&read)?;
    let mut bits = Vec::new();
    for tensor in &read {
        let tensor = tensor.to_dtype(DType::F32)?.to_vec::<f32>()?;
        bits.extend(tensor.iter().map(|x| x.to_bits()));
    }
    Ok(bits)
}

/// The least budget in which a program runs, whose bits are the `wanted` ones there and with a little more.
fn least_budget(wanted: &[u32], run: impl Fn(u64) -> Result<Vec<u32>>) -> u64 {
    let (mut budget, mut least) = (PAGE, 0);
    for _ in 0..60 {
        match run(budget) {
            Ok(bits) => {
                assert!(bits == wanted, "other bits in {budget}");
                if least > 0 {
                    return least;
                }
                least = budget;
                budget += budget / 8;
            }
            Err(Error::OverBudget { floor_bytes, .. }) if floor_bytes > budget => {
                budget = floor_bytes;
            }
            Err(Error::State { bytes, .. }) => budget += bytes.next_multiple_of(PAGE).max(PAGE),
            Err(error) => panic!("in {budget}: {error}"),
        }
    }
    panic!("the floor rises again and again")
}

/// What some steps of training came to.
struct Trained {
    /// Losses, and the parameters in the end.
    bits: Vec<u32>,
    /// Of the last step's plan.
    arena_bytes: u64,
    recomputed_nodes: u32,
    fused: bool,
}

fn train(builder: Builder, seed: u64) -> Result<Trained> {
    let engine = builder.prices(0).build()?;
    let (shape, data) = leaf_data(seed);
    let parameter = |(shape, data): &Data| {
        Parameter::new(&engine, &shape[..], |to: &mut [f32]| {
            to.copy_from_slice(data);
        })
    };
    let parameters: Vec<Parameter> = data.iter().map(parameter).collect::<Result<_>>()?;
    let options = SgdOptions {
        lr: 1e-2,
        momentum: 0.9,
        ..SgdOptions::default()
    };
    let mut optimizer = Sgd::new(parameters.clone(), options)?;
    let mut bits = Vec::new();
    for _ in 0..3 {
        let leaves = Leaves {
            shape,
            floats: DType::F32,
            all: parameters
                .iter()
                .map(|parameter| (**parameter).clone())
                .collect(),
        };
        let (_, loss) = values(seed, &leaves)?;
        if seed.is_multiple_of(4) {
            bits.push(loss.item()?.to_bits());
        }
        loss.backward()?;
        optimizer.step()?;
        bits.push(loss.item()?.to_bits());
    }
    for parameter in &parameters {
        bits.extend(parameter.to_vec::<f32>()?.iter().map(|x| x.to_bits()));
    }
    let report = engine.last_step();
    let fused = engine
        .profile()
        .iter()
        .any(|row| row.op.starts_with("fused("));
    Ok(Trained {
        bits,
        arena_bytes: report.planned_arena_bytes,
        recomputed_nodes: report.recomputed_nodes,
        fused,
    })
}

/// What is no more than so many bytes, packed: that may lose 0.2%.
fn packed(bytes: u64) -> u64 {
    bytes + bytes / 500
}

#[test]
fn values_and_gradients_are_the_same_merged_or_not() {
    for seed in some(0..60) {
        let wanted = evaluate(Engine::builder().fuse(false).threads(1), seed).unwrap();
        for builder in [
            Engine::eager(),
            Engine::builder().threads(1),
            Engine::builder().threads(3),
        ] {
            let bits = evaluate(builder, seed).unwrap();
            assert!(bits == wanted, "seed {seed}: other bits");
        }
        if seed.is_multiple_of(15) {
            least_budget(&wanted, |budget| {
                evaluate(Engine::builder().arena(budget), seed)
            });
        }
    }
}

/// What runs apart in a budget does so as it is by default.
fn fits_if_apart(bits: &[u32], seed: u64) {
    let builder = |budget| Engine::builder().threads(1).arena(budget);
    let floor = least_budget(bits, |budget| {
        train(builder(budget).fuse(false), seed).map(|trained| trained.bits)
    });
    let least = train(builder(floor), seed).unwrap();
    assert!(least.bits == bits, "seed {seed}: other bits in {floor}");
}

/// Programs whose least plan with merged nodes takes more, by a page or by a fifth.
#[test]
fn where_merged_nodes_do_not_fit_they_run_one_by_one() {
    for seed in some([
        5052, 5098, 5102, 5112, 5254, 5263, 5269, 5289, 5324, 6063, 6091,
    ]) {
        let apart = train(Engine::builder().fuse(false), seed).unwrap();
        fits_if_apart(&apart.bits, seed);
    }
}

/// The update of a weight comes between the product that reads it last and the gradient of `tanh`, so that
/// what the latter reads can be made again after it.
#[test]
fn an_update_may_come_between_two_nodes() {
    let run = |builder: Builder| -> Result<Vec<u32>> {
        let engine = builder.threads(1).prices(0).build()?;
        let leaf = |shape: &[usize], seed| {
            Parameter::new(&engine, shape, |to: &mut [f32]| {
                let count = to.len();
                to.copy_from_slice(&numbers(&mut Random(seed), count));
            })
        };
        let (weight, bias) = (leaf(&[256, 256], 1)?, leaf(&[256], 2)?);
        let x = leaf(&[256, 256], 3)?;
        x.set_requires_grad(false);
        let mut sgd = Sgd::new(vec![weight.clone(), bias.clone()], SgdOptions::default())?;
        let mut losses = Vec::new();
        for _ in 0..3 {
            let h = x.add(&bias)?.tanh()?;
            let y = weight.mul(&h)?;
            let loss = y.square()?.mean()?;
            drop((h, y));
            loss.backward()?;
            sgd.step()?;
            losses.push(loss.item()?.to_bits());
        }
        Ok(losses)
    };
    let apart = run(Engine::builder().fuse(false)).unwrap();
    let floors = [true, false].map(|fuse| {
        least_budget(&apart, |budget| {
            run(Engine::builder().fuse(fuse).arena(budget))
        })
    });
    assert!(floors[0] <= floors[1], "{floors:?}");
}

#[test]
fn steps_of_training_are_the_same_in_no_more_memory() {
    let (mut fused, mut less) = (0, 0);
    for seed in some(1000..1120) {
        let apart = train(Engine::builder().fuse(false).threads(2), seed).unwrap();
        let merged = train(Engine::builder().threads(2), seed).unwrap();
        assert!(
            !apart.fused && merged.bits == apart.bits,
            "seed {seed}: other bits"
        );
        fused += usize::from(merged.fused);
        // What is read before the end is another plan.
        if seed.is_multiple_of(4) {
            continue;
        }
        let [most, bytes] = [apart.arena_bytes, merged.arena_bytes];
        // What recomputes is another plan than one that keeps all.
        let kept = apart.recomputed_nodes == 0;
        assert!(
            !kept || bytes <= packed(most),
            "seed {seed}: {bytes} where {most} did"
        );
        less += usize::from(bytes < most);
        if seed.is_multiple_of(3) {
            fits_if_apart(&apart.bits, seed);
        }
    }
    assert!(
        fused * one_of() > 60 && (less > 0 || one_of() > 1),
        "{fused} programs with merged nodes, {less} in less memory"
    );
}
