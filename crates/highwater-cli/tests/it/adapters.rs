//! Runs that train adapters beside a frozen model: the same bits in any budget and wherever they are stopped, PEFT's
//! files, and a model of both.

use std::path::Path;
use std::time::Duration;

use crate::program::command;
use crate::started::highwater;
use highwater::Engine;
use highwater_models::{Decoder, DecoderConfig, save};
use rustix::process::{Pid, Signal, kill_process};

const MODEL: &str = r#"{"model_type": "qwen3", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 64, "tie_word_embeddings": false}"#;
const SETTINGS: &str = "--model ./base --lora 3 --lora-dropout 0.1 --batch 2 --seq 32 --threads 2 --seed 4 --lr 1e-2 \
                        --schedule constant --warmup 0";
const ADAPTERS: &str = "final/adapter_model.safetensors";

/// A model folder, whose weights are drawn from a seed.
fn base(folder: &Path, seed: u64) {
    base_of(MODEL, folder, seed);
}

fn base_of(config: &str, folder: &Path, seed: u64) {
    std::fs::create_dir_all(folder).expect("a folder");
    let engine = Engine::builder()
        .threads(1)
        .seed(seed)
        .build()
        .expect("an engine");
    let model = DecoderConfig::from_json(config).expect("a configuration");
    let model = Decoder::new(&engine, model).expect("a model");
    save(&model, folder.join("model.safetensors")).expect("weights");
    std::fs::write(folder.join("config.json"), config).expect("a configuration");
}

/// Runs the program, which has to end well; answers what it printed.
fn run(dir: &Path, line: &str) -> String {
    let (code, results, news) = highwater(dir, line);
    assert_eq!(code, 0, "{line}\n{news}");
    results
}

fn adapters(dir: &Path, run: &str) -> Vec<u8> {
    std::fs::read(dir.join(run).join(ADAPTERS)).expect("adapters")
}

const LARGE: &str = r#"{"model_type": "qwen3", "vocab_size": 16384, "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "max_position_embeddings": 64, "tie_word_embeddings": false}"#;

fn hidden(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with('.')).collect()
}

#[test]
fn a_merge_that_is_stopped_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base_of(LARGE, &dir.join("base"), 1);
    let tokens: Vec<u8> = (0..4000_u16).flat_map(u16::to_le_bytes).collect();
    std::fs::write(dir.join("tokens.bin"), tokens).expect("tokens");
    let line = "train --model ./base --data tokens.bin --lora 2 --batch 1 --seq 8 --steps 1 --threads 2 --memory 1GiB --out run";
    run(dir, line);
    let out = dir.join("out");
    std::fs::create_dir(&out).expect("a folder");
    for signal in [Signal::TERM, Signal::INT] {
        let begin = || {
            let mut merge = command(dir, ["merge", "run", "--out", "out/model"]);
            merge.spawn().expect("a process")
        };
        let mut child = begin();
        while hidden(&out).is_empty() {
            if child.try_wait().expect("a process").is_some() {
                // It was done before anybody looked.
                std::fs::remove_dir_all(out.join("model")).expect("a model");
                child = begin();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let id = Pid::from_child(&child);
        kill_process(id, signal).expect("a signal");
        let status = child.wait().expect("a process");
        assert_eq!(status.code(), Some(128 + signal.as_raw()));
        assert_eq!(hidden(&out), Vec::<String>::new());
        assert!(!out.join("model").exists());
    }
    run(dir, "merge run --out out/model");
}

#[test]
fn budgets_and_stops_change_no_bit() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(&dir.join("base"), 1);
    run(
        dir,
        &format!("train {SETTINGS} --memory 1GiB --steps 6 --out whole"),
    );
    let whole = adapters(dir, "whole");
    let before = std::fs::read(dir.join("base/model.safetensors")).expect("weights");
    for (name, memory) in [("tight", "42MiB"), ("half", "50MiB")] {
        run(
            dir,
            &format!("train {SETTINGS} --memory {memory} --steps 6 --out {name}"),
        );
        assert!(adapters(dir, name) == whole, "other bits in {memory}");
    }
    run(
        dir,
        &format!("train {SETTINGS} --memory 1GiB --steps 2 --out parts"),
    );
    run(dir, "resume parts --steps 4");
    run(dir, "resume parts --steps 6 --memory 48MiB");
    assert!(adapters(dir, "parts") == whole, "other bits after stops");
    // The settings that it wrote begin the same run again.
    run(dir, "train --config whole/config.toml --out again");
    assert!(
        adapters(dir, "again") == whole,
        "other bits from its settings"
    );
    // What is frozen is not saved, and never written.
    assert!(!dir.join("whole/final/model.safetensors").exists());
    assert!(std::fs::read(dir.join("base/model.safetensors")).expect("weights") == before);
    // Another model under the same name is noticed.
    base(&dir.join("base"), 2);
    let (code, _, news) = highwater(dir, "resume parts --steps 8");
    assert_ne!(code, 0);
    assert!(
        news.contains("base has changed since the run began"),
        "{news}"
    );
}

