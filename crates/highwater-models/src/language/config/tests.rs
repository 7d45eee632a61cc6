use super::*;
use crate::Decay;
use proptest::prelude::*;

const FIXTURE: &str = include_str!("../../../../../fixtures/gpt2_nano/config.json");

fn with(field: &str, value: impl Into<Value>) -> Result<Gpt2Config, ConfigError> {
    let mut fields: Map<String, Value> = serde_json::from_str(FIXTURE).unwrap();
    fields.insert(field.to_owned(), value.into());
    Gpt2Config::from_json(&Value::from(fields).to_string())
}

#[test]
fn presets_have_the_published_sizes() {
    let sizes = [
        1_057_152,
        124_439_808,
        354_823_168,
        774_030_080,
        1_557_611_200,
    ];
    for (name, size) in PRESETS.into_iter().zip(sizes) {
        let config = Gpt2Config::preset(name).unwrap();
        config.validate().unwrap();
        assert_eq!(config.parameter_count(), size, "{name}");
        let listed: u64 = config.parameters().map(|p| p.numel()).sum();
        assert_eq!(listed, config.parameter_count());
        assert_eq!(config.parameters().count(), 12 * config.n_layer + 4);
    }
}

#[test]
fn a_misspelt_preset_gets_the_nearest_name() {
    let message = |name| Gpt2Config::preset(name).unwrap_err().to_string();
    assert_eq!(
        message("gpt2-nanno"),
        "there is no preset `gpt2-nanno`; did you mean `gpt2-nano`?"
    );
    assert_eq!(
        message("gtp2"),
        "there is no preset `gtp2`; did you mean `gpt2`?"
    );
    assert_eq!(
        message("xyz"),
        "there is no preset `xyz`; there are gpt2-nano, gpt2, gpt2-medium, gpt2-large, gpt2-xl, \
         llama-nano, llama-1b"
    );
}

#[test]
fn names_and_shapes_are_those_of_the_state_dict() {
    let nano = Gpt2Config::preset("gpt2-nano").unwrap();
    let parameters: Vec<_> = nano.parameters().collect();
    let find = |name: &str| {
        let found = parameters.iter().find(|p| p.name == name);
        found.unwrap_or_else(|| panic!("{name}")).shape.clone()
    };
    assert_eq!(find("transformer.wte.weight"), [256, 128]);
    assert_eq!(find("transformer.wpe.weight"), [256, 128]);
    assert_eq!(find("transformer.h.0.attn.c_attn.weight"), [128, 384]);
    assert_eq!(find("transformer.h.0.attn.c_attn.bias"), [384]);
    assert_eq!(find("transformer.h.4.mlp.c_fc.weight"), [128, 512]);
    assert_eq!(find("transformer.h.4.mlp.c_proj.weight"), [512, 128]);
    assert_eq!(find("transformer.ln_f.bias"), [128]);
    let decayed = |decay: Decay| {
        let decayed = parameters.iter().filter(|p| decay.applies_to(&p.shape));
        decayed.count()
    };
    assert_eq!(decayed(Decay::Matrices), 2 + 4 * 5);
    assert_eq!(decayed(Decay::All), parameters.len());
}

