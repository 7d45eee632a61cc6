//! The laws of gradients: what backward emits, against finite differences and with kernels.

use super::data::{Numbers, round};
use super::dtypes::is_narrow;
use super::{Finding, Law, Laws, Trial, compare};
use crate::kernels::float::half_ulp;
use crate::laws::evaluate::{EvaluateError, Values};
use crate::{Array, Full};
use highwater_graph::Location;
use highwater_graph::{
    Backward, Category, DType, Graph, NodeId, OpError, Operand, Phase, Shape, Site, Spec,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Elements of an input whose gradient is compared with finite differences: in small samples, and
/// in those whose inputs have more than `SMALL` elements in all.
const ELEMENTS: [usize; 2] = [40, 8];
const SMALL: usize = 4096;
/// Largest error of a gradient, relative to `1 + |difference|`.
const TOLERANCE: f64 = 1e-6;
/// Steps of the differences; a gradient must agree at one of them.
const STEPS: [f64; 3] = [1e-3, 1e-4, 1e-5];
/// Kernels of backward compute with rounded intermediate results, in several nodes.
const NODES: f64 = 4.0;

/// Backward passes that compute more elements than this are checked once for each output, and not for each
/// choice of what is asked for.
const MANY: usize = 1 << 17;

/// Which gradients backward is asked for, given which.
#[derive(Debug, Clone)]
struct Question {
    /// The output with a gradient.
    output: usize,
    /// Whether that gradient is known to be one everywhere.
    ones: bool,
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
    existing: Vec<Option<Array>>,
    /// Per input its gradient, and whether it includes the existing one.
    results: Vec<Option<(Operand, bool)>>,
}

impl Answer {
    /// How many elements it computes.
    fn elements(&self) -> usize {
        let computed = self
            .graph
            .values()
            .iter()
            .filter(|value| value.producer.is_some());
        computed.map(|value| value.spec.layout.numel()).sum()
    }
}

/// Checks the questions that can be asked of a sample.
pub(super) fn check(laws: &Laws, trial: &Trial<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut slopes = Slopes::new(trial);
    // The first of each output comes first.
    let mut checked = None;
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
        if checked.replace(question.output) == Some(question.output) && answer.elements() > MANY {
            continue;
        }
        if let Err((law, detail)) = check_answer(laws, &mut slopes, &question, &answer) {
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
            ones: false,
            needs: floats.clone(),
            existing: false,
        };
        let onto = Question {
            existing: true,
            ..all.clone()
        };
        let ones = Question {
            ones: true,
            ..all.clone()
        };
        questions.extend([all.clone(), onto, ones]);
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

/// The gradient of an output.
fn output_gradient(output: usize, shape: &Shape) -> Array {
    let mut numbers = Numbers::new(0x91ad + output as u64);
    Array::from_fn(shape.clone(), |_| f64::from(numbers.normal() as f32))
}

/// An array of numbers as a dtype holds them.
fn rounded(dtype: DType, mut array: Array) -> Array {
    array.dtype = dtype;
    for x in &mut array.data {
        *x = round(dtype, *x);
    }
    array
}

fn ask(trial: &Trial<'_>, question: &Question) -> Result<Answer, OpError> {
    let mut graph = Graph::default();
    let mut values = Values::default();
    let mut inputs = Vec::new();
    for ((spec, storage), &needs) in trial.specs.iter().zip(&trial.storages).zip(&question.needs) {
        let whole = Spec::contiguous(spec.dtype, [storage.len()]);
        let operand = graph.add_input(whole, Category::Input);
        let mut operand = operand.with_layout(spec.layout.clone());
        operand.requires_grad = needs;
        values.set_storage(operand.source, storage.clone());
        inputs.push(operand);
    }
    let op = Arc::clone(&trial.sample.op);
    let outputs = graph.add(op, &inputs, &site(Phase::Forward))?;
    let node = NodeId::new(graph.nodes().len() - 1);
    let mut give = |graph: &mut Graph, dtype: DType, array: &Array| {
        let dense = Spec::contiguous(dtype, array.shape.clone());
        let operand = graph.add_input(dense, Category::Gradient);
        values.set(&operand, array);
        operand
    };
    let Spec { dtype, layout } = &outputs[question.output].spec;
    let shape = layout.shape().clone();
    let grad = if question.ones {
        let (value, dtype) = (1.0, *dtype);
        let op = Full {
            value,
            dtype,
            shape,
        };
        graph
            .add(Arc::new(op), &[], &site(Phase::Backward))?
            .remove(0)
    } else {
        let gradient = output_gradient(question.output, &shape);
        give(&mut graph, *dtype, &rounded(*dtype, gradient))
    };
    let mut grads = vec![None; outputs.len()];
    grads[question.output] = Some(grad);
    let mut numbers = Numbers::new(0xe815);
    let (existing, existing_arrays): (Vec<_>, Vec<_>) = (trial.specs.iter().zip(&question.needs))
        .map(|(spec, &needs)| {
            let pair = (needs && question.existing).then(|| {
                let random = |_| f64::from(numbers.normal() as f32);
                let array = Array::from_fn(spec.shape().clone(), random);
                let array = rounded(spec.dtype, array);
                (give(&mut graph, spec.dtype, &array), array)
            });
            pair.unzip()
        })
        .unzip();
    let at = site(Phase::Backward);
    let mut backward = Backward::new(&mut graph, node, at, &grads, &existing);
    trial.op.backward(&mut backward)?;
    let results = backward.finish().into_vec();
    Ok(Answer {
        graph,
        values,
        existing: existing_arrays,
        results,
    })
}

fn check_answer(
    laws: &Laws,
    slopes: &mut Slopes<'_>,
    question: &Question,
    answer: &Answer,
) -> Result<(), Finding> {
    let gradient = |detail: String| (Law::Gradient, detail);
    let failed = |law| move |error: EvaluateError| (law, error.to_string());
    let trial = slopes.trial;
    let mut plain = answer.values.clone();
    plain
        .evaluate_references(&answer.graph, &laws.table)
        .map_err(failed(Law::Gradient))?;
    let mut fast = answer.values.clone();
    fast.evaluate_kernels(&answer.graph, &laws.table, &laws.pools[1])
        .map_err(failed(Law::BackwardKernels))?;
    for (i, result) in answer.results.iter().enumerate() {
        let Some((operand, accumulated)) = result else {
            if question.needs[i] {
                // No gradient at all says that it is zero everywhere.
                let zeros = Array::from_fn(trial.specs[i].shape().clone(), |_| 0.0);
                (slopes.check(question, i, &zeros))
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
        let dtype = trial.specs[i].dtype;
        let tolerance = match dtype {
            DType::F64 => trial.sample.tolerance,
            dtype if is_narrow(dtype) => trial.sample.tolerance + half_ulp(dtype),
            _ => trial.sample.tolerance.max(1e-6),
        };
        let tolerance = NODES * tolerance;
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
        (slopes.check(question, i, &want))
            .map_err(|detail| gradient(format!("gradient of input {i}: {detail}")))?;
    }
    Ok(())
}

/// Four-point central differences of the reference.
struct Slopes<'a> {
    trial: &'a Trial<'a>,
    arrays: Vec<Array>,
    /// The gradient of each output.
    grads: Vec<Array>,
    /// The slopes along an element of an input, by the step.
    known: BTreeMap<(usize, usize, usize), Vec<Slope>>,
}

/// The slope of the product of an output and its gradient, along one element.
#[derive(Debug, Clone, Copy)]
struct Slope {
    /// With a gradient of one everywhere.
    of_ones: f64,
    of_grad: f64,
}

impl<'a> Slopes<'a> {
    fn new(trial: &'a Trial<'a>) -> Self {
        let outputs = trial.outputs.iter().enumerate();
        Self {
            trial,
            arrays: trial.arrays(),
            grads: outputs
                .map(|(o, spec)| output_gradient(o, spec.shape()))
                .collect(),
            known: BTreeMap::new(),
        }
    }

    /// Compares the gradient of input `i` with the differences.
    fn check(&mut self, question: &Question, i: usize, got: &Array) -> Result<(), String> {
        let trial = self.trial;
        if got.shape != self.arrays[i].shape {
            return Err(format!(
                "shape {} instead of {}",
                got.shape, self.arrays[i].shape
            ));
        }
        let output = &trial.outputs[question.output];
        let is_exact = |spec: &Spec| matches!(spec.dtype, DType::F32 | DType::F64);
        if !is_exact(&trial.specs[i]) || !is_exact(output) {
            return Ok(());
        }
        let numel = got.data.len();
        let total: usize = self.arrays.iter().map(|array| array.data.len()).sum();
        let elements = numel.min(ELEMENTS[usize::from(total > SMALL)]);
        for element in (0..elements).map(|k| k * numel / elements) {
            let g = got.data[element];
            // Where the loss is NaN, as the mean of nothing, there is nothing to compare with.
            let is_close = |d: f64| !d.is_finite() || (g - d).abs() <= TOLERANCE * (1.0 + d.abs());
            let mut at = |step| {
                let slope = self.along(i, element, step)[question.output];
                if question.ones {
                    slope.of_ones
                } else {
                    slope.of_grad
                }
            };
            let first = at(0);
            if !is_close(first) && !(1..STEPS.len()).any(|step| is_close(at(step))) {
                return Err(format!("{g:e} instead of {first:e} at {element}"));
            }
        }
        Ok(())
    }

    /// The slopes of all outputs along one element of input `i`, at a step: the reference computes all at once.
    fn along(&mut self, i: usize, element: usize, step: usize) -> &[Slope] {
        let Self {
            trial,
            arrays,
            grads,
            known,
        } = self;
        known.entry((i, element, step)).or_insert_with(|| {
            let (x, h) = (arrays[i].data[element], STEPS[step]);
            let mut at = |x| {
                arrays[i].data[element] = x;
                let results = (trial.entry.reference)(trial.op, arrays);
                let pairs = results.iter().zip(grads.iter());
                let sums = pairs.map(|(y, grad)| Slope {
                    of_ones: y.data.iter().sum(),
                    of_grad: y.data.iter().zip(&grad.data).map(|(y, g)| y * g).sum(),
                });
                sums.collect::<Vec<_>>()
            };
            let [above, below] = [x + h, x - h].map(&mut at);
            let [far_above, far_below] = [x + 2.0 * h, x - 2.0 * h].map(&mut at);
            arrays[i].data[element] = x;
            let slope = |o: usize, of: fn(&Slope) -> f64| {
                let near = of(&above[o]) - of(&below[o]);
                let far = of(&far_above[o]) - of(&far_below[o]);
                (8.0 * near - far) / (12.0 * h)
            };
            let outputs = 0..above.len();
            let slopes = outputs.map(|o| Slope {
                of_ones: slope(o, |slope| slope.of_ones),
                of_grad: slope(o, |slope| slope.of_grad),
            });
            slopes.collect()
        })
    }
}
