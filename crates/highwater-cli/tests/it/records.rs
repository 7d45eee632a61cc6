//! Runs on examples: conversations with a template, packed and shuffled. The bits are the same in any budget and
//! wherever a run is stopped. The tokens that the loss is computed on are shown, and mistakes are reported.

use crate::outcome;
use std::path::Path;
use std::time::Duration;

use crate::outcome::outcome;
use crate::program::{end, highwater as spawn, news};
use crate::share::some;
use crate::started::highwater;
use highwater::{Engine, philox};
use highwater_models::{Decoder, DecoderConfig, save};
use rustix::process::{Pid, Signal, kill_process};

const STEPS: usize = 8;
/// How often a run is stopped.
const STOPS: usize = 15;
const SETTINGS: &str = "--model ./base --data chats.jsonl --batch 2 --accumulate 2 --seq 128 --threads 2 --seed 4 \
                        --lr 1e-2 --val 10% --steps 8 --save-every 3";

/// A model folder with a tokenizer of 300 tokens and a template.
pub(crate) fn base(dir: &Path) {
    let chat = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/chat.json");
    let text = std::fs::read_to_string(chat).expect("a fixture");
    let chat: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let folder = dir.join("base");
    std::fs::create_dir_all(&folder).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file");
    write("tokenizer.json", &chat["tokenizer"].to_string());
    write("tokenizer_config.json", &chat["special"].to_string());
    let template = chat["templates"]["heads"][1].as_str().expect("a template");
    write("chat_template.jinja", template);
    let model = r#"{"model_type": "qwen3", "vocab_size": 400, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 256, "tie_word_embeddings": true}"#;
    write("config.json", model);
    let engine = Engine::builder()
        .threads(1)
        .seed(1)
        .build()
        .expect("an engine");
    let config = DecoderConfig::from_json(model).expect("a configuration");
    let model = Decoder::new(&engine, config).expect("a model");
    save(&model, folder.join("model.safetensors")).expect("weights");
    let lines = (0..60).map(|i| {
        let asked = "how much memory ".repeat(1 + i % 3);
        let said = format!("{i} pages. ").repeat(1 + i % 4);
        serde_json::json!({"messages": [
            {"role": "user", "content": asked}, {"role": "assistant", "content": said},
        ]})
        .to_string()
    });
    let lines: Vec<_> = lines.collect();
    std::fs::write(dir.join("chats.jsonl"), lines.join("\n")).expect("data");
}

/// Runs the program, which has to end well; answers what it printed.
fn run(dir: &Path, line: &str) -> (String, String) {
    let (code, results, news) = highwater(dir, line);
    assert_eq!(code, 0, "{line}\n{news}");
    (results, news)
}

/// What begins a run, or goes on with it.
fn next_line(run: &Path, name: &str, more: &str) -> String {
    if run.join("config.toml").exists() {
        return format!("resume {name}");
    }
    format!("train {SETTINGS} {more} --memory 1GiB --out {name}")
}

/// A run that was stopped at random times, by one signal or another, and gone on with until it ended. Whenever it
/// ends before all of that, it begins anew.
fn stopped(dir: &Path, name: &str, more: &str) {
    let run = dir.join(name);
    let mut when = vec![0.0; STOPS];
    philox::fill_uniform(11, 0, &mut when);
    let signals = [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL];
    let mut longest = 1.0_f32;
    for (when, signal) in when.into_iter().zip(signals.into_iter().cycle()) {
        let line = next_line(&run, name, more);
        let child = spawn(dir, &line).spawn().unwrap();
        std::thread::sleep(Duration::from_secs_f32(longest * when));
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&child), signal);
        let code = end(child);
        assert!(
            matches!(code, None | Some(0 | 129 | 130 | 143)),
            "{code:?}: {}",
            news(dir)
        );
        if code == Some(0) {
            std::fs::remove_dir_all(&run).unwrap();
            longest *= 0.8;
        }
    }
    self::run(dir, &next_line(&run, name, more));
}

