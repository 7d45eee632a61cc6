//! `init`, `eval`, `completions`, `man` and `--tensorboard` as users have them.

use std::path::{Path, PathBuf};

use crate::started::highwater;
use highwater::Engine;
use highwater_models::{Decoder, DecoderConfig, save};
use serde_json::{Value, json};

/// Runs the program, which has to end well; answers what it printed.
fn run(dir: &Path, line: &str) -> String {
    let (code, results, news) = highwater(dir, line);
    assert_eq!(code, 0, "{line}\n{news}");
    results
}

fn run_json(dir: &Path, line: &str) -> Value {
    serde_json::from_str(&run(dir, &format!("{line} --json"))).expect("JSON")
}

fn number(of: &Value, field: &str) -> f64 {
    of[field]
        .as_f64()
        .unwrap_or_else(|| panic!("{field}: {of}"))
}

#[test]
fn settings_alone_are_no_run_and_links_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    run(dir, "init");
    // Settings are no run.
    let (code, _, news) = highwater(dir, "train --config config.toml --out .");
    assert!(
        code == 2 && news.contains("config.toml: this is not a file of a run"),
        "{news}"
    );
    std::os::unix::fs::symlink("nowhere.toml", dir.join("link.toml")).unwrap();
    let (code, _, news) = highwater(dir, "init --out link.toml");
    assert!(
        code == 2 && news.contains("link.toml exists already"),
        "{news}"
    );
}

#[test]
fn init_writes_settings_that_fit_and_that_train_takes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let told = run(dir, "init --steps 3 --set optimizer.lr=0.5 --threads 2");
    assert!(
        told.starts_with("config.toml: planned for a batch of 4 and sequences of 64: "),
        "{told}"
    );
    assert!(
        told.contains("use it with `highwater train --config config.toml`"),
        "{told}"
    );
    let text = std::fs::read_to_string(dir.join("config.toml")).unwrap();
    assert!(
        text.contains("\nlr = 0.5\n") && text.contains("\nmemory = \"64MiB\"\n"),
        "{text}"
    );
    assert!(text.contains("\n# Peak learning rate\n"), "{text}");
    let (code, _, news) = highwater(dir, "init");
    assert_eq!(code, 2);
    assert!(
        news.contains("config.toml exists already") && news.contains("--force"),
        "{news}"
    );
    let of_file = run(dir, "train --config config.toml --dry-run");
    let of_flags = run(
        dir,
        "train --steps 3 --lr 0.5 --threads 2 --held-out 0.1 --dry-run",
    );
    let settings = |text: &str| text.split("\n\n").take(6).collect::<Vec<_>>().join("\n");
    assert_eq!(settings(&of_file), settings(&of_flags));
    run(
        dir,
        "train --config config.toml --set output.keep=1 --out run",
    );
    // What does not fit is made smaller, and the file trains.
    let told = run(
        dir,
        "init --force --batch 64 --seq 256 --steps 1 --threads 2",
    );
    assert!(
        told.contains("a batch of 64 and sequences of 256 would not fit into 64 MiB"),
        "{told}"
    );
    run(dir, "train --config config.toml --out smaller");
    // What is not a settings file stays as it is.
    std::fs::write(dir.join("notes.toml"), "[package]\nname = \"mine\"\n").unwrap();
    for (out, why) in [
        ("smaller/config.toml", "settings of a run"),
        ("smaller/model.json", "not a settings file"),
        ("notes.toml", "not a settings file"),
        ("/dev/null", "not a settings file"),
        ("smaller", "not a settings file"),
    ] {
        let before = std::fs::read(dir.join(out)).ok();
        let (code, _, news) = highwater(dir, &format!("init --force --steps 1 --out {out}"));
        assert!(code == 2 && news.contains(why), "{out}: {code}: {news}");
        assert_eq!(std::fs::read(dir.join(out)).ok(), before, "{out}");
    }
    let line = "init --force --config config.toml --out config.toml";
    let (code, _, news) = highwater(dir, line);
    assert!(code == 2 && news.contains("read from it"), "{news}");
    // What fits in no size is refused, with what would do.
    let (code, _, news) = highwater(dir, "init --memory 9MiB --out none.toml");
    assert_eq!(code, 3, "{news}");
    assert!(news.contains("hint: use --memory "), "{news}");
    assert!(!dir.join("none.toml").exists());
}

/// A run on a text, and the text that it held out, whole sequences of 64 and the token before them; answers the run's
/// held-out loss.
fn run_on_text(dir: &Path) -> f64 {
    let pages: Vec<_> = (0..1500)
        .map(|i| format!("{i} pages of memory. "))
        .collect();
    let text = &pages.concat()[..(64 * 40 + 1) * 10];
    std::fs::write(dir.join("all.txt"), text).unwrap();
    let held_out = &text[text.len() - (64 * 40 + 1)..];
    std::fs::write(dir.join("held_out.txt"), held_out).unwrap();
    let train = "train --data all.txt --val 10% --steps 12 --save-every 6 --threads 2 --out run";
    let trained = run_json(dir, train);
    let after = number(&trained, "held_out_loss_after");
    assert!((number(&trained, "held_out_perplexity_after") - after.exp()).abs() < 1e-6);
    after
}