#[test]
fn reads_and_writes_hugging_face_files() {
    let read = Gpt2Config::from_json(FIXTURE).unwrap();
    assert_eq!(read.torch_dtype.as_deref(), Some("bfloat16"));
    let preset = Gpt2Config {
        torch_dtype: read.torch_dtype.clone(),
        // The demonstration's own; the file has Hugging Face's.
        initializer_range: 0.02,
        ..Gpt2Config::preset("gpt2-nano").unwrap()
    };
    assert_eq!(read, preset);
    assert_eq!(Gpt2Config::from_json(&read.to_json()).unwrap(), read);
    // Hugging Face's own defaults, where a file says nothing.
    let bare = Gpt2Config::from_json(r#"{"model_type": "gpt2"}"#).unwrap();
    assert_eq!((bare.n_layer, bare.resid_pdrop), (12, 0.1));
}

#[test]
fn an_error_in_a_file_names_both() {
    let files = highwater_memory::files::MemoryFiles::new();
    let path = Path::new("/config.json");
    let missing = Gpt2Config::read(&files, path).unwrap_err();
    assert!(matches!(missing, ConfigError::Files(_)));
    let write = |text: &str| {
        files
            .create(path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        Gpt2Config::read(&files, path)
    };
    assert_eq!(write(FIXTURE).unwrap().n_layer, 5);
    let error = write(r#"{"model_type": "gpt2", "n_head": 5}"#).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/config.json: `n_head` is 5; expected a divisor of n_embd, 768"
    );
    let error = write(&" ".repeat(2 << 20)).unwrap_err().to_string();
    assert!(error.starts_with("/config.json: 2097152 bytes"), "{error}");
}

#[test]
fn unknown_fields_are_kept() {
    let config = with("task_specific_params", serde_json::json!({"a": [1, 2]})).unwrap();
    let back = Gpt2Config::from_json(&config.to_json()).unwrap();
    assert_eq!(back.other["task_specific_params"]["a"][1], 2);
    assert_eq!(back, config);
}

#[test]
fn what_cannot_be_built_is_refused_by_name() {
    for (field, value) in [
        ("vocab_size", Value::from(0)),
        ("vocab_size", Value::from(1_u64 << 40)),
        ("vocab_size", Value::from(-1)),
        ("vocab_size", Value::from("256")),
        ("vocab_size", Value::from(256.5)),
        ("n_positions", Value::from(1_u64 << 40)),
        ("n_embd", Value::from(u64::MAX)),
        ("n_layer", Value::from(0)),
        ("n_layer", Value::from(100_000)),
        ("n_head", Value::from(3)),
        ("n_head", Value::from(0)),
        ("n_inner", Value::from(0)),
        ("resid_pdrop", Value::from(1.0)),
        ("attn_pdrop", Value::from(-0.1)),
        ("layer_norm_epsilon", Value::from(0.0)),
        ("initializer_range", Value::from(-1.0)),
        ("model_type", Value::from("llama")),
        ("model_type", Value::Null),
        ("activation_function", Value::from("silu")),
        ("tie_word_embeddings", Value::from(false)),
        ("scale_attn_weights", Value::from(false)),
        ("scale_attn_by_inverse_layer_idx", Value::from(true)),
        ("add_cross_attention", Value::from(true)),
        ("quantization_config", serde_json::json!({"bits": 4})),
    ] {
        let error = with(field, value.clone()).expect_err(field).to_string();
        assert!(error.contains(field), "{field} = {value}: {error}");
    }
    let error = Gpt2Config::from_json("[1]").unwrap_err();
    assert!(matches!(error, ConfigError::Json { .. }), "{error}");
}

#[test]
fn the_total_is_limited_too() {
    let giant = Gpt2Config {
        n_embd: 1 << 16,
        n_layer: 1 << 10,
        n_head: 256,
        ..Gpt2Config::default()
    };
    let refused = giant.validate().unwrap_err().to_string();
    assert!(refused.contains("parameters, and may have"), "{refused}");
}

proptest! {
    #[test]
    fn any_valid_extents_survive_the_file(
        (vocab_size, n_positions, n_layer) in (1_usize..1000, 1_usize..1000, 1_usize..20),
        (n_head, width) in (1_usize..8, 1_usize..32),
        n_inner in proptest::option::of(1_usize..512),
    ) {
        let n_embd = n_head * width;
        let config = Gpt2Config {
            vocab_size, n_positions, n_embd, n_layer, n_head, n_inner,
            ..Gpt2Config::default()
        };
        config.validate().unwrap();
        prop_assert_eq!(&Gpt2Config::from_json(&config.to_json()).unwrap(), &config);
        let listed: u64 = config.parameters().map(|p| p.numel()).sum();
        prop_assert_eq!(listed, config.parameter_count());
    }

    #[test]
    fn no_text_panics(text in r#"[\[\]{}":,0-9a-z_ -]{0,80}"#) {
        let _ = Gpt2Config::from_json(&text);
    }
}
