//! What the program leaves alone, and what it goes by: no file that it did not write is deleted, no result is lost in
//! silence, and what is newest is used.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use highwater::Engine;
use highwater_models::{Decoder, DecoderConfig, save};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::program::{self, end, highwater as spawn, news};
use crate::started::{highwater, words};

const MODEL: &str = r#"{"model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "tie_word_embeddings": false}"#;
const TEXT: &str =
    "--data text.txt --batch 2 --seq 32 --threads 2 --lr 1e-2 --warmup 0 --schedule constant";

/// A folder with a text and a model.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let text: Vec<_> = (0..400).map(|i| format!("{i} pages of memory. ")).collect();
    std::fs::write(dir.join("text.txt"), text.concat()).unwrap();
    let engine = Engine::builder().threads(1).seed(1).build().unwrap();
    let config = DecoderConfig::from_json(MODEL).unwrap();
    let model = Decoder::new(&engine, config).unwrap();
    std::fs::create_dir(dir.join("base")).unwrap();
    save(&model, dir.join("base/model.safetensors")).unwrap();
    std::fs::write(dir.join("base/config.json"), MODEL).unwrap();
    folder
}

fn run(dir: &Path, line: &str) -> String {
    let (code, results, news) = highwater(dir, line);
    assert_eq!(code, 0, "{line}\n{news}");
    results
}

#[track_caller]
fn fails(dir: &Path, line: &str, expected: i32, with: &[&str]) {
    let (code, _, news) = highwater(dir, line);
    assert_eq!(code, expected, "{line}\n{news}");
    for text in with {
        assert!(news.contains(text), "{line}: {text}\n{news}");
    }
}

fn loss(dir: &Path, line: &str) -> f64 {
    let found: Value = serde_json::from_str(&run(dir, line)).unwrap();
    found["loss"].as_f64().unwrap()
}