#[test]
fn eval_is_the_loss_over_all_of_a_text_within_its_budget() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let after = run_on_text(dir);
    let held_out = std::fs::read(dir.join("held_out.txt")).unwrap();
    let tokens = held_out.iter().map(|&byte| u16::from(byte).to_le_bytes());
    std::fs::write(dir.join("tokens.bin"), tokens.flatten().collect::<Vec<_>>()).unwrap();
    let eval = |line: &str| run_json(dir, &format!("eval {line} --threads 2"));
    let found = eval("run --data held_out.txt");
    assert!(
        (number(&found, "loss") - after).abs() < 1e-5,
        "{found} {after}"
    );
    assert!((number(&found, "perplexity") - number(&found, "loss").exp()).abs() < 1e-9);
    assert_eq!(found["tokens"], 64 * 40);
    assert_eq!(found["budget_bytes"], 64 << 20);
    assert!(
        number(&found, "peak_rss_bytes") <= number(&found, "budget_bytes"),
        "{found}"
    );
    assert_eq!(eval("run --data tokens.bin")["loss"], found["loss"]);
    let near = |other: &Value, limit: f64| {
        assert_eq!(other["tokens"], 64 * 40);
        let away = number(other, "loss") - number(&found, "loss");
        assert!(away.abs() < limit, "{other} {found}");
    };
    near(
        &eval("--model run/final --data held_out.txt --seq 64 --memory 80MiB"),
        1e-5,
    );
    // All of the data, whatever the portions: 7 and 37 do not divide it.
    near(&eval("run --data held_out.txt --batch 7"), 1e-5);
    near(&eval("run --data held_out.txt --batch 3 --seq 37"), 0.2);
    // The newest saved state, where there is no final model.
    std::fs::remove_dir_all(dir.join("run/final")).unwrap();
    assert_eq!(eval("run --data held_out.txt")["loss"], found["loss"]);
}

#[test]
fn eval_says_what_it_found_or_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    run_on_text(dir);
    let told = run(dir, "eval run --data held_out.txt");
    assert!(
        told.starts_with("loss ") && told.contains(", perplexity "),
        "{told}"
    );
    std::fs::write(dir.join("short.txt"), "a").unwrap();
    for (line, code, expected) in [
        (
            "run --data held_out.txt --memory 8MiB",
            3,
            "hint: use --memory ",
        ),
        ("run --data none.txt", 4, "none.txt: there is no such"),
        (
            "run --data short.txt",
            4,
            "the data has 1 tokens; a loss needs",
        ),
        ("--data held_out.txt", 2, "eval needs a model"),
        (
            "nowhere --data held_out.txt",
            2,
            "nowhere: there is no such folder",
        ),
        (
            "run --data held_out.txt --loss-on all",
            2,
            "--loss-on has no effect",
        ),
        (
            "run --data held_out.txt --seq 300",
            2,
            "--seq is 300; expected 1 to 256",
        ),
    ] {
        let (found, results, news) = highwater(dir, &format!("eval {line}"));
        assert_eq!((found, results.as_str()), (code, ""), "{line}: {news}");
        assert!(news.contains(expected), "{line}: {news}");
    }
}

/// A model folder with a tokenizer of 300 tokens and a template, and conversations.
fn base(dir: &Path) {
    let chat = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/chat.json");
    let text = std::fs::read_to_string(chat).unwrap();
    let chat: Value = serde_json::from_str(&text).unwrap();
    let folder = dir.join("base");
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("tokenizer.json", &chat["tokenizer"].to_string());
    write("tokenizer_config.json", &chat["special"].to_string());
    write(
        "chat_template.jinja",
        chat["templates"]["heads"][1].as_str().unwrap(),
    );
    let model = r#"{"model_type": "qwen3", "vocab_size": 400, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 256, "tie_word_embeddings": true}"#;
    write("config.json", model);
    let engine = Engine::builder().threads(1).seed(1).build().unwrap();
    let model = Decoder::new(&engine, DecoderConfig::from_json(model).unwrap()).unwrap();
    save(&model, folder.join("model.safetensors")).unwrap();
    let line = |i: usize| {
        json!({"messages": [
            {"role": "user", "content": "how much memory ".repeat(1 + i % 3)},
            {"role": "assistant", "content": format!("{i} pages. ").repeat(1 + i % 4)},
        ]})
        .to_string()
    };
    let lines: Vec<_> = (0..40).map(line).collect();
    std::fs::write(dir.join("chats.jsonl"), lines.join("\n")).unwrap();
}

