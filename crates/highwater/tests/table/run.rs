//! The same programs on engines.

use crate::interpreter::{interpret, loss, weight};
use crate::program::{From, Input, Numbers, Program, Range};
use highwater::op::DType;
use highwater::{Builder, Engine, Error, Result, Tensor, grad_of_used};
use highwater_ops::{Array, Element};

/// What went wrong.
pub(crate) type Told<T> = std::result::Result<T, String>;

/// How far a value may be off, beside the tolerances of the operations that it comes of.
const SLACK: f64 = 1e-4;

fn engine() -> Engine {
    Engine::builder().memory(1 << 30).build().unwrap()
}

/// A program's leaves and what its steps made, floats in one dtype.
pub(crate) struct Made {
    floats: DType,
    leaves: Vec<Tensor>,
    steps: Vec<Vec<Tensor>>,
}

fn tensor_of<T: Element>(
    engine: &Engine,
    data: &[f64],
    shape: &[usize],
    to: impl Fn(f64) -> T,
) -> Result<Tensor> {
    let data: Vec<T> = data.iter().map(|&x| to(x)).collect();
    Tensor::from_slice(engine, &data, shape)
}

/// `data` as a tensor; floats as `floats`.
pub(crate) fn tensor(
    engine: &Engine,
    (dtype, data): (DType, &[f64]),
    shape: &[usize],
    floats: DType,
) -> Result<Tensor> {
    match dtype {
        DType::F32 if floats == DType::F64 => tensor_of(engine, data, shape, |x| x),
        DType::F32 => tensor_of(engine, data, shape, |x| x as f32),
        DType::I64 => tensor_of(engine, data, shape, |x| x as i64),
        DType::U32 => tensor_of(engine, data, shape, |x| x as u32),
        DType::I16 => tensor_of(engine, data, shape, |x| x as i16),
        DType::U8 => tensor_of(engine, data, shape, |x| x as u8),
        DType::Bool => {
            let data: Vec<bool> = data.iter().map(|&x| x != 0.0).collect();
            Tensor::from_bools(engine, &data, shape)
        }
        _ => unreachable!("no step takes it"),
    }
}

fn input(made: &Made, input: &Input) -> Result<Tensor> {
    let count: usize = input.stored_shape().iter().product();
    let part = |x: &Tensor| x.narrow(0, input.view.start, count);
    let flat = match input.from {
        From::Leaf(leaf) => part(&made.leaves[leaf])?,
        From::Step(step, output) => {
            let from = &made.steps[step][output];
            // Some answer one dtype whatever they are given.
            let from = from.to_dtype(made.floats)?;
            let flat = part(&from.reshape([from.shape().numel()])?)?;
            match Range::of(input.fill) {
                Range::Between(low, high) => {
                    flat.sigmoid()?.mul_scalar(high - low)?.add_scalar(low)?
                }
                Range::Around(scale) => flat.tanh()?.mul_scalar(scale)?,
                Range::Is(value) => flat.mul_scalar(0.0)?.add_scalar(value)?,
            }
        }
    };
    let mut seen = flat.reshape(input.stored_shape())?;
    if input.view.is_transposed {
        seen = seen.transpose(-1, -2)?;
    }
    match input.view.expanded {
        Some(_) => seen.expand(&input.shape[..]),
        None => Ok(seen),
    }
}

/// Runs a program's steps on leaves.
pub(crate) fn steps(program: &Program, floats: DType, leaves: Vec<Tensor>) -> Result<Made> {
    let mut made = Made {
        floats,
        leaves,
        steps: Vec::new(),
    };
    for step in &program.steps {
        let inputs: Result<Vec<Tensor>> = step.inputs.iter().map(|of| input(&made, of)).collect();
        let inputs = inputs?;
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let outputs = Tensor::apply_shared(std::sync::Arc::clone(&step.op), &inputs)?;
        made.steps.push(outputs.into_vec());
    }
    Ok(made)
}

fn leaves(program: &Program, engine: &Engine, floats: DType) -> Result<Vec<Tensor>> {
    let leaf = |leaf: &crate::program::Leaf| {
        let shape = [leaf.data.len()];
        let tensor = tensor(engine, (leaf.dtype, &leaf.data), &shape, floats)?;
        if leaf.dtype.is_float() {
            tensor.requires_grad_()
        } else {
            Ok(tensor)
        }
    };
    program.leaves.iter().map(leaf).collect()
}

