//! GPT-2 as PyTorch computes it: logits, losses, gradients and trained parameters of a small model,
//! without a budget and in the least one there is. `fixtures/README.md` says what is compared with.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::plan::{Plan, Problem};
use highwater::{Builder, Engine, Module, Parameter, Tensor, no_grad};
use highwater_memory::DiskFiles;
use highwater_models::{Decay, Gpt2, Gpt2Config, WeightsReader};
use serde_json::Value;

fn fixtures(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(name)
}

/// What PyTorch computed, and from what.
struct Fixture {
    expected: WeightsReader,
    entry: Value,
}

impl Fixture {
    fn open() -> Self {
        let expected = WeightsReader::open(&DiskFiles, &fixtures("gpt2_nano.safetensors")).unwrap();
        let index = std::fs::read_to_string(fixtures("index.json")).unwrap();
        let index: Value = serde_json::from_str(&index).unwrap();
        let entry = index["models"][0].clone();
        assert_eq!(entry["model"], "gpt2_nano");
        Self { expected, entry }
    }

    fn size(&self, name: &str) -> usize {
        self.entry[name].as_u64().unwrap() as usize
    }

    /// A tensor of floats.
    fn floats(&mut self, name: &str) -> Vec<f32> {
        let shape = self.expected.tensors()[name].shape.clone();
        let mut values = vec![0.0; shape.iter().product()];
        self.expected.read_f32(name, &shape, &mut values).unwrap();
        values
    }

    /// The batches of `tokens` or `targets`.
    fn batches(&mut self, name: &str) -> Vec<Vec<u32>> {
        let count: usize = self.expected.tensors()[name].shape.iter().product();
        let mut bytes = vec![0; 8 * count];
        self.expected.read_bytes(name, &mut bytes).unwrap();
        let (tokens, _) = bytes.as_chunks();
        let token = |&bytes| u32::try_from(i64::from_le_bytes(bytes)).unwrap();
        let tokens: Vec<u32> = tokens.iter().map(token).collect();
        let batch = self.size("batch") * self.size("seq");
        tokens.chunks(batch).map(<[u32]>::to_vec).collect()
    }

    fn options(&self) -> AdamWOptions {
        crate::adamw::options(&self.entry)
    }
}

/// Tensors by name.
type Named = Vec<(String, Vec<f32>)>;

/// The model with its optimizer, ready for the first step.
struct Session {
    engine: Engine,
    model: Gpt2,
    adamw: AdamW,
    shape: [usize; 2],
}

impl Session {
    fn new(builder: Builder, decay: Decay) -> Self {
        let fixture = Fixture::open();
        let engine = builder.threads(2).build().unwrap();
        let folder = fixtures("gpt2_nano");
        let config = Gpt2Config::read(&DiskFiles, &folder.join("config.json")).unwrap();
        let model = Gpt2::new(&engine, config).unwrap();
        let mut weights =
            WeightsReader::open(&DiskFiles, &folder.join("model.safetensors")).unwrap();
        if !engine.is_dry_run() {
            for (name, parameter) in model.named_parameters() {
                let read = |values: &mut [f32]| weights.read_f32(&name, parameter.dims(), values);
                parameter.with_values_mut(read).unwrap().unwrap();
            }
        }
        let decayed = fixture.options();
        let plain = AdamWOptions {
            weight_decay: 0.0,
            ..decayed.clone()
        };
        let (matrices, rest) = model
            .parameters()
            .into_iter()
            .partition(|parameter: &Parameter| decay.applies_to(parameter.dims()));
        let adamw = AdamW::with_groups(vec![(matrices, decayed), (rest, plain)]).unwrap();
        Self {
            engine,
            model,
            adamw,
            shape: [fixture.size("batch"), fixture.size("seq")],
        }
    }

    /// The least memory that a first step such as `take_step` has room in, and what it takes where
    /// there is plenty.
    fn least_and_most(decay: Decay, take_step: impl Fn(&mut Self)) -> (u64, u64) {
        let mut dry = Self::new(Engine::builder().arena(1 << 40).dry_run(), decay);
        take_step(&mut dry);
        let plan = dry.engine.forecast().expect("a step was planned");
        assert!(plan.floor_bytes < plan.peak_bytes);
        (plan.floor_bytes, plan.peak_bytes)
    }

    /// In the least memory that a first step such as `take_step` has room in.
    fn in_least_memory(decay: Decay, take_step: impl Fn(&mut Self)) -> Self {
        let (least, _) = Self::least_and_most(decay, take_step);
        Self::new(Engine::builder().arena(least), decay)
    }

    fn indices(&self, data: &[u32]) -> Tensor {
        self.engine.indices(data, self.shape).unwrap()
    }

