//! The program as users start it: what it prints and how it exits.

use std::path::Path;

use assert_cmd::Command;

/// Starts the program in an empty folder; gives its exit code, results and news.
fn highwater(dir: &Path, line: &str) -> (i32, String, String) {
    let mut command = Command::cargo_bin("highwater").expect("the program");
    let words = line.split_whitespace();
    let output = command
        .current_dir(dir)
        .args(words)
        .output()
        .expect("a start");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let code = output.status.code().expect("no signal");
    (code, text(output.stdout), text(output.stderr))
}

fn assert_fails(line: &str, code: i32, expected: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    let (found, results, news) = highwater(dir.path(), line);
    assert_eq!(found, code, "{line}\n{news}");
    assert!(
        news.starts_with("error: ") && news.contains(expected),
        "{line}\n{news}"
    );
    assert_eq!(results, "", "{line}");
    let left = std::fs::read_dir(dir.path()).expect("the folder").count();
    assert_eq!(left, 0, "{line}: it left files behind");
}

#[test]
fn wrong_usage_is_told_before_anything_is_made() {
    for (line, expected) in [
        ("tain", "train"),
        ("train --memroy 1GiB", "--memory"),
        ("train --memory 1Gibi", "64MiB"),
        ("train --model gpt3", "hint: --model takes"),
        ("train --model ./gpt3", "no folder"),
        ("train --model gpt2", "hint: say --memory SIZE"),
        ("train --batch 0", "`batch` is 0; expected 1 to 65536"),
        ("train --batch -1", "--batch"),
        ("train --seq 1024", "1 to 256, the model's n_positions"),
        ("train --lr -1", "`lr` is -1"),
        ("train --lr inf", "`lr` is inf"),
        ("train --beta2 1", "`beta2` is 1"),
        ("train --threads 5000", "`threads` is 5000"),
        ("train --steps 99999999999999999999", "--steps"),
        ("train --momentum 0.9", "--optimizer sgd"),
        ("generate --prompt x", "DIR"),
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
    assert!(
        help.starts_with("Train a model; without arguments"),
        "{help}"
    );
    assert_eq!(highwater(dir.path(), "").0, 2);
}

#[test]
fn a_dry_run_prints_the_settings_and_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (code, settings, news) = highwater(dir.path(), "train --dry-run --seed 7");
    assert_eq!(code, 0, "{news}");
    assert!(settings.contains("seed = 7") && settings.contains("[optimizer.method.adamw]"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn doctor_speaks_json() {
    let dir = tempfile::tempdir().unwrap();
    let (code, json, _) = highwater(dir.path(), "doctor --json");
    assert_eq!(code, 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["largest_budget_bytes"].as_u64().unwrap() > 0);
}
