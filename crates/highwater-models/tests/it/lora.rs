//! Adapters as PEFT computes them: logits, gradients and twenty losses beside frozen models of `decoders.rs`;
//! files that PEFT reads; the same bits in every budget. `fixtures/make_lora.py` says what is compared with.

use std::path::{Path, PathBuf};

use highwater::nn::{LoraOptions, QuantizedLinear, TransposedLinear, add_adapters, merge_adapters};
use highwater::op::WeightFormat;
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Builder, DType, Engine, Module, Parameter, Tensor, no_grad};
use highwater_memory::files::MemoryFiles;
use highwater_memory::{DiskFiles, Files};
use highwater_models::adapter::{CONFIG, adapter_parameters};
use highwater_models::{
    CausalLm, Decoder, DecoderConfig, Gpt2, Gpt2Config, WeightsReader, load_adapter, save_adapter,
};
use serde_json::Value;

const VARIANTS: [&str; 6] = [
    "attention",
    "all",
    "fused",
    "dora",
    "transposed",
    "transposed-dora",
];
const SHAPE: [usize; 2] = [2, 40];

fn fixture(name: &str) -> (WeightsReader, Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let path: PathBuf = path.join(format!("{name}.safetensors"));
    let file = WeightsReader::open(&DiskFiles, &path).unwrap();
    let about = serde_json::from_str(&file.metadata()[name]).unwrap();
    (file, about)
}

fn floats(file: &mut WeightsReader, name: &str) -> Vec<f32> {
    let shape = file.tensors()[name].shape.clone();
    let mut values = vec![0.0; shape.iter().product()];
    file.read_f32(name, &shape, &mut values).unwrap();
    values
}

fn fill(file: &mut WeightsReader, name: &str, parameter: &Parameter) {
    parameter.copy_from_slice(&floats(file, name)).unwrap();
}

fn options(variant: &str) -> LoraOptions {
    let settings = &fixture("lora").1["variants"][variant];
    let target_modules = match &settings["target_modules"] {
        Value::String(all) => vec![all.clone()],
        names => serde_json::from_value(names.clone()).unwrap(),
    };
    LoraOptions {
        r: settings["r"].as_u64().unwrap() as usize,
        lora_alpha: settings["lora_alpha"].as_f64().unwrap(),
        lora_dropout: 0.0,
        target_modules,
        use_rslora: settings["use_rslora"].as_bool().unwrap_or(false),
        use_dora: settings["use_dora"].as_bool().unwrap_or(false),
    }
}

/// A model of either kind.
enum Model {
    Decoder(Decoder),
    Gpt2(Gpt2),
}

impl std::ops::Deref for Model {
    type Target = dyn CausalLm;

    fn deref(&self) -> &(dyn CausalLm + 'static) {
        match self {
            Self::Decoder(model) => model,
            Self::Gpt2(model) => model,
        }
    }
}

/// The frozen model.
fn base(engine: &Engine, variant: &str) -> Model {
    let (own, about) = fixture("lora");
    let name = about["variants"][variant]["model"].as_str().unwrap();
    let (mut file, prefix, model) = if name == "gpt2" {
        let config = Gpt2Config::from_json(&about["gpt2"].to_string()).unwrap();
        let model = Model::Gpt2(Gpt2::new(engine, config).unwrap());
        (own, "gpt2".to_owned(), model)
    } else {
        let (file, about) = fixture("decoders");
        let config = DecoderConfig::from_json(&about["variants"][name].to_string()).unwrap();
        let model = Model::Decoder(Decoder::new(engine, config).unwrap());
        (file, format!("{name}.weight"), model)
    };
    for (name, parameter) in model.named_parameters() {
        if !engine.is_dry_run() {
            fill(&mut file, &format!("{prefix}.{name}"), &parameter);
        }
    }
    model
}