    fn backward(&self, tokens: &[u32], targets: &[u32]) -> Tensor {
        let (tokens, targets) = (self.indices(tokens), self.indices(targets));
        let loss = self.model.loss(&tokens, &targets).unwrap();
        loss.backward().unwrap();
        loss
    }

    fn logits(&self, tokens: &[u32]) -> Vec<f32> {
        let logits = no_grad(|| self.model.logits(&self.indices(tokens)));
        logits.unwrap().to_vec().unwrap()
    }

    /// Takes a step on each batch; gives the losses before them.
    fn train(&mut self) -> Vec<f32> {
        let mut fixture = Fixture::open();
        let (tokens, targets) = (fixture.batches("tokens"), fixture.batches("targets"));
        let step = |(tokens, targets): (&Vec<u32>, &Vec<u32>)| {
            let loss = self.backward(tokens, targets);
            self.adamw.step().unwrap();
            loss.item().unwrap()
        };
        tokens.iter().zip(&targets).map(step).collect()
    }

    fn parameters(&self) -> Named {
        let values = |bytes: &[u8]| {
            let (values, _) = bytes.as_chunks();
            values.iter().map(|&x| f32::from_le_bytes(x)).collect()
        };
        let named = self.model.named_parameters().into_iter();
        named
            .map(|(name, parameter)| (name, parameter.with_bytes(values).unwrap()))
            .collect()
    }

    /// The gradients that `step_keep_grads` left.
    fn gradients(&self) -> Named {
        let gradient = |parameter: Parameter| parameter.grad().unwrap().to_vec().unwrap();
        let named = self.model.named_parameters().into_iter();
        named
            .map(|(name, parameter)| (name, gradient(parameter)))
            .collect()
    }
}

fn bits(tensors: &Named) -> Vec<Vec<u32>> {
    let bits = |(_, values): &(String, Vec<f32>)| values.iter().map(|x| x.to_bits()).collect();
    tensors.iter().map(bits).collect()
}

fn assert_near(what: &str, found: f64, expected: f64, tolerance: f64) {
    assert!(
        (found - expected).abs() <= tolerance,
        "{what}: {found}, PyTorch has {expected}, tolerance {tolerance:e}"
    );
}

/// How far off tensors may be.
#[derive(Clone, Copy)]
struct Room {
    /// Of the whole, by its norm.
    relative: f64,
    /// Of each element, by the size of a typical one.
    element: f64,
    /// Of each element of a key bias, where rounding alone decides.
    noise: f64,
}

/// Compares all tensors' norms, sums and samples with those called `what` in the fixture.
fn assert_like_pytorch(what: &str, tensors: &Named, room: Room) {
    let mut fixture = Fixture::open();
    let count = fixture.size("samples");
    let [norms, sums, samples] =
        ["norm", "sum", "samples"].map(|kind| fixture.floats(&format!("{what}.{kind}")));
    let names = fixture.entry["parameters"].as_array().unwrap();
    let names = names.iter().map(|parameter| &parameter["name"]);
    assert!(tensors.iter().map(|(name, _)| name).eq(names), "{what}");
    for (i, (name, values)) in tensors.iter().enumerate() {
        let what = format!("{what} of {name}");
        let values: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
        let (numel, norm) = (values.len(), f64::from(norms[i]));
        let keys = if name.ends_with("c_attn.bias") {
            numel / 3..numel / 3 * 2
        } else {
            0..0
        };
        let root = (numel as f64).sqrt();
        let of_norm = room.relative * norm + room.noise * (keys.len() as f64).sqrt();
        let found = values.iter().map(|x| x * x).sum::<f64>().sqrt();
        assert_near(&format!("norm, {what}"), found, norm, of_norm);
        let found = values.iter().sum();
        let sum = f64::from(sums[i]);
        assert_near(&format!("sum, {what}"), found, sum, of_norm * root);
        for (j, &expected) in samples[i * count..][..count].iter().enumerate() {
            let (at, expected) = (j * numel / count, f64::from(expected));
            let noise = if keys.contains(&at) { room.noise } else { 0.0 };
            let tolerance = room.element * (expected.abs() + norm / root) + noise;
            assert_near(&format!("[{at}], {what}"), values[at], expected, tolerance);
        }
    }
}