/// One of which most is weights: 12 MB.
const WIDE: &str = r#"{"model_type": "llama", "vocab_size": 2000, "hidden_size": 192, "intermediate_size": 512,
    "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 4, "torch_dtype": "float32",
    "max_position_embeddings": 64, "tie_word_embeddings": false}"#;

#[test]
fn frozen_weights_wait_in_the_models_own_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base_of(WIDE, &dir.join("base"), 1);
    let tokens = (0..640_u16).flat_map(|i| (i * 3 % 2000).to_le_bytes());
    std::fs::write(dir.join("tokens.bin"), tokens.collect::<Vec<_>>()).expect("tokens");
    let settings = format!("{SETTINGS} --data tokens.bin");
    let file = dir.join("base/model.safetensors");
    let weights = std::fs::read(&file).expect("weights");
    let plan = |line: &str| -> serde_json::Value {
        let (_, results, news) = highwater(dir, &format!("plan {line} --json"));
        serde_json::from_str(&results).unwrap_or_else(|_| panic!("{news}"))
    };
    let held = plan(&settings.replace("--lora 3 --lora-dropout 0.1", ""));
    let told = plan(&format!("{settings} --memory 1GiB"));
    let floor = told["floor_bytes"].as_u64().expect("a floor");
    // Far less than the weights, beside what the process takes itself.
    let saved = held["floor_bytes"].as_u64().expect("a floor") - floor;
    assert!(saved > weights.len() as u64, "{saved}");
    run(
        dir,
        &format!("train {settings} --memory 1GiB --steps 4 --out whole"),
    );
    let whole = adapters(dir, "whole");
    for (name, memory) in [("least", floor), ("more", floor + (6 << 20))] {
        let line = format!("{settings} --memory {memory}");
        let told = plan(&line);
        assert!(told["bytes_read"].as_u64() > Some(1 << 20), "{told}");
        assert_eq!(told["bytes_written"].as_u64(), Some(0));
        run(dir, &format!("train {line} --steps 3 --out {name}"));
        run(dir, &format!("resume {name} --steps 4"));
        // Warmup is none and the schedule constant: stops change nothing.
        assert!(adapters(dir, name) == whole, "other bits in {memory}");
    }
    assert!(std::fs::read(&file).expect("weights") == weights);
    // Weights of a configuration alone are foreseen as its dtype says.
    std::fs::write(dir.join("config.json"), WIDE).expect("a configuration");
    let alone = settings.replace("./base", "config.json");
    let (_, foreseen, news) = highwater(dir, &format!("plan {alone} --memory 1GiB --json"));
    let foreseen: serde_json::Value = serde_json::from_str(&foreseen).expect(&news);
    assert_eq!(foreseen["floor_bytes"].as_u64(), Some(floor));
    // Evaluations have them wait there too.
    let eval = |memory: u64| -> serde_json::Value {
        let line = "eval --model ./base --data tokens.bin --seq 32 --batch 2 --json";
        let results = run(dir, &format!("{line} --memory {memory}"));
        serde_json::from_str(&results).expect("JSON")
    };
    // Less than an evaluation that holds all of them takes.
    let budget = floor + (1 << 20);
    let (small, large) = (eval(budget), eval(1 << 30));
    assert_eq!(small["loss"], large["loss"]);
    let taken = |found: &serde_json::Value| found["peak_rss_bytes"].as_u64();
    assert!(taken(&small) <= Some(budget), "{small}");
    assert!(taken(&large) > taken(&small), "{large} {small}");
}

