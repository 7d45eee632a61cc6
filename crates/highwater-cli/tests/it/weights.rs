//! Weights that no setting mends: every command says which they are, and ends with the same code.

use std::path::Path;

use highwater::{Engine, Module};
use highwater_models::{Decoder, DecoderConfig, save};
use serde_json::{Value, json};

use crate::program::command;
use crate::started::highwater;

fn config() -> Value {
    json!({"model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 64, "tie_word_embeddings": false})
}

/// A model folder, one number of a tensor of which is `value`; all of them if that is finite.
fn folder(dir: &Path, name: &str, tensor: &str, value: Option<f32>) {
    let folder = dir.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let text = config().to_string();
    let engine = Engine::builder().threads(1).seed(1).build().unwrap();
    let model = Decoder::new(&engine, DecoderConfig::from_json(&text).unwrap()).unwrap();
    for (name, parameter) in model.named_parameters() {
        if let Some(value) = value.filter(|_| name == tensor) {
            let mut values: Vec<f32> = parameter.to_vec().unwrap();
            if value.is_finite() {
                values.fill(value);
            }
            values[3] = value;
            parameter.copy_from_slice(&values).unwrap();
        }
    }
    save(&model, folder.join("model.safetensors")).unwrap();
    std::fs::write(folder.join("config.json"), text).unwrap();
    std::fs::write(
        dir.join("text.txt"),
        "the river runs over stones. ".repeat(40),
    )
    .unwrap();
}

/// The program, which fails with this code; gives what it said.
fn fails(dir: &Path, line: &str, code: i32) -> String {
    let (found, results, news) = highwater(dir, line);
    assert_eq!(found, code, "{line}\n{results}{news}");
    assert!(
        !news.contains(".rs:") && !news.contains("panicked"),
        "{line}\n{news}"
    );
    news
}

const DATA: &str = "--data text.txt --batch 1 --seq 32 --memory 1GiB --threads 1";
const NORM: &str = "model.layers.1.input_layernorm.weight";

#[test]
fn numbers_that_are_not_finite_are_named_by_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for (name, value, what) in [
        ("nan", f32::NAN, "NaN"),
        ("inf", f32::INFINITY, "infinite"),
        ("minus", f32::NEG_INFINITY, "infinite"),
    ] {
        folder(dir, name, NORM, Some(value));
        for line in [
            format!("eval --model ./{name} {DATA}"),
            format!("eval --model ./{name} {DATA} --json"),
            format!("generate --model ./{name} --prompt of --tokens 3"),
            format!("generate --model ./{name} --prompt of --tokens 3 --temperature 0"),
            format!("train --model ./{name} {DATA} --steps 1 --out run-{name}"),
            format!("train --model ./{name} --lora 2 {DATA} --steps 1 --out lora-{name}"),
        ] {
            let news = fails(dir, &line, 5);
            assert!(
                news.contains(&format!("{name}/model.safetensors")),
                "{line}\n{news}"
            );
            assert!(news.contains(NORM) && news.contains(what), "{line}\n{news}");
            assert!(!news.contains("--lr"), "{line}\n{news}");
        }
        let news = fails(dir, &format!("export ./{name} --out {name}.gguf"), 4);
        assert!(news.contains(NORM), "{news}");
    }
    std::fs::write(dir.join("asked"), "hello\n").unwrap();
    let line = "chat --model ./nan --chat-template chatml";
    let chat = command(dir, line.split_whitespace())
        .stdin(std::fs::File::open(dir.join("asked")).unwrap())
        .output()
        .unwrap();
    let news = String::from_utf8(chat.stderr).unwrap();
    assert_eq!(chat.status.code(), Some(5), "{news}");
    assert!(news.contains(NORM), "{news}");
}

#[test]
fn finite_weights_that_overflow_are_not_blamed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    folder(dir, "large", "model.norm.weight", Some(3e38));
    let news = fails(dir, &format!("eval --model ./large {DATA}"), 5);
    assert!(news.contains("the loss is not finite"), "{news}");
    let news = fails(dir, "generate --model ./large --prompt of --tokens 3", 5);
    let told = "a logit of the next token is NaN or infinite";
    assert!(news.contains(told), "{news}");
}

