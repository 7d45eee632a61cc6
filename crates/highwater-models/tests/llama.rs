//! Llama's family as Hugging Face computes it: logits, gradients and losses of small random models, with
//! grouped queries, tied heads, biases, each scaling of positions, and a sliding window; and the same bits
//! in every budget. `fixtures/make_llama.py` says what is compared with.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Builder, Engine, Module, Tensor, no_grad};
use highwater_memory::DiskFiles;
use highwater_models::{Architecture, Llama, LlamaConfig, WeightsReader};
use serde_json::Value;

const VARIANTS: [&str; 6] = ["plain", "tied", "linear", "llama3", "yarn", "mistral"];

struct Fixture {
    file: WeightsReader,
    about: Value,
}

impl Fixture {
    fn open() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/llama.safetensors");
        let file = WeightsReader::open(&DiskFiles, &path).unwrap();
        let about = serde_json::from_str(&file.metadata()["llama"]).unwrap();
        Self { file, about }
    }

    fn config(&self, variant: &str) -> LlamaConfig {
        LlamaConfig::from_json(&self.about["variants"][variant].to_string()).unwrap()
    }

    fn floats(&mut self, name: &str) -> Vec<f32> {
        let shape = self.file.tensors()[name].shape.clone();
        let mut values = vec![0.0; shape.iter().product()];
        self.file.read_f32(name, &shape, &mut values).unwrap();
        values
    }

    fn shape(&self) -> [usize; 2] {
        ["batch", "seq"].map(|name| self.about[name].as_u64().unwrap() as usize)
    }

    fn batches(&mut self, name: &str) -> Vec<Vec<u32>> {
        let count: usize = self.file.tensors()[name].shape.iter().product();
        let mut bytes = vec![0; 8 * count];
        self.file.read_bytes(name, &mut bytes).unwrap();
        let (tokens, _) = bytes.as_chunks();
        let token = |&bytes| u32::try_from(i64::from_le_bytes(bytes)).unwrap();
        let tokens: Vec<u32> = tokens.iter().map(token).collect();
        let batch = self.shape().iter().product();
        tokens.chunks(batch).map(<[u32]>::to_vec).collect()
    }

    fn options(&self) -> AdamWOptions {
        let number = |value: &Value| value.as_f64().unwrap();
        let adamw = &self.about["adamw"];
        AdamWOptions {
            lr: number(&adamw["lr"]),
            betas: (number(&adamw["betas"][0]), number(&adamw["betas"][1])),
            eps: number(&adamw["eps"]),
            weight_decay: number(&adamw["weight_decay"]),
            ..AdamWOptions::default()
        }
    }

    fn model(&mut self, engine: &Engine, variant: &str) -> Llama {
        let config = self.config(variant);
        let count = config.parameter_count();
        let model = Llama::new(engine, config).unwrap();
        let named = model.named_parameters();
        let elements: usize = named.iter().map(|(_, p)| p.shape().numel()).sum();
        assert_eq!(elements as u64, count, "{variant}");
        for (name, parameter) in named {
            let name = format!("{variant}.weight.{name}");
            let read = |values: &mut [f32]| self.file.read_f32(&name, parameter.dims(), values);
            if !engine.is_dry_run() {
                parameter.with_values_mut(read).unwrap().unwrap();
            }
        }
        model
    }
}

fn assert_near(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let off = (found - expected).abs();
        assert!(
            off <= tolerance * scale,
            "{what}[{i}]: {found}, Hugging Face has {expected}"
        );
    }
}

/// Tensors by name.
type Named = Vec<(String, Vec<f32>)>;

/// Steps on all batches: the losses, and the gradients of the first step by name.
fn train(builder: Builder, variant: &str, steps: usize) -> (Engine, Vec<f32>, Named) {
    let mut fixture = Fixture::open();
    let engine = builder.threads(2).build().unwrap();
    let model = fixture.model(&engine, variant);
    let mut adamw = AdamW::new(model.parameters(), fixture.options()).unwrap();
    let (mut losses, mut gradients, shape) = (Vec::new(), Vec::new(), fixture.shape());
    let batches = fixture
        .batches("tokens")
        .into_iter()
        .zip(fixture.batches("targets"));
    for (tokens, targets) in batches.take(steps) {
        let [tokens, targets] = [tokens, targets].map(|data| engine.indices(&data, shape).unwrap());
        let loss = model.loss(&tokens, &targets).unwrap();
        loss.backward().unwrap();
        if !losses.is_empty() {
            adamw.step().unwrap();
            losses.push(loss.item().unwrap());
            continue;
        }
        adamw.step_keep_grads().unwrap();
        if engine.is_dry_run() {
            break;
        }
        let gradient = |tensor: Option<Tensor>| tensor.unwrap().to_vec().unwrap();
        let named = model.named_parameters().into_iter();
        gradients = named.map(|(name, p)| (name, gradient(p.grad()))).collect();
        adamw.zero_grad();
        losses.push(loss.item().unwrap());
    }
    (engine, losses, gradients)
}