#[test]
fn adapters_are_merged_and_sampled_from() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(&dir.join("base"), 1);
    run(dir, &format!("train {SETTINGS} --steps 20 --out tuned"));
    let sample = "--prompt of --tokens 8 --temperature 0";
    let tuned = run(dir, &format!("generate tuned {sample}"));
    assert_ne!(
        tuned,
        run(dir, &format!("generate --model ./base {sample}"))
    );
    run(dir, "merge tuned --out merged");
    assert_eq!(
        tuned,
        run(dir, &format!("generate --model ./merged {sample}"))
    );
    // From PEFT's files alone, which name the model.
    run(dir, "merge tuned/final --out again");
    let weights =
        |name: &str| std::fs::read(dir.join(name).join("model.safetensors")).expect("weights");
    assert!(weights("merged") == weights("again"), "other weights");
    // A whole model is written for other programs, adapters are not.
    run(dir, "export merged --out merged.gguf --dtype bf16");
    let written = std::fs::read(dir.join("merged.gguf")).expect("a file");
    assert!(written.starts_with(b"GGUF"));
    for (line, told) in [
        ("export tuned --out other.gguf", "highwater merge tuned"),
        ("export merged --out merged.gguf", "exists already"),
        ("export . --out other.gguf", "config.json"),
    ] {
        let (code, _, news) = highwater(dir, line);
        assert_eq!(code, 2, "{news}");
        assert!(news.contains(told), "{line}: {news}");
        assert!(!dir.join("other.gguf").exists());
    }
    // A run that was stopped is sampled from its saved state.
    std::fs::remove_dir_all(dir.join("tuned/final")).expect("it is there");
    assert_eq!(tuned, run(dir, &format!("generate tuned {sample}")));
    run(dir, "merge tuned --out saved");
    assert!(weights("merged") == weights("saved"), "other weights");
    std::fs::remove_dir_all(dir.join("tuned/checkpoints")).expect("it is there");
    for (line, told) in [
        ("merge tuned --out other", "has not saved anything"),
        ("merge base --out other", "there are no adapters"),
    ] {
        let (code, _, news) = highwater(dir, line);
        assert_eq!(code, 2, "{news}");
        assert!(news.contains(told), "{line}: {news}");
        assert!(!dir.join("other").exists());
    }
}

#[test]
fn half_precision_holds_the_model_in_half() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(&dir.join("base"), 1);
    run(
        dir,
        &format!("train {SETTINGS} --precision bf16 --steps 6 --out low"),
    );
    run(
        dir,
        &format!("train {SETTINGS} --precision bf16 --memory 42MiB --steps 3 --out parts"),
    );
    run(dir, "resume parts --steps 6");
    assert!(adapters(dir, "low") == adapters(dir, "parts"), "other bits");
}