/// All files below a folder, with what they hold.
fn files(at: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn a_run_replaces_neither_its_model_nor_its_settings_nor_other_files() {
    let folder = folder();
    let dir = folder.path();
    run(
        dir,
        &format!("train --model ./base {TEXT} --steps 2 --out run"),
    );
    run(
        dir,
        &format!("train --model ./base {TEXT} --steps 2 --out other"),
    );
    let mut before = files(dir);
    before.retain(|(path, _)| !path.ends_with("lock"));
    let reads = "the new run reads this";
    for (line, expected) in [
        ("--model run/final --out run --force", reads),
        (
            "--model ./base --tokenizer run/final/config.json --out run --force",
            reads,
        ),
        ("--config run/config.toml --out run --force", reads),
        ("--model ./base --out base", ""),
        ("--model ./base --out base --force", ""),
        ("--model ./base --out run", "already contains a run"),
    ] {
        let line = format!("train {TEXT} --steps 1 {line}");
        let (code, _, news) = highwater(dir, &line);
        if expected.is_empty() {
            // A model's folder has nothing in it that a run would write.
            assert_eq!(code, 0, "{line}\n{news}");
            let base = files(&dir.join("base"));
            assert!(
                before
                    .iter()
                    .filter(|(path, _)| path.starts_with(dir.join("base")))
                    .all(|it| base.contains(it))
            );
            for name in [
                "config.toml",
                "manifest.txt",
                "final.json",
                "model.json",
                "metrics.jsonl",
                "run.log",
                "plan.json",
            ] {
                std::fs::remove_file(dir.join("base").join(name)).unwrap();
            }
            for name in ["final", "checkpoints"] {
                std::fs::remove_dir_all(dir.join("base").join(name)).unwrap();
            }
            continue;
        }
        assert_eq!(code, 2, "{line}\n{news}");
        assert!(news.contains(expected), "{line}\n{news}");
    }
    // Files of the user's beside a run.
    for name in ["notes.txt", "final/README.md", "checkpoints/mine.pt"] {
        std::fs::write(dir.join("run").join(name), "mine").unwrap();
        let line = format!("train --model ./base {TEXT} --steps 1 --out run --force");
        fails(dir, &line, 2, &[name, "this is not a file of a run"]);
        std::fs::remove_file(dir.join("run").join(name)).unwrap();
    }
    let mut after = files(dir);
    after.retain(|(path, _)| !path.ends_with("lock"));
    assert!(after == before);
}

#[test]
fn a_run_that_fails_before_it_has_saved_anything_gives_back_what_it_replaces() {
    let folder = folder();
    let dir = folder.path();
    run(dir, &format!("train {TEXT} --steps 3 --out run"));
    let before = files(&dir.join("run"));
    // After some steps the loss is not finite.
    let line = format!("train {TEXT} --steps 90 --optimizer sgd --lr 100 --out run --force");
    fails(
        dir,
        &line.replace("--lr 1e-2", ""),
        5,
        &["is back in its folder"],
    );
    assert!(files(&dir.join("run")) == before);
    run(dir, &format!("train {TEXT} --steps 4 --out run --force"));
    assert!(!dir.join("run/replaced").exists());
    assert!(!dir.join("run/checkpoints/step-000003").exists());
    run(dir, "resume run --steps 5");
}

#[test]
fn drafts_are_nobody_elses_files() {
    let folder = folder();
    let dir = folder.path();
    run(
        dir,
        &format!("train --model ./base {TEXT} --steps 1 --lora 2 --out run"),
    );
    for name in ["model.tmp", "Qwen2.tmp", "model.v1.tmp"] {
        std::fs::create_dir(dir.join(name)).unwrap();
        std::fs::write(dir.join(name).join("notes.txt"), "mine").unwrap();
    }
    for name in [
        "settings.tmp",
        "settings.toml.tmp",
        "run/tokens.bin.tmp",
        "run/metrics.jsonl.tmp",
    ] {
        std::fs::write(dir.join(name), "mine").unwrap();
    }
    run(dir, "merge run --out model.v1");
    // Two at the same time.
    let merges: Vec<_> = ["Qwen2.5-a", "Qwen2.5-b"]
        .into_iter()
        .map(|out| {
            spawn(dir, &format!("merge run --out {out}"))
                .spawn()
                .unwrap()
        })
        .collect();
    for merge in merges {
        assert_eq!(end(merge), Some(0), "{}", news(dir));
    }
    assert!(files(&dir.join("Qwen2.5-a")).len() == files(&dir.join("Qwen2.5-b")).len());
    run(dir, "resume run --steps 2");
    run(dir, "init --out settings.toml");
    for (path, text) in files(dir) {
        let name = path.strip_prefix(dir).unwrap().to_str().unwrap();
        if name
            .split('/')
            .any(|part| part.rsplit_once('.').is_some_and(|it| it.1 == "tmp"))
        {
            assert_eq!(text, b"mine", "{name}");
        }
    }
    let left: Vec<_> = files(dir).into_iter().map(|(path, _)| path).collect();
    assert!(
        left.iter()
            .all(|path| !path.to_str().unwrap().contains(".highwater-")),
        "{left:?}"
    );
}

#[test]
fn results_that_cannot_be_written_are_a_failure() {
    let folder = folder();
    let dir = folder.path();
    run(dir, &format!("train {TEXT} --steps 1 --out run"));
    std::fs::write(dir.join("records.jsonl"), "{\"text\": \"pages\"}\n").unwrap();
    for line in [
        "plan --json",
        "plan",
        "doctor",
        "eval run --data text.txt",
        "eval run --data text.txt --json",
        "train --data text.txt --steps 1 --json --out run --force",
        "train --data text.txt --steps 1 --dry-run",
        "man",
        "man --out pages",
        "completions bash",
        "generate run --prompt page --tokens 3",
        "data show records.jsonl --model ./base",
        "init --out some.toml",
        "--help",
        "train --help",
        "--version",
    ] {
        let command = || program::command(dir, line.split_whitespace());
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = command().stdout(full).output().unwrap();
        let news = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{line}\n{news}");
        assert!(
            news.contains("cannot write to the standard output: No space left"),
            "{line}\n{news}"
        );
        // Who reads no further has what was wanted.
        let (results, news) = (Stdio::piped(), Stdio::null());
        let mut child = command().stdout(results).stderr(news).spawn().unwrap();
        drop(child.stdout.take());
        let code = end(child);
        let again = line.starts_with("init") || line.starts_with("man --out");
        assert!(code == Some(0) || again, "{line}: {code:?}");
    }
}

/// Resumes a run, and stops it some steps later.
fn resume_and_stop(dir: &Path, run: &str) {
    let child = spawn(dir, &format!("resume {run} --steps 100000"))
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    let lines = || {
        std::fs::read_to_string(dir.join(run).join("metrics.jsonl"))
            .unwrap_or_default()
            .lines()
            .count()
    };
    let before = lines();
    while lines() < before + 40 {
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(end(child), Some(143), "{}", news(dir));
}

#[test]
fn the_newest_model_of_a_run_is_used_and_named() {
    let folder = folder();
    let dir = folder.path();
    for (run_name, more) in [("whole", ""), ("beside", "--lora 4")] {
        run(
            dir,
            &format!("train --model ./base {TEXT} --steps 1 {more} --out {run_name}"),
        );
        let eval = format!("eval {run_name} --data text.txt --json --threads 2");
        let before = loss(dir, &eval);
        resume_and_stop(dir, run_name);
        let (code, results, news) = highwater(dir, &eval);
        assert_eq!(code, 0, "{news}");
        let found: Value = serde_json::from_str(&results).unwrap();
        let after = found["loss"].as_f64().unwrap();
        assert!(after < before - 0.3, "{before} {after}");
        let named = "which is newer than";
        assert!(
            news.contains(named) && news.contains("checkpoints/step-"),
            "{news}"
        );
        let (_, _, news) = highwater(
            dir,
            &format!("generate {run_name} --prompt page --tokens 2"),
        );
        assert!(news.contains(named), "{news}");
        let whole = if more.is_empty() {
            run_name.to_owned()
        } else {
            let (code, _, news) = highwater(dir, &format!("merge {run_name} --out merged"));
            assert!(code == 0 && news.contains(named), "{news}");
            "merged".to_owned()
        };
        if whole == "merged" {
            let merged = loss(
                dir,
                "eval --model ./merged --data text.txt --batch 2 --seq 32 --json --threads 2",
            );
            assert!((merged - after).abs() < 1e-4, "{merged} {after}");
        }
        // When it has ended again, that is used, and nothing is said.
        let steps = std::fs::read_to_string(dir.join(run_name).join("metrics.jsonl"))
            .unwrap()
            .lines()
            .count();
        run(dir, &format!("resume {run_name} --steps {}", steps + 1));
        let (_, _, news) = highwater(dir, &eval);
        assert!(!news.contains(named), "{news}");
        // A final folder of which nobody knows the step is not taken for the newest.
        std::fs::remove_file(dir.join(run_name).join("final.json")).unwrap();
        let (_, _, news) = highwater(dir, &eval);
        assert!(news.contains(named), "{news}");
    }
}

/// A tokenizer of the base model's bytes, in whose words the text is.
fn tokenizer(dir: &Path) {
    let vocabulary: serde_json::Map<String, Value> =
        ["[UNK]", "pages", "of", "memory", ".", "other", "words"]
            .into_iter()
            .enumerate()
            .map(|(i, word)| (word.to_owned(), i.into()))
            .collect();
    let json = serde_json::json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    });
    std::fs::write(dir.join("base/tokenizer.json"), json.to_string()).unwrap();
}