#[test]
fn logits_and_gradients_are_pytorchs() {
    let mut fixture = Fixture::open();
    let tokens = fixture.batches("tokens").remove(0);
    let targets = fixture.batches("targets").remove(0);
    let step = |session: &mut Session| {
        session.backward(&tokens, &targets);
        session.adamw.step_keep_grads().unwrap();
    };
    let plenty = || Session::new(Engine::builder(), Decay::Matrices);
    let least = || Session::in_least_memory(Decay::Matrices, step);
    let logits = plenty().logits(&tokens);
    let expected = fixture.floats("f64.logits");
    let scale = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    assert_eq!(logits.len(), expected.len());
    for (i, (&found, &expected)) in logits.iter().zip(&expected).enumerate() {
        let tolerance = 1e-5 * f64::from(scale);
        let what = format!("logit {i}");
        assert_near(&what, found.into(), expected.into(), tolerance);
    }
    let room = Room {
        relative: 1e-5,
        element: 1e-4,
        noise: 1e-7,
    };
    assert_eq!(logits, least().logits(&tokens));
    let [(gradients, recomputed), in_least] = [plenty(), least()].map(|mut session| {
        step(&mut session);
        let report = session.engine.last_step();
        (session.gradients(), report.recomputed_nodes)
    });
    assert_like_pytorch("f64.grad", &gradients, room);
    assert!(recomputed < in_least.1, "{recomputed} {}", in_least.1);
    assert_eq!(bits(&gradients), bits(&in_least.0));
}

#[test]
fn ten_steps_are_pytorchs() {
    let mut fixture = Fixture::open();
    let tokens = fixture.batches("tokens").remove(0);
    for (decay, name) in [(Decay::Matrices, "matrices"), (Decay::All, "all")] {
        let mut plenty = Session::new(Engine::builder(), decay);
        let losses = plenty.train();
        let expected = fixture.floats(&format!("f64.decay_{name}.losses"));
        assert_eq!(losses.len(), expected.len());
        for (step, (&found, &expected)) in losses.iter().zip(&expected).enumerate() {
            let (found, expected) = (f64::from(found), f64::from(expected));
            let what = format!("loss of step {}, decay of {name}", step + 1);
            assert_near(&what, found, expected, 1e-4 * expected);
        }
        let room = Room {
            relative: 1e-5,
            element: 1e-3,
            noise: 1e-4,
        };
        let what = format!("f64.decay_{name}.param");
        assert_like_pytorch(&what, &plenty.parameters(), room);
        let mut least = Session::in_least_memory(decay, |session| {
            session.backward(&tokens, &tokens);
            session.adamw.step().unwrap();
        });
        assert_eq!(losses, least.train());
        assert!(least.engine.last_step().recomputed_nodes > 0);
        assert_eq!(bits(&plenty.parameters()), bits(&least.parameters()));
    }
}

/// The budget law for the preset: ten steps in twelve budgets, with the same bits.
#[test]
fn budgets_change_no_bit() {
    let decay = Decay::Matrices;
    let mut fixture = Fixture::open();
    let tokens = fixture.batches("tokens").remove(0);
    let (least, most) = Session::least_and_most(decay, |session| {
        session.backward(&tokens, &tokens);
        session.adamw.step().unwrap();
    });
    let mut expected = None;
    let mut recomputed = Vec::new();
    for i in (0..12).rev() {
        let budget = least + (most - least) * i / 11;
        let mut session = Session::new(Engine::builder().arena(budget), decay);
        let losses = session.train();
        let found = (losses, bits(&session.parameters()));
        assert_eq!(*expected.get_or_insert_with(|| found.clone()), found);
        let report = session.engine.last_step();
        assert!(report.peak_arena_bytes + report.state_bytes <= budget);
        recomputed.push(report.recomputed_nodes);
    }
    assert_eq!(recomputed[0], 0, "{recomputed:?}");
    assert!(
        recomputed.is_sorted() && recomputed[11] > 0,
        "{recomputed:?}"
    );
}

thread_local! {
    static PLANS: RefCell<Vec<(Problem, Plan)>> = const { RefCell::new(Vec::new()) };
}

/// The verifier's law for the preset: its plans, tampered with, are rejected.
#[test]
fn tampered_plans_are_rejected() {
    let decay = Decay::Matrices;
    let mut fixture = Fixture::open();
    let tokens = fixture.batches("tokens").remove(0);
    let take_step = |session: &mut Session| {
        session.backward(&tokens, &tokens);
        session.adamw.step().unwrap();
    };
    let (least, most) = Session::least_and_most(decay, take_step);
    let keep = |problem: &Problem, plan: &Plan| {
        PLANS.with_borrow_mut(|plans| plans.push((problem.clone(), plan.clone())));
    };
    let mut tried = 0;
    for budget in [least, least + (most - least) / 3, most] {
        take_step(&mut Session::new(
            Engine::builder().arena(budget).on_plan(keep),
            decay,
        ));
        for (problem, plan) in PLANS.take() {
            let counts = crate::common::tamper::tamper(&problem, &plan, budget, 10);
            tried += counts.iter().sum::<usize>();
        }
    }
    assert!(tried >= 200, "{tried}");
}
