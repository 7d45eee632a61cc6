//! The program as users start it: what it prints and how it exits.

use std::path::Path;

use crate::share::some;
use crate::started::highwater;
use highwater_cli::args::Settings;
use highwater_cli::planning::{Assumptions, Planner};
use highwater_cli::settings::resolve::{self, Resolved};
use highwater_memory::DiskFiles;
use serde_json::Value;

/// Settings under which a run takes no time.
const SMALL: &str = "--batch 1 --seq 16 --threads 2";

fn assert_fails(line: &str, code: i32, expected: &str) {
    assert_fails_with(&[], line, code, expected);
}

/// The same where these files are.
fn assert_fails_with(files: &[(&str, &[u8])], line: &str, code: i32, expected: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, bytes) in files {
        std::fs::write(dir.path().join(name), bytes).expect("a file");
    }
    let (found, results, news) = highwater(dir.path(), line);
    assert_eq!(found, code, "{line}\n{news}");
    assert!(
        news.starts_with("error") && news.contains(expected),
        "{line}\n{news}"
    );
    assert_eq!(results, "", "{line}");
    let left = std::fs::read_dir(dir.path()).expect("the folder").count();
    assert_eq!(left, files.len(), "{line}: it left files behind");
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("a file of lines");
    let parse = |line| serde_json::from_str(line).expect("JSON");
    text.lines().map(parse).collect()
}

#[test]
fn wrong_usage_is_told_before_anything_is_made() {
    for (line, expected) in [
        ("tain", "train"),
        ("train --memroy 1GiB", "--memory"),
        ("train --memory 1Gibi", "64MiB"),
        ("train --model gpt3", "hint: --model is"),
        ("train --model ./gpt3", "no folder"),
        (
            "train --model gpt2",
            "hint: pass the model's tokenizer.json",
        ),
        ("train --model gpt2-nan", "did you mean `gpt2-nano`?"),
        ("train --memory -5GiB", "it is negative"),
        ("train --memory 0", "it is zero"),
        ("train --memory 99999999999TiB", "above 2^60"),
        ("train --schedule cosin", "'cosine'"),
        ("generate nowhere --prompt x", "nowhere: there is no model"),
        ("generate nowhere --prompt x --threads 0", "1 to 1024"),
        ("resume nowhere", "nowhere: there is no run"),
        ("train --batch 0", "--batch is 0; expected 1 to 65536"),
        ("train --batch -1", "--batch"),
        ("train --seq 1024", "1 to 256, the model's n_positions"),
        ("train --lr -1", "--lr is -1"),
        ("train --lr inf", "--lr is inf"),
        ("train --beta2 1", "--beta2 is 1"),
        ("train --threads 5000", "--threads is 5000"),
        ("train --steps 99999999999999999999", "--steps"),
        ("train --momentum 0.9", "--optimizer sgd"),
        ("generate --prompt x", "runs/gpt2-nano"),
    ] {
        assert_fails(line, 2, expected);
    }
    assert_fails(
        "train --data none.txt",
        4,
        "none.txt: there is no such file",
    );
}