fn metrics(dir: &Path, run: &str) -> Vec<f64> {
    let lines = std::fs::read_to_string(dir.join(run).join("metrics.jsonl")).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|record| record["loss"].as_f64().unwrap())
        .collect()
}

#[test]
fn changed_data_is_noticed_and_read_where_that_is_wanted() {
    let folder = folder();
    let dir = folder.path();
    tokenizer(dir);
    let lines = |word: &str, count: usize| {
        let lines = (0..count).map(|i| format!("{{\"text\": \"{i} {word} of memory.\"}}\n"));
        lines.collect::<Vec<_>>().concat()
    };
    std::fs::write(dir.join("records.jsonl"), lines("pages", 300)).unwrap();
    std::fs::create_dir(dir.join("texts")).unwrap();
    std::fs::write(dir.join("texts/one.txt"), "pages of memory. ".repeat(300)).unwrap();
    for (data, change) in [
        ("records.jsonl", "records.jsonl"),
        ("texts", "texts/one.txt"),
    ] {
        let settings = TEXT.replace("text.txt", data);
        let kinds = ["told", "untold", "same"];
        for name in kinds {
            run(
                dir,
                &format!("train --model ./base {settings} --steps 2 --out {name}"),
            );
        }
        run(dir, "resume same --steps 4");
        let before = std::fs::read(dir.join(change)).ok();
        std::fs::write(
            dir.join(change),
            if data == "texts" {
                "other words of memory. ".repeat(300)
            } else {
                lines("other", 300)
            },
        )
        .unwrap();
        fails(
            dir,
            "resume untold --steps 4",
            4,
            &[data, "has changed since the run began", "--data-changed ok"],
        );
        run(dir, "resume told --steps 4 --data-changed ok");
        assert_eq!(metrics(dir, "told")[..2], metrics(dir, "same")[..2]);
        assert_ne!(metrics(dir, "told")[2..], metrics(dir, "same")[2..]);
        // It is what the run goes on with from here on.
        run(dir, "resume told --steps 5");
        // As it was, it is what the others began with; gone, the run has its tokens.
        match before {
            Some(bytes) => std::fs::write(dir.join(change), bytes).unwrap(),
            None => std::fs::remove_file(dir.join(change)).unwrap(),
        }
        run(dir, "resume untold --steps 4");
        assert_eq!(metrics(dir, "untold"), metrics(dir, "same"));
        for name in kinds {
            std::fs::remove_dir_all(dir.join(name)).unwrap();
        }
    }
}

