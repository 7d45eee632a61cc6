//! A training run that notes every bit of what came out.

use crate::models::Model;
use highwater::optim::{AdamW, AdamWOptions, Master, Moments, Optimizer, clip_grad_norm_};
use highwater::{Builder, DType, Engine, Error, Parameter, Result, StepReport, Tensor};
use highwater::{autocast, with_parameter_dtype};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Bytes of a page, in which arenas are mapped.
pub(crate) const PAGE: u64 = 4096;

/// How to train.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipe {
    pub(crate) clip: bool,
    /// Batches whose gradients are added up before a step.
    pub(crate) accumulate: u64,
    pub(crate) rows: usize,
    /// Read each loss before its backward.
    pub(crate) read_early: bool,
    /// Keep the gradients of the last step and note them too.
    pub(crate) keep_grads: bool,
    /// Bytes of a moment in one piece at most, if not as many as usual.
    pub(crate) piece_bytes: Option<u64>,
    pub(crate) held: Held,
}

/// How parameters and moments are held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    /// Of parameters, and of what computes with them.
    pub(crate) dtype: DType,
    pub(crate) master: Option<Master>,
    pub(crate) moments: Moments,
}

pub(crate) const PLAIN: Recipe = Recipe {
    clip: false,
    accumulate: 1,
    rows: 2,
    read_early: false,
    keep_grads: false,
    piece_bytes: None,
    held: Held {
        dtype: DType::F32,
        master: None,
        moments: Moments::F32,
    },
};

/// Most parameters of the sample models are updated in pieces.
pub(crate) const IN_PIECES: Recipe = Recipe {
    piece_bytes: Some(2 << 10),
    ..PLAIN
};

pub(crate) const STEPS: u64 = 5;

/// What came out.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// Hashes of losses, gradients, parameters and moments, by name; moments of one kind together.
    pub(crate) bits: Vec<(String, u64)>,
    /// One for each evaluation, in order.
    pub(crate) reports: Vec<StepReport>,
}

impl Trace {
    fn note(&mut self, name: String, values: &[u8]) {
        let mut hasher = DefaultHasher::new();
        values.hash(&mut hasher);
        self.bits.push((name, hasher.finish()));
    }

    fn note_tensor(&mut self, name: String, tensor: &Tensor) -> Result<()> {
        let values: Vec<f32> = match tensor.dtype() {
            DType::F32 => tensor.to_vec()?,
            _ => tensor.to_dtype(DType::F32)?.to_vec()?,
        };
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect();
        self.note(name, &bytes);
        Ok(())
    }

    fn note_report(&mut self, engine: &Engine) {
        let report = engine.last_step();
        if report.nodes > 0 && self.reports.last() != Some(&report) {
            self.reports.push(report);
        }
    }

    /// The report of the last step.
    pub(crate) fn last(&self) -> &StepReport {
        self.reports.last().expect("at least one step")
    }

    /// Predicted seconds, and the height of the highest plan: what tells plans apart.
    pub(crate) fn plan(&self) -> (f64, u64) {
        let seconds = self.reports.iter().map(|report| report.predicted_seconds);
        let heights = self.reports.iter().map(|report| report.planned_arena_bytes);
        (seconds.sum(), heights.max().unwrap_or(0))
    }

    /// Bytes of arena and state together, at most.
    pub(crate) fn peak_bytes(&self) -> u64 {
        let bytes = |report: &StepReport| report.planned_arena_bytes + report.state_bytes;
        self.reports.iter().map(bytes).max().unwrap_or(0)
    }
}

/// Trains for [`STEPS`] steps.
pub(crate) fn train(model: &dyn Model, engine: &Engine, recipe: Recipe) -> Result<Trace> {
    let mut trace = Trace::default();
    let options = AdamWOptions {
        lr: 1e-2,
        master: recipe.held.master,
        moments: recipe.held.moments,
        ..AdamWOptions::default()
    };
    let sets = model.sets();
    let adamw = |set: &Vec<Parameter>| AdamW::new(set.clone(), options.clone());
    let mut optimizers = sets.iter().map(adamw).collect::<Result<Vec<_>>>()?;
    for step in 0..STEPS {
        let mut losses = Vec::new();
        for micro in 0..recipe.accumulate {
            let index = step * recipe.accumulate + micro;
            let losses_of = || model.losses(index, recipe.rows);
            for loss in autocast(recipe.held.dtype, losses_of)? {
                if recipe.read_early {
                    trace.note_tensor(format!("step {step}: loss {}", losses.len()), &loss)?;
                    trace.note_report(engine);
                }
                loss.backward()?;
                losses.push(loss);
                trace.note_report(engine);
            }
        }
        for (set, optimizer) in sets.iter().zip(&mut optimizers) {
            if recipe.clip {
                clip_grad_norm_(set, 0.05)?;
            }
            if recipe.keep_grads && step + 1 == STEPS {
                optimizer.step_keep_grads()?;
            } else {
                optimizer.step()?;
            }
            trace.note_report(engine);
        }
        if !recipe.read_early {
            for (i, loss) in losses.iter().enumerate() {
                trace.note_tensor(format!("step {step}: loss {i}"), loss)?;
            }
        }
        note_state(&mut trace, step, &sets, &optimizers)?;
    }
    Ok(trace)
}

