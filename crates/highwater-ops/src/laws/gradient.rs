//! The laws of gradients: what backward emits, against finite differences and with kernels.

use super::data::Numbers;
use super::{Finding, Law, Laws, Trial, compare};
use crate::Array;
use crate::evaluate::{EvaluateError, Values};
use highwater_graph::{Backward, Category, DType, Graph, OpError, Operand, Phase, Site, Spec};
use std::panic::Location;
use std::sync::Arc;

/// Elements of an input whose gradient is compared with finite differences.
const ELEMENTS: usize = 40;
/// Largest error of a gradient, relative to `1 + |difference|`.
const TOLERANCE: f64 = 1e-6;
/// Steps of the differences; a gradient must agree at one of them.
const STEPS: [f64; 3] = [1e-3, 1e-4, 1e-5];
/// Kernels of backward compute with rounded intermediate results, in several nodes.
const NODES: f64 = 4.0;

/// Which gradients backward is asked for, given which.
#[derive(Debug, Clone)]
struct Question {
    /// The output with a gradient.
    output: usize,
    /// Which inputs want one.
    needs: Vec<bool>,
    /// Whether inputs have a gradient from elsewhere already.
    existing: bool,
}

/// The graph of a node with its backward.
struct Answer {
    graph: Graph,
    /// The values that were given, with their contents.
    values: Values,
    grad: Array,
    existing: Vec<Option<Array>>,
    /// Per input its gradient, and whether it includes the existing one.
    results: Vec<Option<(Operand, bool)>>,
}

/// Checks every question that can be asked of a sample.
pub(super) fn check(laws: &Laws, trial: &Trial<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for question in questions(trial) {
        let answer = match ask(trial, &question) {
            Ok(answer) => answer,
            Err(OpError::NotDifferentiable { .. }) => continue,
            Err(error) => {
                findings.push((
                    Law::Gradient,
                    format!("backward fails: {error}; {question:?}"),
                ));
                continue;
            }
        };
        // Outputs that only backward reads, such as a softmax's sums, have no gradient.
        let nothing = answer.results.iter().all(Option::is_none);
        if nothing && question.output > 0 {
            continue;
        }
        if let Err((law, detail)) = check_answer(laws, trial, &question, &answer) {
            findings.push((law, format!("{detail}; {question:?}")));
        }
    }
    findings
}

fn questions(trial: &Trial<'_>) -> Vec<Question> {
    let floats: Vec<bool> = trial
        .specs
        .iter()
        .map(|spec| spec.dtype.is_float())
        .collect();
    let outputs = (trial.outputs.iter().enumerate())
        .filter(|(_, spec)| spec.dtype.is_float())
        .map(|(o, _)| o);
    let mut questions = Vec::new();
    if !trial.op.effect().is_repeatable() || !floats.contains(&true) {
        return questions;
    }
    let wanted = floats.iter().filter(|&&float| float).count();
    for output in outputs {
        let all = Question {
            output,
            needs: floats.clone(),
            existing: false,
        };
        let onto = Question {
            existing: true,
            ..all.clone()
        };
        questions.extend([all.clone(), onto]);
        let alone = (0..floats.len()).filter(|&i| floats[i] && wanted > 1);
        questions.extend(alone.map(|i| Question {
            needs: (0..floats.len()).map(|k| k == i).collect(),
            ..all.clone()
        }));
    }
    questions
}

fn site(phase: Phase) -> Site {
    Site {
        module: "".into(),
        location: Location::caller(),
        phase,
        checkpoint: None,
        grad_enabled: true,
    }
}

fn ask(trial: &Trial<'_>, question: &Question) -> Result<Answer, OpError> {
    let mut graph = Graph::default();
    let mut values = Values::default();
    let mut inputs = Vec::new();
    for ((spec, storage), &needs) in trial.specs.iter().zip(&trial.storages).zip(&question.needs) {
        let whole = Spec::contiguous(spec.dtype, [storage.len()]);
        let mut operand = graph
            .add_input(whole, Category::Input)
            .with_layout(spec.layout.clone());
        operand.requires_grad = needs;
        values.set_storage(operand.source, storage.clone());
        inputs.push(operand);
    }
    let op = Arc::clone(&trial.sample.op);
    let outputs = graph.add(op, &inputs, &site(Phase::Forward))?;
    let mut numbers = Numbers::new(0x9_1ad);
    let mut give = |graph: &mut Graph, spec: &Spec| {
        let dense = Spec::contiguous(spec.dtype, spec.shape().clone());
        let operand = graph.add_input(dense, Category::Gradient);
        let mut array =
            Array::from_fn(spec.shape().clone(), |_| f64::from(numbers.normal() as f32));
        array.dtype = spec.dtype;
        values.set(&operand, &array);
        (operand, array)
    };
    let (grad, grad_array) = give(&mut graph, &outputs[question.output].spec);
    let mut grads = vec![None; outputs.len()];
    grads[question.output] = Some(grad);
    let (existing, existing_arrays): (Vec<_>, Vec<_>) = (trial.specs.iter().zip(&question.needs))
        .map(|(spec, &needs)| {
            let pair = (needs && question.existing).then(|| give(&mut graph, spec));
            pair.unzip()
        })
        .unzip();
    let node = graph.nodes().len() as u32 - 1;
    let at = site(Phase::Backward);
    let mut backward = Backward::new(&mut graph, node, at, &grads, &existing);
    trial.op.backward(&mut backward)?;
    let results = backward.finish().into_vec();
    Ok(Answer {
        graph,
        values,
        grad: grad_array,
        existing: existing_arrays,
        results,
    })
}