/// The same with adapters as the fixture has them, and the layers that have one.
fn adapted(engine: &Engine, variant: &str) -> (Model, Vec<String>) {
    let model = base(engine, variant);
    let layers = add_adapters(&*model, &options(variant)).unwrap();
    let (mut file, _) = fixture("lora");
    for (name, parameter) in adapter_parameters(&*model) {
        if !engine.is_dry_run() {
            fill(&mut file, &format!("{variant}.weight.{name}"), &parameter);
        }
    }
    (model, layers)
}

fn batches(engine: &Engine, name: &str) -> Vec<Tensor> {
    let (mut file, _) = fixture("decoders");
    let count: usize = file.tensors()[name].shape.iter().product();
    let mut bytes = vec![0; 8 * count];
    file.read_bytes(name, &mut bytes).unwrap();
    let (words, _) = bytes.as_chunks();
    let tokens: Vec<u32> = words
        .iter()
        .map(|&word| i64::from_le_bytes(word) as u32)
        .collect();
    let each = SHAPE.iter().product();
    tokens
        .chunks(each)
        .map(|batch| engine.indices(batch, SHAPE).unwrap())
        .collect()
}

fn logits(model: &Model) -> Vec<f32> {
    let tokens = batches(model.engine(), "tokens").remove(0);
    let logits = no_grad(|| match model {
        Model::Decoder(model) => model.logits(&tokens),
        Model::Gpt2(model) => model.logits(&tokens),
    });
    logits.unwrap().to_vec().unwrap()
}

#[track_caller]
fn assert_near(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let off = (found - expected).abs();
        assert!(
            off <= tolerance * scale,
            "{what}[{i}]: {found}, expected {expected}"
        );
    }
}

fn optimizer(model: &dyn CausalLm) -> AdamW {
    let about = fixture("decoders").1;
    let options = crate::adamw::options(&about);
    let trained = adapter_parameters(model)
        .into_iter()
        .map(|(_, parameter)| parameter);
    AdamW::new(trained.collect(), options).unwrap()
}

/// Tensors by name.
type Named = Vec<(String, Vec<f32>)>;

/// Losses of some steps, and the gradients of the first by PEFT's names.
fn train(builder: Builder, variant: &str, steps: usize) -> (Engine, Vec<f32>, Named) {
    let engine = builder.threads(2).build().unwrap();
    let (model, _) = adapted(&engine, variant);
    let mut adamw = optimizer(&*model);
    let (tokens, targets) = (batches(&engine, "tokens"), batches(&engine, "targets"));
    let (mut losses, mut gradients) = (Vec::new(), Vec::new());
    for step in 0..steps {
        let loss = model.loss(&tokens[step / 2], &targets[step / 2]).unwrap();
        loss.backward().unwrap();
        adamw.step_keep_grads().unwrap();
        if engine.is_dry_run() {
            break;
        }
        if step == 0 {
            for (name, parameter) in adapter_parameters(&*model) {
                gradients.push((name, parameter.grad().unwrap().to_vec().unwrap()));
            }
            // What is frozen has none.
            let frozen = model.named_parameters().into_iter();
            let frozen = frozen.filter(|(_, p)| !p.requires_grad().unwrap());
            assert!(
                frozen
                    .inspect(|(name, p)| assert!(p.grad().is_none(), "{name}"))
                    .count()
                    > 10
            );
        }
        adamw.zero_grad();
        losses.push(loss.item().unwrap());
    }
    (engine, losses, gradients)
}

#[test]
fn logits_gradients_and_losses_are_pefts() {
    for variant in VARIANTS {
        let (mut file, _) = fixture("lora");
        let engine = Engine::builder().threads(2).build().unwrap();
        let expected = floats(&mut file, &format!("{variant}.logits"));
        let (model, _) = adapted(&engine, variant);
        assert_near(
            &format!("{variant}: logits"),
            &logits(&model),
            &expected,
            1e-5,
        );
        let (_, losses, gradients) = train(Engine::builder(), variant, 20);
        for (name, gradient) in &gradients {
            let expected = floats(&mut file, &format!("{variant}.grad.{name}"));
            assert_near(&format!("{variant}: {name}"), gradient, &expected, 5e-5);
        }
        let expected = floats(&mut file, &format!("{variant}.losses"));
        assert_near(&format!("{variant}: losses"), &losses, &expected, 1e-4);
        assert!(losses[19] < losses[0]);
    }
}

