//! The families of decoders as Hugging Face computes them: logits, gradients and losses of small random models,
//! with grouped queries, tied heads, biases, each scaling of positions, sliding windows, and what is a family's
//! own; and the same bits in every budget. `fixtures/make_decoders.py` says what is compared with.

use std::path::Path;

use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Builder, Engine, Module, Tensor, no_grad};
use highwater_memory::DiskFiles;
use highwater_models::config::decoder::Gate;
use highwater_models::{Architecture, Decoder, DecoderConfig, Packed, WeightsReader};
use serde_json::Value;

const VARIANTS: [&str; 15] = [
    "plain",
    "tied",
    "linear",
    "llama3",
    "yarn",
    "mistral",
    "qwen2",
    "qwen2-window",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3",
    "phi3",
    "phi3-long",
    "smollm3",
];

struct Fixture {
    file: WeightsReader,
    about: Value,
}

impl Fixture {
    fn open() -> Self {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/decoders.safetensors");
        let file = WeightsReader::open(&DiskFiles, &path).unwrap();
        let about = serde_json::from_str(&file.metadata()["decoders"]).unwrap();
        Self { file, about }
    }

    fn config(&self, variant: &str) -> DecoderConfig {
        DecoderConfig::from_json(&self.about["variants"][variant].to_string()).unwrap()
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
        crate::adamw::options(&self.about)
    }