fn check_answer(
    laws: &Laws,
    trial: &Trial<'_>,
    question: &Question,
    answer: &Answer,
) -> Result<(), Finding> {
    let gradient = |detail: String| (Law::Gradient, detail);
    let failed = |law| move |error: EvaluateError| (law, error.to_string());
    let mut plain = answer.values.clone();
    plain
        .evaluate_references(&answer.graph, &laws.table)
        .map_err(failed(Law::Gradient))?;
    let mut fast = answer.values.clone();
    fast.evaluate_kernels(&answer.graph, &laws.table, &laws.pools[1])
        .map_err(failed(Law::BackwardKernels))?;
    let arrays = trial.arrays();
    for (i, result) in answer.results.iter().enumerate() {
        let Some((operand, accumulated)) = result else {
            if question.needs[i] {
                // No gradient at all says that it is zero everywhere.
                let zeros = Array::from_fn(arrays[i].shape.clone(), |_| 0.0);
                check_differences(trial, question, answer, i, &zeros)
                    .map_err(|detail| gradient(format!("no gradient of input {i}: {detail}")))?;
            }
            continue;
        };
        if !question.needs[i] {
            return Err(gradient(format!(
                "input {i} has a gradient that nobody needs"
            )));
        }
        let (got, mut want) = (fast.get(operand), plain.get(operand));
        let tolerance = NODES * trial.sample.tolerance.max(1e-6);
        compare(&got, &want, tolerance).map_err(|detail| {
            (
                Law::BackwardKernels,
                format!("gradient of input {i}: {detail}"),
            )
        })?;
        if *accumulated {
            let before = answer.existing[i].as_ref().ok_or_else(|| {
                gradient(format!("adds to a gradient of input {i} that is not there"))
            })?;
            for (whole, before) in want.data.iter_mut().zip(&before.data) {
                *whole -= before;
            }
        }
        check_differences(trial, question, answer, i, &want)
            .map_err(|detail| gradient(format!("gradient of input {i}: {detail}")))?;
    }
    Ok(())
}

/// Compares a gradient with four-point central differences of the reference.
fn check_differences(
    trial: &Trial<'_>,
    question: &Question,
    answer: &Answer,
    i: usize,
    got: &Array,
) -> Result<(), String> {
    let mut arrays = trial.arrays();
    if got.shape != arrays[i].shape {
        return Err(format!(
            "shape {} instead of {}",
            got.shape, arrays[i].shape
        ));
    }
    let is_exact = |spec: &Spec| matches!(spec.dtype, DType::F32 | DType::F64);
    if !is_exact(&trial.specs[i]) || !is_exact(&trial.outputs[question.output]) {
        return Ok(());
    }
    let numel = got.data.len();
    for element in (0..numel.min(ELEMENTS)).map(|k| k * numel / numel.min(ELEMENTS)) {
        let x = arrays[i].data[element];
        let mut at = |x| {
            arrays[i].data[element] = x;
            let results = (trial.entry.reference)(trial.op, &arrays);
            let output = &results[question.output].data;
            let products = output.iter().zip(&answer.grad.data).map(|(y, g)| y * g);
            products.sum::<f64>()
        };
        let mut difference = |h: f64| {
            let near = at(x + h) - at(x - h);
            let far = at(x + 2.0 * h) - at(x - 2.0 * h);
            (8.0 * near - far) / (12.0 * h)
        };
        let g = got.data[element];
        let is_close = |d: f64| (g - d).abs() <= TOLERANCE * (1.0 + d.abs());
        if !STEPS.iter().any(|&h| is_close(difference(h))) {
            let difference = difference(STEPS[0]);
            return Err(format!("{g:e} instead of {difference:e} at {element}"));
        }
        arrays[i].data[element] = x;
    }
    Ok(())
}