#[test]
fn budgets_and_stops_change_no_bit() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(dir);
    for (kind, more) in [("full", ""), ("lora", "--lora 3 --lora-dropout 0.1")] {
        let name = |name: &str| format!("{kind}-{name}");
        let (_, news) = run(
            dir,
            &format!(
                "train {SETTINGS} {more} --memory 1GiB --out {}",
                name("whole")
            ),
        );
        assert!(news.contains("60 examples:"), "{news}");
        let whole = outcome(&dir.join(name("whole")), STEPS);
        let tight = format!(
            "train {SETTINGS} {more} --memory 96MiB --out {}",
            name("tight")
        );
        run(dir, &tight);
        outcome::assert_same(
            &outcome(&dir.join(name("tight")), STEPS),
            &whole,
            "in 96 MiB",
        );
        stopped(dir, &name("stopped"), more);
        let found = outcome(&dir.join(name("stopped")), STEPS);
        outcome::assert_same(&found, &whole, "stopped");
        // The settings that it wrote begin the same run again.
        run(
            dir,
            &format!(
                "train --config {0}/config.toml --out {0}-again",
                name("whole")
            ),
        );
        outcome::assert_same(
            &outcome(&dir.join(name("whole-again")), STEPS),
            &whole,
            "again",
        );
    }
    // What transformers needs is beside the weights.
    for name in [
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    ] {
        let of = |folder: &str| std::fs::read(dir.join(folder).join(name)).expect("a file");
        assert!(of("base") == of("full-whole/final"), "{name}");
        assert!(of("base") == of("lora-whole/final"), "{name}");
    }
}

#[test]
fn what_is_learnt_is_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(dir);
    let (shown, _) = run(dir, "data show chats.jsonl --model ./base -n 2");
    assert!(
        shown.contains("format: conversations (messages); template: ./base/chat_template.jinja"),
        "{shown}"
    );
    assert!(shown.contains("--- chats.jsonl, line 2:"), "{shown}");
    assert!(
        shown.contains("assistant<|/head|>\n\n\u{27E6}0 pages.<|eot|>\u{27E7}"),
        "{shown}"
    );
    let (all, _) = run(
        dir,
        "data show chats.jsonl --model ./base -n 1 --loss-on all --chat-template chatml",
    );
    assert!(all.contains("<|im_start|>\u{27E6}user\n"), "{all}");
    // Every record is read as the first one says, or refused with its place.
    let bad = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n\
               {\"messages\": [{\"role\": \"robot\", \"content\": \"a\"}]}\n";
    std::fs::write(dir.join("bad.jsonl"), bad).expect("data");
    for line in [
        "data show bad.jsonl --model ./base",
        "train --model ./base --data bad.jsonl --seq 64 --memory 1GiB --out bad",
    ] {
        let (code, _, news) = highwater(dir, line);
        assert_eq!(code, 4, "{news}");
        assert!(
            news.contains("bad.jsonl, line 2: the role of messages[0] is \"robot\""),
            "{news}"
        );
    }
    assert!(!dir.join("bad").exists());
}

#[test]
fn fields_of_other_names_and_formats_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(dir);
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).expect("data");
    write(
        "table.csv",
        "id,frage,antwort\n1,\"what, and why\",because\n2,who,nobody\n",
    );
    write(
        "alpaca.json",
        r#"[{"instruction": "add", "input": "1 2", "output": "3"}]"#,
    );
    write(
        "share.jsonl",
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", \"value\": \"b\"}]}",
    );
    write(
        "ids.jsonl",
        "{\"input_ids\": [20, 21, 22], \"labels\": [-100, 21, 22]}",
    );
    write("text.jsonl", "{\"text\": \"water\"}");
    for (line, expected) in [
        (
            "table.csv --map prompt=frage --map completion=antwort",
            "what, and why\u{27E6}because</s>\u{27E7}",
        ),
        (
            "alpaca.json",
            "add\n\n1 2<|eot|><|head|>assistant<|/head|>\n\n\u{27E6}3<|eot|>\u{27E7}",
        ),
        ("share.jsonl", "\u{27E6}b<|eot|>\u{27E7}"),
        ("ids.jsonl", "3 tokens, loss on 2"),
        ("text.jsonl", "</s>\u{27E7}"),
    ] {
        let (shown, _) = run(dir, &format!("data show {line} --model ./base"));
        assert!(shown.contains(expected), "{line}: {shown}");
        run(
            dir,
            &format!(
                "train --data {line} --model ./base --seq 32 --batch 1 --steps 1 --memory 1GiB --force --out one"
            ),
        );
    }
    for (line, told) in [
        ("table.csv", "prompt and completion"),
        ("table.csv --map promt=frage", "no field is called promt"),
        ("table.csv --map prompt=fragen", "there is no field fragen"),
        ("text.jsonl --no-packing --map text", "expected NAME=FIELD"),
    ] {
        let (code, _, news) = highwater(dir, &format!("data show {line} --model ./base"));
        assert_ne!(code, 0);
        assert!(news.contains(told), "{line}: {news}");
    }
}