fn note_state(
    trace: &mut Trace,
    step: u64,
    sets: &[Vec<Parameter>],
    optimizers: &[AdamW],
) -> Result<()> {
    for (set, optimizer) in sets.iter().zip(optimizers) {
        for (i, parameter) in set.iter().enumerate() {
            if let Some(grad) = parameter.grad() {
                trace.note_tensor(format!("step {step}: gradient {i}"), &grad)?;
            }
            parameter
                .with_bytes(|bytes| trace.note(format!("step {step}: parameter {i}"), bytes))?;
        }
        let mut moments: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for (name, moment) in optimizer.state_dict() {
            let kind = name.split(['.', '[']).next().unwrap_or_default();
            let all = moments.entry(kind.to_owned()).or_default();
            moment.with_bytes(|bytes| all.extend_from_slice(bytes))?;
        }
        for (kind, bytes) in moments {
            trace.note(format!("step {step}: {kind}"), &bytes);
        }
    }
    Ok(())
}

/// Makes the model in an engine of its own and trains it.
pub(crate) fn run(
    builder: Builder,
    make: &dyn Fn(&Engine) -> Result<Box<dyn Model>>,
    recipe: Recipe,
) -> Result<Trace> {
    let builder = match recipe.piece_bytes {
        Some(bytes) => builder.piece_bytes(bytes),
        None => builder,
    };
    let engine = builder.seed(11).build()?;
    let model = with_parameter_dtype(recipe.held.dtype, || make(&engine))?;
    train(&*model, &engine, recipe)
}

/// The least budget in which the run goes through: as the refusals say, one after the other.
pub(crate) fn floor(
    make: &dyn Fn(&Engine) -> Result<Box<dyn Model>>,
    recipe: Recipe,
    plenty: &Trace,
) -> u64 {
    let state = plenty
        .reports
        .iter()
        .map(|report| report.state_bytes)
        .max()
        .unwrap_or(0);
    let mut budget = state + PAGE;
    for _ in 0..20 {
        match run(Engine::builder().arena(budget), make, recipe) {
            Ok(_) => return budget,
            Err(Error::OverBudget {
                floor_bytes,
                budget_bytes,
                ..
            }) => {
                assert_eq!(budget_bytes, budget);
                assert!(
                    floor_bytes > budget,
                    "a refusal that asks for no more than there is"
                );
                budget = floor_bytes;
            }
            // An input came while the arena held what the next plan was to find there.
            Err(Error::State { bytes, .. }) => budget += bytes.next_multiple_of(PAGE),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the floor rises again and again");
}

/// That two runs gave the same bits; says what differs first.
#[track_caller]
pub(crate) fn assert_same_bits(what: &str, got: &Trace, expected: &Trace) {
    assert_eq!(got.bits.len(), expected.bits.len(), "{what}");
    let differs = got
        .bits
        .iter()
        .zip(&expected.bits)
        .find(|(got, expected)| got != expected);
    if let Some(((name, _), _)) = differs {
        panic!("{what}: {name} differs");
    }
}

/// That no evaluation took more than its plan, and none planned more than the budget.
#[track_caller]
pub(crate) fn assert_within(what: &str, budget: u64, trace: &Trace) {
    for report in &trace.reports {
        assert!(
            report.peak_arena_bytes <= report.planned_arena_bytes,
            "{what}: {report:?}"
        );
        // In pages, as they are mapped.
        let arena = report.planned_arena_bytes.next_multiple_of(PAGE);
        let planned = arena + report.state_bytes;
        assert!(planned <= budget, "{what}: {planned} of {budget}");
    }
}