#[test]
fn weights_in_few_bits_change_no_bit_in_any_budget() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(&dir.join("base"), 1);
    let settings = SETTINGS.replace("--lora 3", "--lora 3 --quantize nf4");
    run(dir, &format!("train {settings} --steps 6 --out whole"));
    run(
        dir,
        &format!("train {settings} --steps 3 --memory 42MiB --out parts"),
    );
    run(dir, "resume parts --steps 6");
    assert!(
        adapters(dir, "whole") == adapters(dir, "parts"),
        "other bits"
    );
    let plain = SETTINGS.replace("--lora 3", "--lora 3 --quantize int8");
    run(dir, &format!("train {plain} --steps 6 --out bytes"));
    assert!(adapters(dir, "whole") != adapters(dir, "bytes"));
    run(dir, "merge whole --out merged");
    run(dir, "generate --model ./merged --prompt of --tokens 3");
    // Layers whose names end as others' do.
    let some = SETTINGS.replace(
        "--lora 3",
        "--lora 3 --lora-targets layers.0.self_attn.q_proj",
    );
    run(dir, &format!("train {some} --steps 2 --out some"));
    run(dir, "generate some --prompt of --tokens 3");
}

/// The lengths of rows are those of the weights that are loaded, however these are held.
#[test]
fn magnitudes_begin_as_the_models_and_go_on_after_stops() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(&dir.join("base"), 1);
    for (name, held) in [("plain", ""), ("few", " --quantize nf4")] {
        let settings = SETTINGS.replace("--lora 3", &format!("--lora 3 --lora-dora{held}"));
        // Where nothing is learnt the model is what it was.
        let idle = settings.replace("--lr 1e-2", "--lr 1e-30");
        run(dir, &format!("train {idle} --steps 1 --out {name}-idle"));
        let plain = SETTINGS.replace("--lora 3", &format!("--lora 3{held}"));
        let plain = plain.replace("--lr 1e-2", "--lr 1e-30");
        run(
            dir,
            &format!("train {plain} --steps 1 --out {name}-as-it-was"),
        );
        let sample = "--prompt of --tokens 8 --temperature 0";
        assert_eq!(
            run(dir, &format!("generate {name}-idle {sample}")),
            run(dir, &format!("generate {name}-as-it-was {sample}"))
        );
        run(dir, &format!("train {settings} --steps 6 --out {name}"));
        run(
            dir,
            &format!("train {settings} --steps 3 --memory 42MiB --out {name}-parts"),
        );
        run(dir, &format!("resume {name}-parts --steps 6"));
        let parts = adapters(dir, &format!("{name}-parts"));
        assert!(adapters(dir, name) == parts, "{name}: other bits");
    }
    let sample = "--prompt of --tokens 8 --temperature 0";
    let tuned = run(dir, &format!("generate plain {sample}"));
    run(dir, "merge plain --out merged");
    assert_eq!(
        tuned,
        run(dir, &format!("generate --model ./merged {sample}"))
    );
}

#[test]
fn what_cannot_be_adapted_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(&dir.join("base"), 1);
    for (line, told) in [
        ("train --lora 4", "HW1041"),
        ("train --model ./base --lora 0", "--lora is 0"),
        (
            "train --model ./base --lora 4 --lora-alpha 0",
            "--lora-alpha is 0",
        ),
        (
            "train --model ./base --lora 4 --lora-dropout 1",
            "--lora-dropout is 1",
        ),
        (
            "train --model ./base --lora 4 --lora-targets c_attn",
            "q_proj",
        ),
        ("train --model ./base --lora-alpha 4", "--lora"),
        (
            "plan --model gpt2-nano --lora 4 --lora-targets q_proj",
            "HW1041",
        ),
        (
            "plan --model gpt2-nano --lora 4 --quantize nf4",
            "cannot be quantized",
        ),
        ("train --model ./base --quantize nf4", "--lora"),
    ] {
        let (code, _, news) = highwater(dir, line);
        assert_ne!(code, 0, "{line}");
        assert!(news.contains(told), "{line}: {news}");
        assert!(!dir.join("runs").exists());
    }
    // Whether a model that is not here fits.
    let plan = run(
        dir,
        "plan --model llama-1b --seq 256 --lora 8 --precision bf16 --memory 6GiB",
    );
    assert!(!plan.is_empty());
}