#[test]
fn models_that_cannot_be_are_refused_before_they_are_planned() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("m")).unwrap();
    for (fields, expected) in [
        (
            r#""n_layer": 9223372036854775808"#,
            "`n_layer` is 9223372036854775808; expected a number from 1 to 1024",
        ),
        (
            r#""n_embd": 65536, "n_head": 256, "n_layer": 1000"#,
            "`n_embd` is 65536; expected less",
        ),
        (
            r#""n_embd": 1024, "n_head": 2"#,
            "`n_head` is 2; expected a divisor of n_embd, 1024, of at least 4",
        ),
        (r#""n_head": 0"#, "`n_head` is 0; expected a number from 1"),
        (
            r#""n_positions": [[1024]]"#,
            "`n_positions`: invalid type: sequence; expected a non-negative integer",
        ),
    ] {
        let config = format!(r#"{{"model_type": "gpt2", {fields}}}"#);
        std::fs::write(dir.path().join("m/config.json"), config).unwrap();
        let (code, results, news) = highwater(dir.path(), "plan --model m");
        assert_eq!((code, results.as_str()), (2, ""), "{news}");
        for part in ["error[HW1033]: m/config.json: ", expected, "\nhint: "] {
            assert!(news.contains(part), "{part}: {news}");
        }
    }
}

#[test]
fn failures_are_told_to_programs_too() {
    let dir = tempfile::tempdir().unwrap();
    for (line, exit_code, code, said) in [
        ("train --json --memory 30MiB", 3, "HW1003", "does not fit"),
        ("train --json --lr -1", 2, "HW1030", "--lr is -1"),
        ("train --json --data none.txt", 4, "HW1020", "none.txt"),
        ("plan --json --model gpt3", 2, "HW1032", "gpt3"),
        ("resume nowhere --json", 2, "HW1002", "no run"),
        ("plan --json --memroy 1GiB", 2, "HW1002", "--memroy"),
    ] {
        let (code_found, results, news) = highwater(dir.path(), line);
        assert_eq!(code_found, exit_code, "{line}: {news}");
        let told: Value =
            serde_json::from_str(&results).unwrap_or_else(|_| panic!("{line}: {results}"));
        let error = &told["error"];
        assert_eq!(error["code"], code, "{line}: {told}");
        assert_eq!(error["exit_code"], exit_code, "{line}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(said), "{line}: {message}");
        assert!(news.contains(message.lines().next().unwrap()), "{news}");
    }
}

#[test]
fn help_names_every_verb_and_the_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    let (code, help, _) = highwater(dir.path(), "--help");
    assert_eq!(code, 0);
    for expected in [
        "train",
        "plan",
        "resume",
        "generate",
        "doctor",
        "Exit codes:",
        "143",
    ] {
        assert!(help.contains(expected), "{help}");
    }
    let (code, help, _) = highwater(dir.path(), "train --help");
    assert_eq!(code, 0);
    assert!(help.starts_with("Train a model. Without flags"), "{help}");
    // The essential flags, and how to see all of them.
    let flags = |help: &str| {
        let is_flag = |line: &&str| line.trim_start().starts_with('-') && !line.contains(": ");
        help.lines().filter(is_flag).count()
    };
    for command in ["train", "plan", "init", "resume"] {
        let (code, help, _) = highwater(dir.path(), &format!("{command} --help"));
        let (all_code, all, _) = highwater(dir.path(), &format!("{command} --help-all"));
        assert_eq!((code, all_code), (0, 0));
        assert!(flags(&help) <= 22 && flags(&help) < flags(&all), "{help}");
        let last = format!(
            "`highwater {command} --help-all` shows all {} flags.",
            flags(&all)
        );
        assert_eq!(help.lines().last(), Some(last.as_str()));
        assert!(all.contains("\n      --threads <N>"), "{all}");
    }
    assert_eq!(highwater(dir.path(), "").0, 2);
}

#[test]
fn plan_predicts_what_a_run_would_by_the_rates_of_this_machine() {
    let dir = tempfile::tempdir().expect("a folder");
    let seconds = |line: &str| {
        let (code, plan, news) = highwater(dir.path(), line);
        assert_eq!(code, 0, "{news}");
        let plan: Value = serde_json::from_str(&plan).expect("JSON");
        plan["seconds_per_step"].as_f64().expect("seconds")
    };
    let planned = seconds(&format!("plan --json {SMALL}"));
    let run = seconds(&format!("train --dry-run --json {SMALL}"));
    assert!((planned / run - 1.0).abs() < 1e-12, "{planned} and {run}");
    let args = Settings {
        batch: Some(1),
        seq: Some(16),
        threads: Some(2),
        ..Settings::default()
    };
    let resolved = resolve::run(&DiskFiles, &args).expect("sound settings");
    let Resolved {
        mut config, model, ..
    } = resolved;
    config.machine.rates = highwater::Rates::default();
    let assumptions = Assumptions::measure(&DiskFiles, &config, &model).expect("a reserve");
    let by_constants = Planner::new(&config, &model, &assumptions).forecast();
    let by_constants = by_constants.expect("a plan");
    let by_constants = by_constants.seconds_per_step;
    // A machine may be faster or slower than the constants, and is never just as fast.
    assert!(
        (planned / by_constants - 1.0).abs() > 1e-4,
        "{planned} and {by_constants}"
    );
}

#[test]
fn a_dry_run_prints_the_settings_and_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (code, settings, news) = highwater(dir.path(), "train --dry-run --seed 7");
    assert_eq!(code, 0, "{news}");
    assert!(settings.contains("seed = 7") && settings.contains("[optimizer.method.adamw]"));
    assert!(settings.contains("fits into 64 MiB"), "{settings}");
    let (code, plan, _) = highwater(dir.path(), "train --dry-run --json");
    assert_eq!(code, 0);
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["fits"], true);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn doctor_speaks_json() {
    let dir = tempfile::tempdir().unwrap();
    let (code, json, _) = highwater(dir.path(), "doctor --json");
    assert_eq!(code, 0);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(json["largest_budget_bytes"].as_u64().unwrap() > 0);
    let (code, _, errors) = highwater(dir.path(), "doctor --disk none");
    assert_eq!(code, 2);
    assert!(errors.contains("there is no such folder"), "{errors}");
}