#[test]
fn a_run_whose_model_and_data_have_moved_goes_on() {
    let folder = folder();
    let dir = folder.path();
    tokenizer(dir);
    std::fs::create_dir(dir.join("one")).unwrap();
    std::fs::rename(dir.join("base"), dir.join("one/base")).unwrap();
    std::fs::rename(dir.join("text.txt"), dir.join("one/text.txt")).unwrap();
    let train = format!(
        "train --model one/base {}",
        TEXT.replace("text.txt", "one/text.txt")
    );
    for (name, more) in [("run", ""), ("adapters", "--lora 2")] {
        run(
            dir,
            &format!("{train} {more} --steps 4 --out straight-{name}"),
        );
        run(dir, &format!("{train} {more} --steps 2 --out one/{name}"));
    }
    std::fs::rename(dir.join("one"), dir.join("two")).unwrap();
    fails(dir, "resume two/adapters --steps 4", 4, &["one/base"]);
    for name in ["run", "adapters"] {
        run(
            dir,
            &format!("resume two/{name} --model two/base --data two/text.txt --steps 3"),
        );
        run(dir, &format!("resume two/{name} --epochs 0.5"));
        let all = metrics(dir, &format!("straight-{name}"));
        assert_eq!(
            metrics(dir, &format!("two/{name}"))[..4],
            all[..4],
            "{name}"
        );
    }
    // The tokenizer of this one is where it was no more; the run has a copy.
    run(dir, "eval straight-run --data two/text.txt --threads 1");
    // Another model is not the run's.
    let weights = dir.join("two/base/model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    fails(
        dir,
        "resume two/adapters --steps 5",
        4,
        &["two/base", "has changed since the run began"],
    );
}

/// A run is sampled, evaluated and exported with its own copy of the tokenizer, or not with a changed one.
#[test]
fn a_tokenizer_that_was_changed_is_not_taken_for_the_runs() {
    let folder = folder();
    let dir = folder.path();
    tokenizer(dir);
    let more = [("run", ""), ("adapters", "--lora 2")];
    for (name, more) in more {
        let train = format!("train --model base {TEXT} {more}");
        run(
            dir,
            &format!("{train} --steps 2 --save-every 1 --out {name}"),
        );
    }
    let commands = |name: &str| {
        [
            format!("generate {name} --prompt pages --tokens 4 --temperature 0"),
            format!("eval {name} --data text.txt --threads 1"),
        ]
    };
    let loss = |results: String| results.split(',').next().unwrap().to_owned();
    let all = |name: &str| commands(name).map(|line| loss(run(dir, &line)));
    let before = ["run", "adapters"].map(all);
    let path = dir.join("base/tokenizer.json");
    let changed = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, changed.replace("\"pages\"", "\"Pages\"")).unwrap();
    assert_eq!(["run", "adapters"].map(all), before);
    for (name, _) in more {
        // Saved states have no copy.
        std::fs::remove_dir_all(dir.join(name).join("final")).unwrap();
        for line in commands(name) {
            fails(
                dir,
                &line,
                4,
                &["base/tokenizer.json was changed after the run began"],
            );
        }
        run(
            dir,
            &format!("eval {name} --data text.txt --tokenizer base/tokenizer.json"),
        );
    }
    let export = "export run --out run.gguf";
    fails(
        dir,
        export,
        4,
        &["base/tokenizer.json was changed after the run began"],
    );
}