#[test]
fn budgets_change_no_bit() {
    for variant in VARIANTS {
        let (dry, ..) = train(Engine::builder().arena(1 << 40).dry_run(), variant, 1);
        let plan = dry.forecast().unwrap();
        let (least, most) = (plan.floor_bytes, plan.peak_bytes);
        let run = |budget| {
            let (_, losses, gradients) = train(Engine::builder().arena(budget), variant, 3);
            let gradients = gradients.into_iter().flat_map(|(_, values)| values);
            let all = losses.into_iter().chain(gradients);
            all.map(f32::to_bits).collect::<Vec<_>>()
        };
        let plenty = run(most);
        for budget in [least, u64::midpoint(least, most)] {
            assert!(run(budget) == plenty, "{variant} in {budget}");
        }
    }
}

#[test]
fn adapters_are_saved_loaded_and_merged() {
    let engine = Engine::builder().threads(2).build().unwrap();
    for variant in VARIANTS {
        let (model, layers) = adapted(&engine, variant);
        let expected = logits(&model);
        let (files, folder) = (MemoryFiles::new(), Path::new("/adapter"));
        let base_name = Some("some/model");
        save_adapter(&files, folder, &*model, &options(variant), base_name).unwrap();
        let other = base(&engine, variant);
        assert!(logits(&other) != expected);
        assert_eq!(load_adapter(&files, folder, &*other).unwrap(), layers);
        assert!(logits(&other) == expected, "{variant}");
        // Nothing trains but adapters; a second one is refused.
        assert!(load_adapter(&files, folder, &*other).is_err());
        assert_eq!(merge_adapters(&*other).unwrap(), layers.len());
        assert!(adapter_parameters(&*other).is_empty());
        assert_near(
            &format!("{variant}: merged"),
            &logits(&other),
            &expected,
            1e-5,
        );
        assert_eq!(merge_adapters(&*other).unwrap(), 0);
    }
}