/// Runs on lesser instructions learn the same: numbers differ in their last bits.
#[test]
fn kernels_use_no_more_than_they_are_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let (code, json, _) = highwater(dir.path(), "doctor --json --cpu portable");
    assert_eq!(code, 0);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["instructions"], Value::Array(Vec::new()));
    let loss = |line: &str| {
        let run = format!("--model gpt2-nano --steps 3 --batch 2 --seq 32 --json {line}");
        let (code, summary, news) = highwater(dir.path(), &format!("train {run}"));
        assert_eq!(code, 0, "{news}");
        let summary: Value = serde_json::from_str(&summary).expect("JSON");
        summary["last_loss"].as_f64().expect("a loss")
    };
    for precision in some(["f32", "bf16"]) {
        let of = |cpu: &str| {
            loss(&format!(
                "--precision {precision} --cpu {cpu} --out {precision}-{cpu}"
            ))
        };
        let (plain, avx2, best) = (of("portable"), of("avx2"), of("avx512bf16"));
        assert!((plain - avx2).abs() < 1e-2, "{precision}: {plain}, {avx2}");
        assert!((plain - best).abs() < 1e-2, "{precision}: {plain}, {best}");
    }
    let (code, _, errors) = highwater(dir.path(), "doctor --cpu mmx");
    assert_eq!(code, 2);
    assert!(errors.contains("avx512bf16"), "{errors}");
}

#[test]
fn data_that_will_not_do_is_told_and_no_folder_is_made() {
    let tokens: Vec<u8> = (0..400_u16).flat_map(u16::to_le_bytes).collect();
    let files: [(&str, &[u8]); 5] = [
        ("empty.txt", b""),
        ("short.txt", b"a few words"),
        ("tokens.bin", &tokens),
        ("nonsense.json", b"{\"model\": 7}"),
        ("model.npy", b"no numbers"),
    ];
    // A table of characters that the library of tokenizers reads beyond its end.
    let crafted = r#"{"version": "1.0", "added_tokens": [], "pre_tokenizer": null,
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="},
        "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#;
    for (data, expected) in [
        ("--data empty.txt", "empty.txt: it is empty"),
        (
            "--data short.txt",
            "the data has 11 tokens; a sequence needs at least 65",
        ),
        (
            "--data short.txt --seq 4 --order sequential",
            "the data has 11 tokens; a batch needs",
        ),
        ("--data tokens.bin", "tokens.bin: token 256 at position 256"),
        ("--data model.npy", "model.npy: "),
        (
            "--tokenizer nonsense.json",
            "nonsense.json: not a tokenizer",
        ),
        ("--tokenizer none.json", "none.json"),
    ] {
        assert_fails_with(&files, &format!("train {data}"), 4, expected);
        assert_fails_with(&files, &format!("train --out deep/run {data}"), 4, expected);
    }
    let files: [(&str, &[u8]); 1] = [("crafted.json", crafted.as_bytes())];
    let line = "train --tokenizer crafted.json";
    assert_fails_with(&files, line, 4, "crafted.json: not a tokenizer");
}