    fn model(&mut self, engine: &Engine, variant: &str) -> Decoder {
        let config = self.config(variant);
        let count = config.shape().parameter_count();
        let model = Decoder::new(engine, config).unwrap();
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

/// LongRoPE has other factors up to the original length, of 16 here: in a short row, before the end of a longer one, and
/// of documents in a longer row, whatever pads it.
#[test]
fn short_sequences_have_their_own_factors() {
    const SHORT: usize = 12;
    let mut fixture = Fixture::open();
    let engine = Engine::builder().threads(2).build().unwrap();
    let model = fixture.model(&engine, "phi3-long");
    let [rows, length] = fixture.shape();
    let batch = fixture.batches("tokens").remove(0);
    let expected = fixture.floats("phi3-long.short");
    let short: Vec<u32> = batch
        .chunks(length)
        .flat_map(|row| row[..SHORT].to_vec())
        .collect();
    let tokens = engine.indices(&short, [rows, SHORT]).unwrap();
    let logits = no_grad(|| model.logits(&tokens)).unwrap();
    let logits: Vec<f32> = logits.to_vec().unwrap();
    assert_near("short", &logits, &expected, 1e-5);
    let row = engine.indices(&batch[..length], [1, length]).unwrap();
    let next = no_grad(|| model.next_logits(&row, SHORT - 1)).unwrap();
    let next: Vec<f32> = next.to_vec().unwrap();
    let width = next.len();
    assert_near(
        "next",
        &next,
        &expected[(SHORT - 1) * width..][..width],
        1e-5,
    );
    // Packed: of a short document in a long row, and of one that is as long as the row.
    for (document, apart) in [(SHORT, &tokens), (length, &row)] {
        let targets: Vec<i64> = (0..rows * length).map(|i| i as i64 % 7).collect();
        let learnt = |i: usize| i % length < document;
        let packed = |i: usize, target: i64| if learnt(i) { target } else { -100 };
        let all: Vec<i64> = targets
            .iter()
            .enumerate()
            .map(|(i, &t)| packed(i, t))
            .collect();
        let count = apart.dims()[0];
        let own: Vec<i64> = (0..count * length)
            .filter(|&i| learnt(i))
            .map(|i| targets[i])
            .collect();
        let [lengths, positions] = [
            vec![document as i64; count],
            positions(count, document, length),
        ];
        let shaped =
            |data: &[i64], width: usize| Tensor::from_slice(&engine, data, [count, width]).unwrap();
        let tokens = engine
            .indices(&batch[..count * length], [count, length])
            .unwrap();
        let packed = model.packed_loss(&Packed {
            tokens: &tokens,
            targets: &shaped(&all[..count * length], length),
            lengths: &shaped(&lengths, 1),
            positions: &shaped(&positions, length),
        });
        let packed = packed.unwrap().item().unwrap();
        let alone = model
            .loss(apart, &shaped(&own, document))
            .unwrap()
            .item()
            .unwrap();
        assert!(
            (packed - alone).abs() < 1e-5 * alone,
            "{document}: {packed} for {alone}"
        );
    }
}

/// Positions of rows of one document each, and of what pads them.
fn positions(rows: usize, document: usize, length: usize) -> Vec<i64> {
    let row = (0..document).chain(0..length - document);
    let row: Vec<i64> = row.map(|at| at as i64).collect();
    row.repeat(rows)
}

#[test]
fn budgets_change_no_bit() {
    for variant in ["plain", "mistral", "gemma2", "gemma3", "phi3-long"] {
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
            DecoderConfig::from_json(&config.to_json()).unwrap(),
            config,
            "{variant}"
        );
        assert_eq!(config.base_prefix(), "model.");
    }
    let json = |field: &str, value: Value| {
        let mut fields = fixture.about["variants"]["llama3"].clone();
        fields[field] = value;
        DecoderConfig::from_json(&fields.to_string()).map_err(|error| error.to_string())
    };
    for (field, value, told) in [
        ("num_key_value_heads", Value::from(3), "num_attention_heads"),
        ("hidden_act", Value::from("tanh"), "silu"),
        ("head_dim", Value::from(7), "even"),
        ("model_type", Value::from("bloom"), "\"qwen3\""),
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
    let tiny = DecoderConfig::preset("llama-1b").unwrap();
    // TinyLlama's.
    assert_eq!(tiny.shape().parameter_count(), 1_100_048_384);
    assert!(DecoderConfig::preset("llama-nano").is_some());
}

/// What Hugging Face's files of whole models say that the small ones here do not.
#[test]
fn families_have_their_own_defaults() {
    let read = |text: &str| DecoderConfig::from_json(text);
    let gemma3 = read(
        r#"{"model_type": "gemma3_text", "num_hidden_layers": 7, "head_dim": 256, "sliding_window": 512,
            "sliding_window_pattern": 6, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "hidden_activation": "gelu_pytorch_tanh"}"#,
    );
    let gemma3 = gemma3.unwrap();
    let shape = gemma3.shape();
    let windows: Vec<bool> = shape
        .layers
        .iter()
        .map(|layer| layer.window.is_some())
        .collect();
    assert_eq!(windows, [true, true, true, true, true, false, true]);
    let ropes: Vec<Option<usize>> = shape.layers.iter().map(|layer| layer.rope).collect();
    assert_eq!(ropes[4..], [Some(1), Some(0), Some(1)]);
    assert_eq!(shape.ropes[1].theta.to_bits(), 10_000.0_f64.to_bits());
    let gate = |text| read(text).unwrap().shape().gate;
    // Gemma's first files say `gelu` and mean its approximation; its later families have a field of their own.
    assert_eq!(
        gate(r#"{"model_type": "gemma", "hidden_act": "gelu"}"#),
        Gate::GeluTanh
    );
    assert_eq!(
        gate(r#"{"model_type": "gemma2", "hidden_act": "gelu"}"#),
        Gate::GeluTanh
    );
    assert_eq!(
        gate(r#"{"model_type": "llama", "hidden_activation": "gelu"}"#),
        Gate::Silu
    );
    // Phi-3 was trained with 4096, whatever it may be used with.
    let phi = r#"{"model_type": "phi3", "max_position_embeddings": 131072, "head_dim": 4, "rope_scaling":
        {"type": "longrope", "short_factor": [1.0, 1.0], "long_factor": [2.0, 2.0]}}"#;
    let (_, scale) = read(phi).unwrap().shape().ropes[0].frequencies(8);
    assert!((scale - 1.190_238).abs() < 1e-5, "{scale}");
    // Mistral's window is 4096 where nothing is said, and none where null is.
    let window = |text| read(text).unwrap().shape().layers[0].window;
    assert_eq!(window(r#"{"model_type": "mistral"}"#), Some(4096));
    assert_eq!(
        window(r#"{"model_type": "mistral", "sliding_window": null}"#),
        None
    );
    assert_eq!(
        window(r#"{"model_type": "qwen2", "sliding_window": 64}"#),
        None
    );
}

/// Configurations that are refused, and words of why.
const REFUSED: &[(&str, &str)] = &[
    (
        r#"{"model_type": "mistral", "sliding_window": 0}"#,
        "1 or more",
    ),
    (
        r#"{"model_type": "gemma2", "layer_types": ["full_attention"]}"#,
        "num_hidden_layers",
    ),
    (
        r#"{"model_type": "mistral", "layer_types": ["full_attention"]}"#,
        "num_hidden_layers",
    ),
    (
        r#"{"model_type": "gemma3_text", "attn_logit_softcapping": 50.0}"#,
        "attn_logit_softcapping",
    ),
    (
        r#"{"model_type": "gemma2", "query_pre_attn_scalar": 0}"#,
        "query_pre_attn_scalar",
    ),
    (
        r#"{"model_type": "qwen3", "layer_types": [3]}"#,
        "layer_types",
    ),
    (
        r#"{"model_type": "phi3", "rope_scaling": {"type": "su", "short_factor": [1.0], "long_factor": [1.0]}}"#,
        "short_factor",
    ),
    (
        r#"{"model_type": "phi3", "partial_rotary_factor": 0.0}"#,
        "partial_rotary_factor",
    ),
    (
        r#"{"model_type": "smollm3", "no_rope_layers": [1]}"#,
        "no_rope_layers",
    ),
    (
        r#"{"model_type": "llama", "num_attention_heads": 0}"#,
        "num_attention_heads",
    ),
    (
        r#"{"model_type": "llama", "num_hidden_layers": 99999999999}"#,
        "num_hidden_layers",
    ),
    (
        r#"{"model_type": "qwen2", "is_causal": false}"#,
        "is_causal",
    ),
    (
        r#"{"model_type": "qwen3", "rope_parameters": {"rope_type": "default"},
                "rope_scaling": {"rope_type": "yarn", "factor": 4}}"#,
        "rope_scaling",
    ),
    (
        r#"{"model_type": "llama", "partial_rotary_factor": 0.5}"#,
        "partial_rotary_factor",
    ),
    (
        r#"{"model_type": "llama", "rope_scaling": {"rope_type": 3}}"#,
        "rope_type",
    ),
    (
        r#"{"model_type": "gemma3_text", "sliding_window_pattern": 0}"#,
        "1 or more",
    ),
    (
        r#"{"model_type": "gemma", "use_bidirectional_attention": true}"#,
        "bidirectional",
    ),
    ("{}", "model_type"),
];

#[test]
fn what_cannot_be_built_is_named() {
    let read = |text: &str| DecoderConfig::from_json(text);
    for &(text, told) in REFUSED {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(told), "{text}: {error}");
    }
}