#[test]
fn eval_reads_records_with_adapters_as_the_run_did() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    base(dir);
    // Of a row each is held out, so that what eval finds is near what the run trained on.
    let train = "train --model ./base --data chats.jsonl --batch 2 --seq 128 --threads 2 --lr 2e-2 --steps 15 \
                 --memory 1GiB --out run --lora 3 --save-every 15";
    // The run keeps the template that it is told to take.
    let template = dir.join("mine.jinja");
    std::fs::copy(dir.join("base/chat_template.jinja"), &template).unwrap();
    let held = "--quantize int8 --precision bf16 --chat-template mine.jinja";
    for (name, more) in [("plain", ""), ("held", held)] {
        let name = format!("--out {name}");
        run(
            dir,
            &format!("{} {more}", train.replace("--out run", &name)),
        );
    }
    std::fs::remove_file(&template).unwrap();
    let eval = |line: &str| run_json(dir, &format!("eval {line} --data chats.jsonl --threads 2"));
    let before = eval("--model base --seq 128 --memory 1GiB");
    for name in ["plain", "held"] {
        let after = eval(name);
        assert!(
            number(&after, "loss") < number(&before, "loss") - 0.1,
            "{before} {after}"
        );
        assert_eq!(after["tokens"], before["tokens"]);
        std::fs::remove_dir_all(dir.join(name).join("final")).unwrap();
        let saved = eval(name);
        assert_eq!(saved["loss"], after["loss"]);
        // Each token counts the same, whatever shares a row or a batch with it.
        let alone = eval(&format!("{name} --no-packing --batch 3"));
        assert_eq!(alone["tokens"], after["tokens"]);
        let near = if name == "held" { 2e-2 } else { 1e-4 };
        assert!(
            (number(&alone, "loss") - number(&after, "loss")).abs() < near,
            "{alone} {after}"
        );
    }
    let all = eval("plain --loss-on all");
    assert!(number(&all, "tokens") > number(&before, "tokens"), "{all}");
    // Text by a tokenizer, of which tokens are made on the way.
    std::fs::write(
        dir.join("text.txt"),
        "how much memory is a page? ".repeat(60),
    )
    .unwrap();
    let text = run_json(dir, "eval plain --data text.txt --threads 2");
    assert!(number(&text, "tokens") > 100.0, "{text}");
    let (code, _, news) = highwater(dir, "eval plain --data text.txt --memory 20MiB");
    assert_eq!(code, 3, "{news}");
}

/// How many records a file of events has, by their lengths.
fn records(path: &Path) -> usize {
    let bytes = std::fs::read(path).unwrap();
    let (mut at, mut count) = (0, 0);
    while at < bytes.len() {
        let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        at += length as usize + 16;
        count += 1;
    }
    assert_eq!(at, bytes.len());
    count
}

#[test]
fn each_start_of_a_run_has_a_file_for_tensorboard() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let files = || {
        let found = std::fs::read_dir(dir.join("run/tensorboard")).unwrap();
        let mut found: Vec<PathBuf> = found.map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found
    };
    let small = "--batch 1 --seq 16 --threads 2";
    run(
        dir,
        &format!("train {small} --steps 3 --tensorboard --out run"),
    );
    // A version, a start, three steps, and what is held out before and after.
    let counts = || files().iter().map(|path| records(path)).collect::<Vec<_>>();
    assert_eq!(counts(), [7]);
    let first = std::fs::read(&files()[0]).unwrap();
    run(dir, "resume run --steps 5");
    assert_eq!(counts(), [7, 6]);
    assert_eq!(std::fs::read(&files()[0]).unwrap(), first);
    // It may be a run's wish later on, and a setting's.
    run(dir, &format!("train {small} --steps 1 --out late"));
    run(dir, "resume late --steps 2 --tensorboard");
    run(dir, "train --config late/config.toml --out later");
    for name in ["late", "later"] {
        assert_eq!(
            std::fs::read_dir(dir.join(name).join("tensorboard"))
                .unwrap()
                .count(),
            1
        );
    }
    // Another run in its place begins with none.
    run(dir, &format!("train {small} --steps 1 --out run --force"));
    assert!(!dir.join("run/tensorboard").exists());
}

#[test]
fn shells_and_man_are_told_of_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let script = run(dir, "completions bash");
    assert!(
        script.contains("--memory") && script.contains("_highwater()"),
        "{script}"
    );
    let (code, _, news) = highwater(dir, "completions bsh");
    assert_eq!(code, 2);
    assert!(news.contains("bash"), "{news}");
    assert!(run(dir, "man").contains(".TH highwater 1"));
    run(dir, "man --out pages/man1");
    let pages: Vec<_> = std::fs::read_dir(dir.join("pages/man1")).unwrap().collect();
    assert!(pages.len() > 12, "{}", pages.len());
    let page = std::fs::read_to_string(dir.join("pages/man1/highwater-train.1")).unwrap();
    assert!(
        page.contains("highwater\\-train") && page.contains("Exit codes"),
        "{page}"
    );
    // Pages of this program are replaced, other files are not.
    run(dir, "man --out pages/man1");
    let own = dir.join("pages/man1/highwater-train.1");
    std::fs::write(&own, "a thesis").unwrap();
    let (code, _, news) = highwater(dir, "man --out pages/man1");
    assert_eq!(code, 2);
    assert!(
        news.contains("highwater-train.1: this is not a manual page of highwater"),
        "{news}"
    );
    assert_eq!(std::fs::read_to_string(&own).unwrap(), "a thesis");
}