/// The sum of all floats, each squashed and times a number of its own.
pub(crate) fn loss_of(program: &Program, made: &Made) -> Result<Option<Tensor>> {
    let mut sum: Option<Tensor> = None;
    for (step, outputs) in program.steps.iter().zip(&made.steps) {
        for (output, (dtype, shape)) in outputs.iter().zip(&step.outputs) {
            if !dtype.is_float() {
                continue;
            }
            let weights: Vec<f64> = (0..shape.iter().product()).map(weight).collect();
            let output = output.to_dtype(made.floats)?;
            let weights = tensor(output.engine(), (DType::F32, &weights), shape, made.floats)?;
            let part = output.tanh()?.mul(&weights)?.sum()?;
            sum = Some(match sum {
                Some(sum) => sum.add(&part)?,
                None => part,
            });
        }
    }
    Ok(sum)
}

/// Compares all values; answers how many.
pub(crate) fn compare_values(program: &Program) -> Told<usize> {
    let data: Vec<Vec<f64>> = program
        .leaves
        .iter()
        .map(|leaf| leaf.data.clone())
        .collect();
    let expected = interpret(program, &data);
    let engine = engine();
    let told = |error: Error| error.to_string();
    let made = leaves(program, &engine, DType::F32)
        .and_then(|leaves| steps(program, DType::F32, leaves))
        .map_err(told)?;
    let mut compared = 0;
    // Steps are as wrong as what they are made of, and some make that larger.
    let mut tolerance = SLACK;
    for ((step, outputs), expected) in program.steps.iter().zip(&made.steps).zip(expected) {
        let mut inputs = step.inputs.iter();
        let is_exact = inputs.all(|input| matches!(input.from, From::Leaf(_)));
        tolerance = 20.0 * tolerance.max(step.tolerance);
        for (got, expected) in outputs.iter().zip(expected) {
            compared += compare(got, &expected, tolerance, is_exact)
                .map_err(|what| format!("{}: {what}", step.op.name()))?;
        }
        if is_exact {
            tolerance = SLACK;
        }
    }
    Ok(compared)
}

/// `is_exact`: what it is made of is what the reference has.
fn compare(got: &Tensor, expected: &Array, tolerance: f64, is_exact: bool) -> Told<usize> {
    if got.dtype() == DType::I64 && is_exact {
        let got = got.to_vec::<i64>().map_err(|error| error.to_string())?;
        let same = got
            .iter()
            .zip(&expected.data)
            .all(|(&got, &expected)| got as f64 == expected);
        return if same {
            Ok(got.len())
        } else {
            Err(format!("{got:?} instead of {expected:?}"))
        };
    }
    // Whole numbers may change by one where what they come of is a rounding off.
    if got.dtype() != DType::F32 {
        return Ok(0);
    }
    let got = got.to_vec::<f32>().map_err(|error| error.to_string())?;
    for (i, (got, expected)) in got.iter().zip(&expected.data).enumerate() {
        let got = f64::from(*got);
        let is_close = (got - expected).abs() <= tolerance * (1.0 + expected.abs());
        let is_same = is_close || got == *expected || got.is_nan() && expected.is_nan();
        if !is_same {
            return Err(format!(
                "{got} instead of {expected} at {i}, within {tolerance}"
            ));
        }
    }
    Ok(got.len())
}

/// Compares some gradients, of each float leaf, with differences; answers how many.
pub(crate) fn compare_gradients(program: &Program) -> Told<usize> {
    let engine = engine();
    let grads = match gradients(program, &engine) {
        Ok(grads) => grads,
        Err(error) if is_not_differentiable(&error) || is_of_one_dtype(&error) => return Ok(0),
        Err(error) => return Err(error.to_string()),
    };
    let mut data: Vec<Vec<f64>> = program
        .leaves
        .iter()
        .map(|leaf| leaf.data.clone())
        .collect();
    let mut numbers = Numbers(data.len() as u64);
    let mut compared = 0;
    for (leaf, grad) in grads {
        for _ in 0..4.min(grad.len()) {
            let at = numbers.below(grad.len());
            let mut slope = |step: f64| {
                let before = data[leaf][at];
                let mut moved = |to: f64| {
                    data[leaf][at] = to;
                    loss(program, &data)
                };
                let slope = (moved(before + step) - moved(before - step)) / (2.0 * step);
                data[leaf][at] = before;
                slope
            };
            let slopes = [1e-4, 1e-5, 1e-6].map(&mut slope);
            // At a corner, a tie or a jump there is no derivative to compare with.
            let spread = |a: f64, b: f64| (a - b).abs() / (1.0 + a.abs());
            let is_smooth =
                spread(slopes[0], slopes[1]) < 1e-3 && spread(slopes[1], slopes[2]) < 1e-3;
            if !is_smooth {
                continue;
            }
            compared += 1;
            let off = spread(slopes[1], grad[at]);
            if off.is_nan() || off > 5e-3 {
                return Err(format!(
                    "the gradient of leaf {leaf} at {at} is {}, and differences say {slopes:?}",
                    grad[at]
                ));
            }
        }
    }
    Ok(compared)
}