/// Adapters are for the model that they were trained beside: for its weights, and for what its `config.json` says.
#[test]
fn a_config_that_was_changed_is_not_taken_for_the_adapters() {
    let folder = folder();
    let dir = folder.path();
    run(
        dir,
        &format!("train --model base {TEXT} --lora 2 --steps 1 --out adapters"),
    );
    let path = dir.join("base/config.json");
    let before = std::fs::read_to_string(&path).unwrap();
    let mut config: Value = serde_json::from_str(&before).unwrap();
    config["rope_theta"] = 500.0.into();
    std::fs::write(&path, config.to_string()).unwrap();
    for (line, code, told) in [
        (
            "eval adapters --data text.txt",
            2,
            "since the adapters were trained",
        ),
        (
            "generate adapters --prompt a",
            2,
            "since the adapters were trained",
        ),
        (
            "merge adapters --out merged",
            2,
            "since the adapters were trained",
        ),
        ("resume adapters --steps 2", 4, "since the run began"),
    ] {
        fails(dir, line, code, &["base", told]);
    }
    std::fs::write(&path, before).unwrap();
    run(dir, "eval adapters --data text.txt");
}

/// The most memory that a process had, in bytes.
fn peak(dir: &Path, line: &str) -> (Option<i32>, u64) {
    let mut command = spawn(dir, line);
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    let path = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(&path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let found =
            line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        peak = peak.max(found.unwrap_or(0) << 10);
        std::thread::sleep(Duration::from_millis(1));
    }
    (child.wait().unwrap().code(), peak)
}

/// Each command that computes says how little memory would do, and keeps to that.
#[test]
fn commands_keep_to_the_least_that_they_name() {
    let folder = folder();
    let dir = folder.path();
    // 30 MB of weights.
    let config = MODEL
        .replace("\"hidden_size\": 32", "\"hidden_size\": 512")
        .replace("48", "2048");
    let engine = Engine::builder().threads(1).seed(1).build().unwrap();
    let model = Decoder::new(&engine, DecoderConfig::from_json(&config).unwrap()).unwrap();
    save(&model, dir.join("base/model.safetensors")).unwrap();
    std::fs::write(dir.join("base/config.json"), &config).unwrap();
    drop((model, engine));
    let weights = std::fs::metadata(dir.join("base/model.safetensors"))
        .unwrap()
        .len();
    let lora = format!("train --model ./base {TEXT} --steps 1 --lora 2 --memory 60MiB --out run");
    run(dir, &lora);
    for line in [
        "generate --model ./base --prompt page --tokens 40",
        "generate run --prompt page --tokens 40",
        "chat --model ./base --chat-template chatml",
        "eval --model ./base --data text.txt --batch 1 --seq 32",
    ] {
        let (code, _, news) = highwater(dir, &format!("{line} --memory 16MiB --threads 2"));
        assert_eq!(code, 3, "{line}\n{news}");
        let named = news
            .split("use --memory ")
            .nth(1)
            .unwrap_or_else(|| panic!("{news}"));
        let memory = named.split([' ', '\n', ';']).next().unwrap();
        let bytes = memory.strip_suffix("MiB").unwrap().parse::<u64>().unwrap() << 20;
        assert!(
            bytes < weights + (40 << 20),
            "{line}: {memory} of {weights}"
        );
        let (code, peak) = peak(dir, &format!("{line} --memory {memory} --threads 2"));
        assert_eq!(
            code,
            Some(0),
            "{line} --memory {memory}\n{}",
            self::news(dir)
        );
        assert!(peak <= bytes, "{line}: {peak} of {bytes}");
    }
    // What a run had is what its model gets.
    let (code, peak) = peak(dir, "generate run --prompt page --tokens 20 --threads 2");
    assert_eq!(code, Some(0), "{}", news(dir));
    assert!(peak <= 60 << 20, "{peak}");
    // A budget that cannot be read is not guessed at.
    std::fs::write(dir.join("run/config.toml"), "version = ").unwrap();
    let (code, _, news) = words(dir, ["generate", "run", "--prompt", "page"]);
    assert!(code == 2 || code == 4, "{code} {news}");
    assert!(news.contains("config.toml"), "{news}");
}
