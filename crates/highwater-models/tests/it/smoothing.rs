//! Label smoothing without logits, compared with `cross_entropy` of logits that are held; and the same bits in every
//! budget.

use crate::families::{VOCABULARY, architecture, stir};
use highwater::nn::functional::{CrossEntropyOptions, cross_entropy};
use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::{Builder, DType, Engine, Result, Tensor, philox};
use highwater_models::{CausalLm, Decoder, DecoderConfig, Gpt2, Gpt2Config, Packed};
use serde_json::json;

const FAMILIES: [&str; 4] = ["gpt2", "llama3", "gemma2", "qwen3"];
const SHAPE: [usize; 2] = [3, 17];
const COUNT: usize = SHAPE[0] * SHAPE[1];

enum Model {
    Gpt2(Gpt2),
    Decoder(Decoder),
}

impl Model {
    fn build(builder: Builder, family: &str) -> Self {
        let engine = builder.threads(2).build().unwrap();
        let text = architecture(family, 64, &json!({})).to_json();
        let model = match family {
            "gpt2" => {
                Self::Gpt2(Gpt2::new(&engine, Gpt2Config::from_json(&text).unwrap()).unwrap())
            }
            _ => Self::Decoder(
                Decoder::new(&engine, DecoderConfig::from_json(&text).unwrap()).unwrap(),
            ),
        };
        stir(model.causal()).unwrap();
        model
    }

    fn causal(&self) -> &dyn CausalLm {
        match self {
            Self::Gpt2(model) => model,
            Self::Decoder(model) => model,
        }
    }

    fn logits(&self, tokens: &Tensor) -> Result<Tensor> {
        match self {
            Self::Gpt2(model) => model.logits(tokens),
            Self::Decoder(model) => model.logits(tokens),
        }
    }
}

fn integers(seed: u64, most: i64) -> Vec<i64> {
    let mut values = vec![0; COUNT];
    philox::fill_integers(seed, 0, (0, most), &mut values);
    values
}

/// Tokens, and targets of which some are left out.
fn data(seed: u64, ignored: bool) -> [Vec<i64>; 2] {
    let mut targets = integers(seed + 1, VOCABULARY as i64);
    if ignored {
        let left_out = integers(seed + 2, 3);
        targets
            .iter_mut()
            .zip(left_out)
            .for_each(|(target, drawn)| {
                if drawn == 0 {
                    *target = -100;
                }
            });
    }
    [integers(seed, VOCABULARY as i64), targets]
}

fn sgd(model: &dyn CausalLm, lr: f64) -> Sgd {
    let options = SgdOptions {
        lr,
        ..SgdOptions::default()
    };
    Sgd::new(model.parameters(), options).unwrap()
}

/// A loss, and the gradients of all parameters.
fn learnt(model: &Model, loss: impl FnOnce() -> Result<Tensor>) -> Vec<Vec<f32>> {
    let loss = loss().unwrap();
    loss.backward().unwrap();
    let mut sgd = sgd(model.causal(), 0.0);
    sgd.step_keep_grads().unwrap();
    let parameters = model.causal().parameters().into_iter();
    let gradients = parameters.map(|parameter| parameter.grad().unwrap().to_vec().unwrap());
    let all = std::iter::once(vec![loss.item().unwrap()]).chain(gradients);
    let all = all.collect();
    sgd.zero_grad();
    all
}

fn assert_near(what: &str, found: &[Vec<f32>], expected: &[Vec<f32>]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        let scale = expected.iter().fold(1e-6_f32, |most, x| most.max(x.abs()));
        for (found, expected) in found.iter().zip(expected) {
            let off = (found - expected).abs();
            assert!(off <= 3e-5 * scale, "{what}: {found}, expected {expected}");
        }
    }
}