pub(crate) fn is_not_differentiable(error: &Error) -> bool {
    error.to_string().contains("has no gradient")
}

/// Some operations have tables or scales of `f32` beside floats of any dtype.
fn is_of_one_dtype(error: &Error) -> bool {
    error.to_string().contains("expected dtype")
}

/// The gradients of the float leaves that the loss depends on, in `f64`.
fn gradients(program: &Program, engine: &Engine) -> Result<Vec<(usize, Vec<f64>)>> {
    let made = steps(program, DType::F64, leaves(program, engine, DType::F64)?)?;
    let Some(loss) = loss_of(program, &made)? else {
        return Ok(Vec::new());
    };
    if !loss.requires_grad()? {
        return Ok(Vec::new());
    }
    let floats: Vec<usize> = (0..program.leaves.len())
        .filter(|&i| program.leaves[i].dtype.is_float())
        .collect();
    let inputs: Vec<&Tensor> = floats.iter().map(|&i| &made.leaves[i]).collect();
    let grads = grad_of_used(&[&loss], &inputs, highwater::GradOptions::default())?;
    let found = floats.into_iter().zip(grads);
    found
        .filter_map(|(leaf, grad)| grad.map(|grad| (leaf, grad)))
        .map(|(leaf, grad)| Ok((leaf, grad.to_vec::<f64>()?)))
        .collect()
}

/// Loss and gradients in `f32`, as bits.
fn bits(program: &Program, engine: &Engine) -> Result<Vec<u32>> {
    let leaves = leaves(program, engine, DType::F32)?;
    let made = steps(program, DType::F32, leaves)?;
    let Some(loss) = loss_of(program, &made)? else {
        return Ok(Vec::new());
    };
    let Made { leaves, steps, .. } = made;
    drop(steps);
    if loss.requires_grad()? {
        loss.backward()?;
    }
    let mut bits = vec![loss.item()?.to_bits()];
    for grad in leaves.iter().filter_map(Tensor::grad) {
        bits.extend(grad.to_vec::<f32>()?.iter().map(|x| x.to_bits()));
    }
    Ok(bits)
}

/// Runs a program with plenty, then in its least budget and a little more; answers in how many budgets.
pub(crate) fn compare_budgets(program: &Program) -> Told<usize> {
    let plenty = match bits(program, &engine()) {
        Ok(bits) => bits,
        Err(error) if is_not_differentiable(&error) => return Ok(0),
        Err(error) => return Err(error.to_string()),
    };
    in_least_budgets(&plenty, |builder| bits(program, &builder.build()?))
}

/// Finds the least arena in which a run is not refused; there, and in two larger ones, it is to answer what it
/// did with `plenty`.
pub(crate) fn in_least_budgets(
    plenty: &[u32],
    run: impl Fn(Builder) -> Result<Vec<u32>>,
) -> Told<usize> {
    let page = 4096;
    let mut budget = page;
    let mut ran = 0;
    for _ in 0..60 {
        budget = match run(Engine::builder().prices(0).arena(budget)) {
            Ok(bits) if bits == plenty => {
                ran += 1;
                if ran == 3 {
                    return Ok(ran);
                }
                budget + 2 * page
            }
            Ok(_) => return Err(format!("other bits in {budget}")),
            Err(Error::OverBudget { floor_bytes, .. }) if floor_bytes > budget => floor_bytes,
            Err(Error::State { bytes, .. }) => budget + bytes.next_multiple_of(page).max(page),
            Err(error) => return Err(format!("in {budget}: {error}")),
        };
    }
    Err("the floor rises again and again".into())
}