#[test]
fn weights_that_are_not_the_models_are_refused_before_anything_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    folder(dir, "m", "", None);
    let mut lie = config();
    lie["num_hidden_layers"] = 1.into();
    std::fs::write(dir.join("m/config.json"), lie.to_string()).unwrap();
    for line in [
        format!("plan --model ./m {DATA}"),
        format!("train --model ./m {DATA} --steps 1 --out run"),
        format!("train --model ./m {DATA} --steps 1 --out run --dry-run"),
        format!("train --model ./m --lora 2 --quantize nf4 {DATA} --steps 1 --out run"),
        format!("eval --model ./m {DATA}"),
        "generate --model ./m --prompt of".to_owned(),
        "export ./m --out m.gguf".to_owned(),
    ] {
        let news = fails(dir, &line, 4);
        let told = "config.json describes 1 layer, and the weights have 2: 9 tensors";
        assert!(
            news.contains(told) && news.contains("hint: "),
            "{line}\n{news}"
        );
        assert!(!dir.join("run").exists() && !dir.join("m.gguf").exists());
    }
}

#[test]
fn hints_fit_the_field_and_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    folder(dir, "m", "", None);
    for (field, value, told) in [
        (
            "rope_scaling",
            json!({"rope_type": "dynamic", "factor": 2.0}),
            "without RoPE scaling",
        ),
        ("model_type", json!("qwen3_moe"), "one of these families"),
        ("quantization_config", json!({"bits": 4}), "unquantized"),
        ("hidden_act", json!("relu"), "supported activation function"),
        ("is_causal", json!(false), "causal (decoder-only)"),
    ] {
        let mut changed = config();
        changed[field] = value;
        std::fs::write(dir.join("m/config.json"), changed.to_string()).unwrap();
        for command in ["plan", "train --steps 1 --out run"] {
            let news = fails(dir, &format!("{command} --model ./m {DATA}"), 2);
            assert!(news.contains(told) && !news.contains("GPT-2"), "{news}");
        }
        let news = fails(dir, "export ./m --out m.gguf", 2);
        assert!(news.contains(told), "{news}");
    }
    std::fs::write(dir.join("m/config.json"), config().to_string()).unwrap();
    let news = fails(
        dir,
        &format!("plan --model ./m {}", DATA.replace("--seq 32", "--seq 128")),
        2,
    );
    assert!(
        news.contains("max_position_embeddings") && !news.contains("n_positions"),
        "{news}"
    );
    let news = fails(dir, "plan --model gpt2-nano --seq 512", 2);
    assert!(news.contains("n_positions"), "{news}");
}

/// A tied model of which some programs keep the head's name alone.
#[test]
fn unread_tensors_are_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    folder(dir, "m", "", None);
    let path = dir.join("m/model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let zeros = [0; 12];
    let more =
        safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![3], &zeros).unwrap();
    let all = tensors.tensors().into_iter();
    let all = all.chain([("model.extra.weight".to_owned(), more)]);
    let file = safetensors::serialize(all, None).unwrap();
    std::fs::write(&path, file).unwrap();
    for line in [
        format!("eval --model ./m {DATA}"),
        "generate --model ./m --prompt of --tokens 2".to_owned(),
        format!("train --model ./m {DATA} --steps 1 --out run"),
        "export ./m --out m.gguf".to_owned(),
    ] {
        let (code, _, news) = highwater(dir, &line);
        assert_eq!(code, 0, "{line}\n{news}");
        let told = "1 tensor of the weights is not read, such as `model.extra.weight`";
        assert_eq!(news.matches(told).count(), 1, "{line}\n{news}");
    }
}