#[test]
fn as_cross_entropy_of_logits() {
    for family in FAMILIES {
        let model = Model::build(Engine::builder(), family);
        let engine = model.causal().engine();
        for (seed, smoothing, ignored) in [(1, 0.1, false), (2, 0.3, true), (3, 1.0, true)] {
            let what = format!("{family}, {smoothing}");
            let [tokens, targets] =
                data(seed, ignored).map(|all| Tensor::from_slice(engine, &all, SHAPE).unwrap());
            let options = CrossEntropyOptions {
                label_smoothing: smoothing,
                ..CrossEntropyOptions::default()
            };
            let expected = learnt(&model, || {
                let logits = model.logits(&tokens)?.reshape([COUNT, VOCABULARY])?;
                cross_entropy(&logits, &targets.reshape([COUNT])?, options)
            });
            let whole = || model.causal().smoothed_loss(&tokens, &targets, smoothing);
            assert_near(&what, &learnt(&model, whole), &expected);
            let lengths = engine
                .indices(&[SHAPE[1] as u32; SHAPE[0]], [SHAPE[0], 1])
                .unwrap();
            let positions: Vec<i64> = (0..COUNT).map(|at| (at % SHAPE[1]) as i64).collect();
            let positions = Tensor::from_slice(engine, &positions, SHAPE).unwrap();
            let packed = Packed {
                tokens: &tokens,
                targets: &targets,
                lengths: &lengths,
                positions: &positions,
            };
            let packed = || model.causal().smoothed_packed_loss(&packed, smoothing);
            assert_near(&what, &learnt(&model, packed), &expected);
            if !ignored {
                let unsigned = targets.to_dtype(DType::U32).unwrap();
                let unsigned = || model.causal().smoothed_loss(&tokens, &unsigned, smoothing);
                assert_near(&what, &learnt(&model, unsigned), &expected);
            }
        }
    }
}

#[test]
fn nothing_to_learn_is_nan() {
    let model = Model::build(Engine::builder(), "llama3");
    let engine = model.causal().engine();
    let [tokens, _] = data(1, false).map(|all| Tensor::from_slice(engine, &all, SHAPE).unwrap());
    let targets = Tensor::from_slice(engine, &[-100_i64; COUNT], SHAPE).unwrap();
    let loss = model
        .causal()
        .smoothed_loss(&tokens, &targets, 0.1)
        .unwrap();
    assert!(loss.item().unwrap().is_nan());
}

/// The bits of some steps' losses and of what they leave.
fn train(builder: Builder, family: &str) -> (Model, Vec<u32>) {
    let model = Model::build(builder, family);
    let engine = model.causal().engine().clone();
    let mut sgd = sgd(model.causal(), 0.1);
    let mut found = Vec::new();
    for seed in 0..2 {
        let [tokens, targets] =
            data(seed, true).map(|all| Tensor::from_slice(&engine, &all, SHAPE).unwrap());
        let loss = model
            .causal()
            .smoothed_loss(&tokens, &targets, 0.1)
            .unwrap();
        loss.backward().unwrap();
        sgd.step().unwrap();
        if engine.is_dry_run() {
            return (model, Vec::new());
        }
        found.push(loss.item().unwrap());
    }
    let parameters = model.causal().parameters().into_iter();
    found.extend(parameters.flat_map(|parameter| parameter.to_vec::<f32>().unwrap()));
    (model, found.into_iter().map(f32::to_bits).collect())
}

#[test]
fn budgets_change_no_bit() {
    for family in ["gpt2", "gemma2", "qwen3"] {
        let (dry, _) = train(Engine::builder().arena(1 << 40).dry_run(), family);
        let plan = dry.causal().engine().forecast().unwrap();
        let (least, most) = (plan.floor_bytes, plan.peak_bytes);
        assert!(least < most, "{family}");
        let run = |budget| train(Engine::builder().arena(budget), family);
        let plenty = run(most).1;
        for budget in [least, least.midpoint(most)] {
            let (_, found) = run(budget);
            assert!(found == plenty, "{family} in {budget} bytes");
        }
    }
}