#[test]
fn the_floor_is_enough_and_less_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (code, plan, _) = highwater(dir.path(), "plan --json");
    assert_eq!(code, 0);
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let bytes = |field: &str| plan[field].as_u64().unwrap();
    assert!(bytes("floor_bytes") < bytes("peak_bytes"));
    assert!(bytes("peak_bytes") <= bytes("budget_bytes"));
    // The reserve is measured anew each time, and is never the same to the byte.
    let floor = bytes("floor_bytes");
    let (below, above) = (floor - (1 << 20), floor + (1 << 20));
    let line = format!("train --steps 1 --memory {below}");
    assert_fails(&line, 3, "hint: use --memory ");
    let line = format!("plan --json --memory {below}");
    let (code, refused, _) = highwater(dir.path(), &line);
    let refused: Value = serde_json::from_str(&refused).unwrap();
    assert_eq!((code, &refused["fits"]), (3, &Value::from(false)));
    assert_fails("train --memory 1MiB", 3, "hint: use --memory ");
    let line = format!("train --steps 2 --json --memory {above}");
    let (code, result, news) = highwater(dir.path(), &line);
    assert_eq!(code, 0, "{news}");
    let result: Value = serde_json::from_str(&result).unwrap();
    assert!(result["peak_rss_bytes"].as_u64().unwrap() <= above);
}

#[test]
fn a_run_leaves_what_its_guide_says() {
    let dir = tempfile::tempdir().unwrap();
    let (code, result, news) = highwater(dir.path(), "train --steps 3 --json");
    assert_eq!(code, 0, "{news}");
    let result: Value = serde_json::from_str(&result).unwrap();
    let run = dir.path().join("runs/gpt2-nano");
    assert_eq!(result["out"], "runs/gpt2-nano");
    assert!(result["held_out_loss_after"].as_f64() < result["held_out_loss_before"].as_f64());
    assert!(result["peak_rss_bytes"].as_u64().unwrap() <= 64 << 20);

    let metrics = lines(&run.join("metrics.jsonl"));
    let fields: Vec<&String> = metrics[0].as_object().unwrap().keys().collect();
    insta::assert_snapshot!(
        fields.into_iter().cloned().collect::<Vec<_>>().join(" "),
        @"step tokens epoch loss lr grad_norm seconds tokens_per_second predicted_seconds planned_arena_bytes peak_arena_bytes planned_process_bytes peak_rss_bytes recomputed_nodes recompute_seconds bytes_read bytes_written io_wait_seconds overlap read_seconds write_seconds host_bytes_read host_bytes_written host_wait_seconds"
    );
    let steps: Vec<_> = metrics.iter().map(|record| &record["step"]).collect();
    assert_eq!(steps, [1, 2, 3]);
    assert!(
        metrics
            .iter()
            .all(|record| record.as_object().unwrap().values().all(Value::is_number))
    );
    let bits = |loss: &Value| (loss.as_f64().unwrap() as f32).to_bits();
    assert_eq!(bits(&result["last_loss"]), bits(&metrics[2]["loss"]));
    let planned = lines(&run.join("plan.json")).remove(0);
    assert_eq!(planned["arena_bytes"], metrics[0]["planned_arena_bytes"]);
    let log = std::fs::read_to_string(run.join("run.log")).unwrap();
    let said: Vec<&str> = log.lines().take(2).collect();
    assert!(
        said[0].contains(" training tokens, ")
            && said[0].contains("; 256 tokens per step; 3 steps (0.0 epochs)"),
        "{log}"
    );
    assert!(said[1].starts_with("step 0: planned peak "), "{log}");
    assert_eq!(result["tokens_per_step"], 256);
    assert_eq!(metrics[2]["tokens"], 3 * 256);
    // Whole sequences are read of it, and the last token is a target alone.
    let read = (result["train_tokens"].as_u64().unwrap() - 1) / 64 * 64;
    let epochs = 3.0 * 256.0 / read as f64;
    assert!((metrics[2]["epoch"].as_f64().unwrap() - epochs).abs() < 1e-9);
    assert_eq!(result["epochs"], metrics[2]["epoch"]);
    assert!(log.contains("\nstep 3: held-out loss after: "), "{log}");

    let generate = "generate runs/gpt2-nano --prompt water --tokens 5 --temperature 0";
    let (code, text, news) = highwater(dir.path(), generate);
    assert_eq!(code, 0, "{news}");
    assert!(
        text.starts_with("water") && text.len() > "water\n".len(),
        "{text}"
    );
    // Where one run is, another does not go unless told to.
    let (code, _, news) = highwater(dir.path(), "train --steps 0 --out runs/gpt2-nano");
    assert_eq!(code, 2);
    assert!(news.contains("already contains a run"), "{news}");
    assert_eq!(lines(&run.join("metrics.jsonl")).len(), 3);
    let (code, _, news) = highwater(dir.path(), "train --force --data none --out runs/gpt2-nano");
    assert_eq!(code, 4, "{news}");
    assert_eq!(lines(&run.join("metrics.jsonl")).len(), 3);
    let (code, _, news) = highwater(dir.path(), "train --steps 0 --force --out runs/gpt2-nano");
    assert_eq!(code, 0, "{news}");
    assert_eq!(lines(&run.join("metrics.jsonl")).len(), 0);
}