/// Questions with two answers each.
fn pairs(dir: &Path) {
    let lines = (0..24).map(|i| {
        let asked = serde_json::json!([{"role": "user", "content": format!("how many {i}")}]);
        let said = |text: &str| serde_json::json!([{"role": "assistant", "content": text}]);
        let (good, bad) = ("some pages", ["none", "all of it, and more"][i % 2]);
        serde_json::json!({"prompt": asked, "chosen": said(good), "rejected": said(bad)})
            .to_string()
    });
    let lines: Vec<_> = lines.collect();
    std::fs::write(dir.join("pairs.jsonl"), lines.join("\n")).expect("data");
}

#[test]
fn pairs_of_answers_are_learnt_from() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(dir);
    pairs(dir);
    let settings = "--model ./base --data pairs.jsonl --batch 2 --accumulate 2 --seq 96 --threads 2 --seed 4 --lr 3e-3 \
                    --val 10%";
    let (shown, _) = run(dir, "data show pairs.jsonl --pairs --model ./base -n 1");
    assert!(
        shown.contains("\u{27E6}some pages<|eot|>\u{27E7}"),
        "{shown}"
    );
    assert!(shown.contains("\u{27E6}none<|eot|>\u{27E7}"), "{shown}");
    for (kind, more) in some([
        ("dpo", "--preference dpo"),
        ("dpo-lora", "--preference dpo --lora 4 --lora-dropout 0.1"),
        ("orpo", "--preference orpo --beta 0.3"),
    ]) {
        let (_, news) = run(
            dir,
            &format!(
                "train {settings} {more} --memory 1GiB --steps 8 --schedule constant --warmup 0 --out {kind}"
            ),
        );
        assert!(news.contains("held-out loss after"), "{news}");
        assert!(
            news.contains("accuracy 100.0% (of 2 pairs)"),
            "{kind}: {news}"
        );
        let whole = outcome(&dir.join(kind), STEPS);
        run(
            dir,
            &format!(
                "train {settings} {more} --steps 3 --schedule constant --warmup 0 --out {kind}-parts"
            ),
        );
        run(
            dir,
            &format!("resume {kind}-parts --steps 8 --memory 96MiB"),
        );
        let parts = outcome(&dir.join(format!("{kind}-parts")), STEPS);
        outcome::assert_same(&parts, &whole, kind);
        run(
            dir,
            &format!("train --config {kind}/config.toml --memory 96MiB --out {kind}-tight"),
        );
        outcome::assert_same(
            &outcome(&dir.join(format!("{kind}-tight")), STEPS),
            &whole,
            kind,
        );
    }
}

#[test]
fn pairs_are_for_preferences_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(dir);
    pairs(dir);
    for (line, told) in [
        (
            "train --model ./base --data pairs.jsonl --seq 96",
            "--preference dpo",
        ),
        (
            "train --model ./base --data chats.jsonl --seq 96 --preference dpo",
            "no preference pairs",
        ),
        (
            "train --model ./base --seq 96 --preference dpo",
            "the data has no examples",
        ),
        (
            "train --model ./base --data pairs.jsonl --beta 1",
            "--beta has no effect",
        ),
        (
            "train --data pairs.jsonl --preference dpo",
            "no trained weights",
        ),
    ] {
        let (code, _, news) = highwater(dir, &format!("{line} --memory 1GiB --out refused"));
        assert_ne!(code, 0);
        assert!(news.contains(told), "{line}: {news}");
    }
}