#[test]
fn logits_gradients_and_losses_are_hugging_faces() {
    for variant in VARIANTS {
        let mut fixture = Fixture::open();
        let engine = Engine::builder().threads(2).build().unwrap();
        let model = fixture.model(&engine, variant);
        let tokens = fixture.batches("tokens").remove(0);
        let tokens = engine.indices(&tokens, fixture.shape()).unwrap();
        let logits = no_grad(|| model.logits(&tokens)).unwrap().to_vec().unwrap();
        let expected = fixture.floats(&format!("{variant}.logits"));
        assert_near(&format!("{variant}: logits"), &logits, &expected, 1e-5);
        let (_, losses, gradients) = train(Engine::builder(), variant, 10);
        for (name, gradient) in &gradients {
            let expected = fixture.floats(&format!("{variant}.grad.{name}"));
            assert_near(&format!("{variant}: {name}"), gradient, &expected, 5e-5);
        }
        let expected = fixture.floats(&format!("{variant}.losses"));
        assert_near(&format!("{variant}: losses"), &losses, &expected, 1e-4);
    }
}

#[test]
fn budgets_change_no_bit() {
    for variant in ["plain", "mistral"] {
        let (dry, ..) = train(Engine::builder().arena(1 << 40).dry_run(), variant, 1);
        let plan = dry.forecast().unwrap();
        let (least, most) = (plan.floor_bytes, plan.peak_bytes);
        assert!(least < most);
        let run = |budget| {
            let (engine, losses, gradients) = train(Engine::builder().arena(budget), variant, 3);
            let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            let gradients: Vec<_> = gradients.iter().map(|(_, values)| bits(values)).collect();
            (
                engine.last_step().recomputed_nodes,
                (bits(&losses), gradients),
            )
        };
        let plenty = run(most);
        for i in 0..6 {
            let found = run(least + (most - least) * i / 6);
            assert_eq!(found.1, plenty.1, "{variant} at {i} sixths");
            assert!(i > 0 || found.0 > 0, "nothing is recomputed at the floor");
        }
    }
}

#[test]
fn configurations_are_written_as_they_were_read() {
    let fixture = Fixture::open();
    for variant in VARIANTS {
        let config = fixture.config(variant);
        assert_eq!(
            LlamaConfig::from_json(&config.to_json()).unwrap(),
            config,
            "{variant}"
        );
        assert_eq!(config.base_prefix(), "model.");
    }
    let json = |field: &str, value: Value| {
        let mut fields = fixture.about["variants"]["llama3"].clone();
        fields[field] = value;
        LlamaConfig::from_json(&fields.to_string()).map_err(|error| error.to_string())
    };
    for (field, value, told) in [
        ("num_key_value_heads", Value::from(3), "num_attention_heads"),
        ("hidden_act", Value::from("gelu"), "silu"),
        ("head_dim", Value::from(7), "even"),
        ("sliding_window", Value::from(0), "1 or more"),
        (
            "rope_parameters",
            serde_json::json!({"rope_type": "dynamic"}),
            "llama3",
        ),
        (
            "rope_parameters",
            serde_json::json!({"rope_type": "linear"}),
            "factor",
        ),
        ("vocab_size", Value::from("many"), "vocab_size"),
    ] {
        let error = json(field, value).unwrap_err();
        assert!(error.contains(told), "{field}: {error}");
    }
}

#[test]
fn presets_have_their_shapes() {
    let tiny = LlamaConfig::preset("llama-1b").unwrap();
    // TinyLlama's.
    assert_eq!(tiny.parameter_count(), 1_100_048_384);
    tiny.validate().unwrap();
    LlamaConfig::preset("llama-nano")
        .unwrap()
        .validate()
        .unwrap();
}