#[test]
fn no_steps_write_the_model_as_it_is_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let weights = |out: &str| std::fs::read(dir.path().join(out).join("final/model.safetensors"));
    for (out, seed) in [("a", 1), ("b", 1), ("c", 2)] {
        let line = format!("train --steps 0 --seed {seed} --out {out} {SMALL}");
        let (code, _, news) = highwater(dir.path(), &line);
        assert_eq!(code, 0, "{news}");
    }
    assert!(weights("a").unwrap() == weights("b").unwrap());
    assert!(weights("a").unwrap() != weights("c").unwrap());
    // A model folder is a model to train, with its own weights.
    let line = format!("train --steps 0 --model a/final --seed 9 --out d {SMALL}");
    let (code, _, news) = highwater(dir.path(), &line);
    assert_eq!(code, 0, "{news}");
    assert!(weights("a").unwrap() == weights("d").unwrap());
}

#[test]
fn budgets_that_mislead_are_spoken_of() {
    let dir = tempfile::tempdir().unwrap();
    let line = format!("train --steps 0 --out run {SMALL}");
    let (code, result, news) = highwater(dir.path(), &line);
    assert_eq!(code, 0, "{news}");
    // No step has measured it, but it is there all the same.
    assert!(
        result.contains("MiB of the budget are reserved for code"),
        "{result}"
    );
    let line = "resume run --steps 1 --memory 60MiB";
    let (code, _, news) = highwater(dir.path(), line);
    assert_eq!(code, 0, "{news}");
    assert!(
        news.contains("also for later resumes without --memory"),
        "{news}"
    );
    let (code, _, news) = highwater(dir.path(), "plan --memory 1TiB --seq 16 --batch 1");
    assert_eq!(code, 0, "{news}");
    assert!(
        news.starts_with("warning: --memory 1 TiB is more than"),
        "{news}"
    );
    let line = "plan --memory 64MiB --disk .=900TiB --seq 16 --batch 1";
    let (code, _, news) = highwater(dir.path(), line);
    assert!(
        code == 0 && news.contains("=900 TiB is more than the "),
        "{news}"
    );
    let (_, _, news) = highwater(dir.path(), "resume run");
    assert!(
        !news.contains("later resumes") && !news.contains("warning"),
        "{news}"
    );
}