#[test]
fn epochs_say_how_long_a_run_is() {
    let dir = tempfile::tempdir().expect("a folder");
    base(dir.path());
    let line = |rest: &str| {
        format!(
            "train --model ./base --data chats.jsonl --batch 3 --seq 64 --no-packing --held-out 0 --threads 1 {rest}"
        )
    };
    // What is not there yet is records by its name.
    let plan = |data: &str| {
        let line = format!("plan --model ./base --data {data} --loss-on all --json");
        let (results, news) = run(dir.path(), &line);
        let told: serde_json::Value = serde_json::from_str(&results).expect("JSON");
        (told["settings"].clone(), news)
    };
    let ((there, _), (missing, news)) = (plan("chats.jsonl"), plan("gone.jsonl"));
    assert_eq!(there, missing);
    assert!(
        news.contains("note: ") && news.contains("gone.jsonl"),
        "{news}"
    );
    // In order a text's last tokens fill no batch: 896 of them are one of 8 x 64.
    let tokens = (0..896_u16).flat_map(|i| (i % 300).to_le_bytes());
    std::fs::write(dir.path().join("tokens.bin"), tokens.collect::<Vec<_>>()).expect("tokens");
    for (order, steps) in [("sequential --batch 8", 3), ("shuffled --batch 1", 39)] {
        let line = format!(
            "train --model ./base --data tokens.bin --seq 64 --order {order} --threads 1 --epochs 3 --out {steps}"
        );
        let (_, news) = run(dir.path(), &line);
        assert!(
            news.contains(&format!("; {steps} steps (3.0 epochs)")),
            "{news}"
        );
    }
    // 60 rows, 3 a step.
    for (epochs, steps, warmup, flags) in [
        ("2", 40, 2, ""),
        ("0.51", 11, 0, ""),
        ("2.5", 50, 7, "--warmup 7"),
        // 22 steps are 1.1 epochs: floats say a bit more.
        ("1.1", 22, 1, ""),
    ] {
        let (_, news) = run(
            dir.path(),
            &line(&format!("--epochs {epochs} {flags} --out r{epochs}")),
        );
        assert!(news.contains(&format!("; {steps} steps (")), "{news}");
        let written = std::fs::read_to_string(dir.path().join(format!("r{epochs}/config.toml")));
        let written = written.expect("settings");
        assert!(written.contains(&format!("steps = {steps}\n")), "{written}");
        assert!(
            written.contains(&format!("warmup = {warmup}\n")),
            "{written}"
        );
    }
}

#[test]
fn looking_at_the_model_meanwhile_changes_no_bit() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    base(dir);
    let looks = [
        "--eval-every",
        "3",
        "--sample",
        "how much memory",
        "--sample",
        "pages",
    ];
    for (kind, more) in [
        ("full", ""),
        ("half", "--lora 3 --lora-dropout 0.1 --precision bf16"),
    ] {
        let train = |name: &str, memory: &str, looks: &[&str]| {
            let line = format!("train {SETTINGS} {more} --memory {memory} --out {kind}-{name}");
            let words = line.split_whitespace().chain(looks.iter().copied());
            let (code, _, news) = crate::started::words(dir, words);
            assert_eq!(code, 0, "{news}");
            news
        };
        train("plain", "1GiB", &[]);
        let plain = outcome(&dir.join(format!("{kind}-plain")), STEPS);
        for (name, memory) in [("seen", "1GiB"), ("tight", "96MiB")] {
            let news = train(name, memory, &looks);
            let run = dir.join(format!("{kind}-{name}"));
            outcome::assert_same(&outcome(&run, STEPS), &plain, name);
            for when in ["before", "after step 3", "after step 6", "after"] {
                assert!(
                    news.contains(&format!("held-out loss {when}: ")),
                    "{when}: {news}"
                );
                for text in ["how much memory", "pages"] {
                    let told = format!("sample {when}: \"{text}\" -> \"");
                    assert!(news.contains(&told), "{told} {news}");
                }
            }
            let metrics = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
            let seen = metrics.lines().filter_map(|line| {
                let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
                record["held_out_loss"].as_f64()?;
                record["step"].as_u64()
            });
            assert_eq!(seen.collect::<Vec<_>>(), [3, 6]);
        }
        // What a run was told to show, it shows when it goes on.
        let (_, news) = run(
            dir,
            &format!("resume {kind}-seen --steps 10 --eval-every 9"),
        );
        assert!(news.contains("held-out loss after step 9: "), "{news}");
        assert!(
            news.contains("sample after step 9: \"pages\" -> "),
            "{news}"
        );
    }
    let long = "memory ".repeat(400);
    let line = format!("train {SETTINGS} --out long --sample");
    let words = line.split_whitespace().chain([long.as_str()]);
    let (code, _, news) = crate::started::words(dir, words);
    assert_eq!(code, 2, "{news}");
    assert!(
        news.contains("tokens; 1 to 128 are read") || news.contains("tokens; 1 to 256 are read")
    );
}