#[test]
fn what_is_not_built_is_refused_by_name() {
    let engine = Engine::builder().build().unwrap();
    let model = base(&engine, "attention");
    let good = r#"{"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"]}"#;
    for (change, told) in [
        (("peft_type", "\"IA3\""), "peft_type"),
        (("bias", "\"all\""), "bias"),
        (("use_qalora", "true"), "use_qalora"),
        (("modules_to_save", "[\"lm_head\"]"), "modules_to_save"),
        (("init_lora_weights", "\"pissa\""), "init_lora_weights"),
        (
            ("alora_invocation_tokens", "[3]"),
            "alora_invocation_tokens",
        ),
        (("target_modules", "[\"q_proj\", \"c_attn\"]"), "c_attn"),
        (("rank_pattern", "{\"q_proj\": 3}"), "rank_pattern"),
        (("target_modules", "\".*proj\""), "target_modules"),
        (("target_modules", "[]"), "no linear layer"),
        (("target_modules", "[\"c_attn\"]"), "k_proj"),
        (("target_modules", "[3]"), "target_modules"),
        (("r", "0"), "r must be 1 or more"),
        (("r", "-1"), "`r`"),
        (("lora_alpha", "\"x\""), "lora_alpha"),
        (("lora_dropout", "1.5"), "dropout"),
        (("r", "[1"), "JSON"),
        // The settings are right, and there are no weights.
        (("lora_dropout", "0"), "adapter_model.safetensors"),
    ] {
        let ((field, value), files) = (change, MemoryFiles::new());
        let mut fields: Value = serde_json::from_str(good).unwrap();
        let text = match serde_json::from_str::<Value>(value) {
            Ok(value) => {
                fields[field] = value;
                fields.to_string()
            }
            Err(_) => format!("{{\"{field}\": {value}}}"),
        };
        let folder = Path::new("/adapter");
        files.create_dir_all(folder).unwrap();
        let mut file = files.create(&folder.join(CONFIG)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.sync_all().unwrap();
        let error = load_adapter(&files, folder, &*model)
            .unwrap_err()
            .to_string();
        assert!(error.contains(told), "{text}: {error}");
    }
}

/// What is dropped changes little where next to nothing is, though the sum is another one then.
#[test]
fn magnitudes_with_dropout_are_those_without() {
    let engine = Engine::builder().seed(2).build().unwrap();
    for bias in [true, false] {
        let linear = highwater::nn::Linear::new(&engine, 48, 32, bias).unwrap();
        let held = QuantizedLinear::quantize(&linear, WeightFormat::Nf4).unwrap();
        let turned = vec![TransposedLinear::new(&engine, 48, 32, 0.3).unwrap()];
        let (linear, held) = (vec![linear], vec![held]);
        let x = Tensor::randn(&engine, [8, 48]).unwrap();
        let layers: [(&dyn Module, &dyn Fn() -> Tensor); 3] = [
            (&linear, &|| linear[0].forward(&x).unwrap()),
            (&held, &|| held[0].forward(&x).unwrap()),
            (&turned, &|| turned[0].forward(&x).unwrap()),
        ];
        for (layer, answer) in layers {
            let before: Vec<f32> = answer().to_vec().unwrap();
            let options = LoraOptions {
                use_dora: true,
                lora_dropout: 1e-7,
                ..LoraOptions::default()
            };
            add_adapters(layer, &options).unwrap();
            // Magnitudes begin as those of the weight.
            assert_near(
                "at first",
                &answer().to_vec::<f32>().unwrap(),
                &before,
                1e-5,
            );
            for (i, (_, parameter)) in adapter_parameters(layer).into_iter().enumerate() {
                let mut values: Vec<f32> = parameter.to_vec().unwrap();
                let mut noise = vec![0.0; values.len()];
                highwater::philox::fill_normal(7, (i as u64) << 32, &mut noise);
                for (value, noise) in values.iter_mut().zip(noise) {
                    *value += 0.3 * noise;
                }
                parameter.copy_from_slice(&values).unwrap();
            }
            let dropping: Vec<f32> = answer().to_vec().unwrap();
            assert!(dropping != before);
            layer.eval();
            let idle: Vec<f32> = answer().to_vec().unwrap();
            assert_near("with dropout", &dropping, &idle, 1e-5);
            layer.train(true);
        }
    }
}

/// QLoRA: adapters beside a weight in few bits; in half precision they are of `F32`.
#[test]
fn adapters_train_beside_weights_in_few_bits_and_in_half_precision() {
    let engine = Engine::builder().seed(3).build().unwrap();
    let linear = highwater::nn::Linear::new(&engine, 64, 32, true).unwrap();
    let held = QuantizedLinear::quantize(&linear, WeightFormat::Nf4).unwrap();
    let x = Tensor::randn(&engine, [8, 64]).unwrap();
    let target = Tensor::randn(&engine, [8, 32]).unwrap();
    let layers = vec![held];
    add_adapters(&layers, &LoraOptions::default()).unwrap();
    let adapters: Vec<Parameter> = adapter_like(&layers);
    assert!(adapters.iter().all(|adapter| adapter.dtype() == DType::F32));
    let mut adamw = AdamW::new(
        adapters,
        AdamWOptions {
            lr: 0.02,
            ..AdamWOptions::default()
        },
    )
    .unwrap();
    let mut losses = Vec::new();
    for dtype in [DType::F32, DType::BF16].repeat(20) {
        let loss = highwater::autocast(dtype, || {
            let error = layers[0].forward(&x)?.to_dtype(DType::F32)?.sub(&target)?;
            error.square()?.mean()
        });
        let loss = loss.unwrap();
        loss.backward().unwrap();
        adamw.step().unwrap();
        losses.push(loss.item().unwrap());
    }
    assert!(losses[39] < 0.5 * losses[0], "{losses:?}");
    let error = merge_adapters(&layers).unwrap_err().to_string();
    assert!(error.contains("few bits"), "{error}");
}

fn adapter_like(module: &impl Module) -> Vec<Parameter> {
    adapter_parameters(module)
        .into_iter()
        .map(|(_, parameter)| parameter)
        .collect()
}

/// A decoder whose projections are in few bits is near the one that they were made of, in every family's shape.
#[test]
fn decoders_in_few_bits_are_near_the_whole_ones() {
    let engine = Engine::builder().threads(2).build().unwrap();
    for variant in VARIANTS {
        let Model::Decoder(whole) = base(&engine, variant) else {
            continue;
        };
        let few = Decoder::quantized(&engine, whole.config().clone(), WeightFormat::Int8).unwrap();
        let held = few.held();
        assert!(held.len() >= 8, "{variant}: {}", held.len());
        let weights: std::collections::BTreeMap<_, _> =
            whole.named_parameters().into_iter().collect();
        for (name, layer) in &held {
            let weight = weights[&format!("{name}.weight")]
                .to_dtype(DType::F32)
                .unwrap();
            let (weight, width) = (weight.to_vec::<f32>().unwrap(), layer.weight_shape()[1]);
            layer
                .fill(|row, to| to.copy_from_slice(&weight[row * width..][..width]))
                .unwrap();
        }
        for (name, parameter) in few.named_parameters() {
            let same = weights
                .get(&name)
                .filter(|own| own.dims() == parameter.dims());
            if let Some(own) = same.filter(|own| own.dtype() == parameter.dtype()) {
                parameter
                    .copy_from_slice(&own.to_vec::<f32>().unwrap())
                    .unwrap();
            }
        }
        assert_near(
            &format!("{variant}: few bits"),
            &logits(&Model::Decoder(few)),
            &logits(&Model::Decoder(whole)),
            0.05,
        );
    }
}

/// Names of layers that others share the end of are written whole.
#[test]
fn some_layers_of_a_name_are_saved_as_those() {
    let engine = Engine::builder().build().unwrap();
    let model = base(&engine, "attention");
    model.eval();
    let options = LoraOptions {
        r: 2,
        lora_dropout: 0.5,
        target_modules: vec!["0.self_attn.q_proj".into(), "layers.1.mlp.up_proj".into()],
        ..LoraOptions::default()
    };
    let layers = add_adapters(&*model, &options).unwrap();
    assert_eq!(
        layers,
        [
            "model.layers.0.self_attn.q_proj",
            "model.layers.1.mlp.up_proj"
        ]
    );
    for (_, adapter) in adapter_parameters(&*model) {
        adapter
            .copy_from_slice(&vec![0.3; adapter.shape().numel()])
            .unwrap();
    }
    // A model that is evaluated drops nothing.
    assert_eq!(logits(&model), logits(&model));
    let (files, folder) = (MemoryFiles::new(), Path::new("/adapter"));
    save_adapter(&files, folder, &*model, &options, None).unwrap();
    let other = base(&engine, "attention");
    other.eval();
    assert_eq!(load_adapter(&files, folder, &*other).unwrap(), layers);
    assert_eq!(logits(&other), logits(&model));
    // Of another model: nothing has changed.
    let another = base(&engine, "fused");
    let error = load_adapter(&files, folder, &*another)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no linear layer") || error.contains("is missing"),
        "{error}"
    );
    assert!(adapter_parameters(&*another).is_empty());
    assert!(
        another
            .parameters()
            .iter()
            .all(|p| p.requires_grad().unwrap())
    );
}