#[test]
fn plans_are_explained_and_compared() {
    let dir = tempfile::tempdir().unwrap();
    let line = format!("train --steps 1 --memory 64MiB --out run {SMALL}");
    assert_eq!(highwater(dir.path(), &line).0, 0);
    let (code, text, news) = highwater(dir.path(), "plan --explain --memory 60MiB");
    assert_eq!(code, 0, "{news}");
    for expected in [
        "fits into 60 MiB",
        "by layer",
        "the floor",
        "--optimizer sgd",
        "recomputed in the backward pass",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let (code, json, _) = highwater(dir.path(), "train --dry-run --json");
    assert_eq!(code, 0);
    std::fs::write(dir.path().join("a.json"), json).unwrap();
    let (code, text, news) = highwater(dir.path(), "plan --diff a.json run");
    assert_eq!(code, 0, "{news}");
    assert!(text.starts_with("A is a.json\nB is run\n"), "{text}");
    let (code, json, _) = highwater(dir.path(), "plan --json --diff a.json run");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (code, &json["figures"][0]["name"]),
        (0, &Value::from("budget_bytes"))
    );
    let settings = json["settings"].as_array().unwrap().iter();
    let names: Vec<_> = settings
        .map(|setting| setting["name"].as_str().unwrap())
        .collect();
    for name in ["training.batch", "training.seq", "training.steps"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(
        !names.iter().any(|name| name.starts_with("origin")),
        "{names:?}"
    );
    for (line, expected, fails) in [
        ("plan --diff a.json run --batch 2", "takes no settings", 2),
        ("plan --diff a.json", "2 values required", 2),
        ("plan --diff a.json none", "none", 4),
    ] {
        let (code, _, news) = highwater(dir.path(), line);
        assert!(
            code == fails && news.contains(expected),
            "{line}: {code}\n{news}"
        );
    }
}

#[test]
fn a_step_that_explodes_is_told_and_what_was_saved_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let wild = "--lr 99 --schedule constant --warmup 0 --save-every 1 --steps 9 --threads 2";
    let (code, _, news) = highwater(dir.path(), &format!("train --out run {wild}"));
    assert_eq!(code, 5, "{news}");
    assert!(news.contains("]: step 2: "), "{news}");
    assert!(
        news.contains("is not finite") && news.contains("transformer.h."),
        "{news}"
    );
    let run = dir.path().join("run");
    assert_eq!(lines(&run.join("metrics.jsonl")).len(), 1);
    let saved = run.join("checkpoints/step-000001/model.safetensors");
    let before = std::fs::read(&saved).unwrap();
    let log = std::fs::read_to_string(run.join("run.log")).unwrap();
    assert!(
        log.contains("step 1: error[HW") && log.contains("]: step 2: "),
        "{log}"
    );
    let (code, text, news) = highwater(dir.path(), "generate run --prompt hello --tokens 4");
    assert_eq!(code, 0, "{news}");
    assert!(text.starts_with("hello"), "{text}");
    let (code, _, news) = highwater(dir.path(), "resume run");
    assert_eq!(code, 5, "{news}");
    assert!(news.contains("resuming after step 1\n"), "{news}");
    assert!(std::fs::read(&saved).unwrap() == before);
    // With clipping the norm is looked at before anything is updated.
    let (code, _, news) = highwater(
        dir.path(),
        &format!("train --out clipped --clip 1e9 {wild}"),
    );
    assert_eq!(code, 5, "{news}");
    assert!(
        news.contains("nothing was updated. First non-finite result: "),
        "{news}"
    );
}

#[test]
fn a_profile_names_each_operation_and_what_limits_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let train = format!("train --steps 6 {SMALL} --profile --json --out run");
    let (code, results, news) = highwater(dir.path(), &train);
    assert_eq!(code, 0, "{news}");
    let summary: Value = serde_json::from_str(&results).expect("JSON");
    let profile = &summary["profile"];
    let rows = profile["operations"].as_array().expect("rows");
    let row = |op| rows.iter().find(|row| row["op"] == op).expect(op);
    // A plan's first run is left out; one update for each of 64 parameters and step.
    let updates = row("adamw")["runs"].as_u64().expect("a count");
    assert!(updates > 0 && updates % 64 == 0, "{updates}");
    assert!(row("linear")["share_of_limit"].as_f64().expect("a share") > 0.0);
    assert!(profile["limits"]["f32_flops"].as_f64().expect("a rate") > 0.0);
    let resume = "resume run --steps 8 --profile";
    let (code, results, news) = highwater(dir.path(), resume);
    assert_eq!(code, 0, "{news}");
    assert!(
        results.contains("limits of this machine") && results.contains("\nadamw"),
        "{results}"
    );
}
