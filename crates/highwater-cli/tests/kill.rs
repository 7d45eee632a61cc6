//! A run that is stopped or killed at any time and resumed ends as the run that never was.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what went wrong by stopping there"
)]

mod cache;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use highwater::philox;
use serde_json::Value;

const STEPS: usize = 16;
const TRAIN: &str = "--data guide.txt --batch 4 --seq 64 --steps 16 --save-every 3 --keep 2 \
                     --dropout 0.1 --order shuffled --seed 5";
const KILLS: usize = 20;

fn highwater(dir: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
    command.env("XDG_CACHE_HOME", cache::home());
    command.current_dir(dir).args(line.split_whitespace());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Starts the run `name`, or goes on with it if there is something to go on with.
fn start(dir: &Path, name: &str, more: &str) -> Child {
    let line = if dir.join(name).join("config.toml").exists() {
        format!("resume {name} {more}")
    } else {
        format!("train --out {name} {TRAIN} {more}")
    };
    highwater(dir, &line).spawn().unwrap()
}

/// Waits for the end; gives the exit code, none for a kill.
fn end(child: Child) -> Option<i32> {
    let output = child.wait_with_output().unwrap();
    let news = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    assert!(matches!(code, None | Some(0 | 130)), "{code:?}: {news}");
    code
}

fn metrics(run: &Path) -> Vec<Value> {
    let lines = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    let whole = lines
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    whole
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// All that has to be the same whatever happened on the way.
#[derive(PartialEq)]
struct Outcome {
    files: Vec<Vec<u8>>,
    metrics: Vec<[Value; 4]>,
}

fn outcome(run: &Path) -> Outcome {
    let read =
        |name: String| std::fs::read(run.join(&name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let saved = ["model.safetensors", "optimizer.safetensors", "state.json"];
    let saved = saved.map(|name| read(format!("checkpoints/step-{STEPS:06}/{name}")));
    let fields =
        |record: Value| ["step", "loss", "lr", "grad_norm"].map(|field| record[field].clone());
    Outcome {
        files: [
            saved.to_vec(),
            vec![read("final/model.safetensors".to_owned())],
        ]
        .concat(),
        metrics: metrics(run).into_iter().map(fields).collect(),
    }
}

fn assert_same(found: &Outcome, expected: &Outcome, what: &str) {
    assert_eq!(found.metrics, expected.metrics, "{what}");
    assert!(found == expected, "{what}: other bytes");
}

/// The run that never was stopped, and how long it took.
fn undisturbed(dir: &Path) -> (Outcome, Duration) {
    std::fs::write(dir.join("guide.txt"), highwater_cli::data::GUIDE).unwrap();
    let started = Instant::now();
    assert_eq!(end(start(dir, "undisturbed", "--threads 2")), Some(0));
    let outcome = outcome(&dir.join("undisturbed"));
    assert_eq!(outcome.metrics.len(), STEPS);
    (outcome, started.elapsed())
}

#[test]
fn killed_at_any_time_and_resumed_it_ends_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (expected, mut duration) = undisturbed(dir.path());
    let mut when = [0.0; KILLS];
    philox::fill_uniform(7, 0, &mut when);
    let (mut runs, mut kills) = (0, 0);
    while kills < KILLS || dir.path().join("run").exists() {
        let mut child = start(dir.path(), "run", "--threads 2");
        if let Some(when) = when.get(kills) {
            std::thread::sleep(duration.mul_f32(*when));
            child.kill().unwrap();
        }
        if end(child).is_none() {
            kills += 1;
            continue;
        }
        runs += 1;
        let run = dir.path().join("run");
        assert_same(&outcome(&run), &expected, &format!("run {runs}"));
        std::fs::remove_dir_all(run).unwrap();
        // It was faster than it was thought to be: the next kill comes earlier.
        duration = duration.mul_f32(0.8);
    }
    assert!(runs > 0);
}

#[test]
fn interrupted_it_saves_and_goes_on_with_other_means() {
    let dir = tempfile::tempdir().unwrap();
    let (expected, _) = undisturbed(dir.path());
    // A machine that is busy elsewhere may let the run end before the signal comes.
    let stopped = (0..5)
        .map(|i| dir.path().join(format!("run-{i}")))
        .find(|run| {
            let name = run.file_name().unwrap().to_str().unwrap();
            let child = start(dir.path(), name, "--threads 2");
            while metrics(run).is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let pid = child.id().to_string();
            Command::new("kill").args(["-INT", &pid]).status().unwrap();
            end(child) == Some(130)
        });
    let run = stopped.expect("a run that takes longer than a signal");
    let done = metrics(&run).len();
    assert!((1..STEPS).contains(&done));
    let saved = run.join(format!("checkpoints/step-{done:06}/manifest.json"));
    assert!(saved.exists() && !run.join("final").exists());

    let plan = format!("plan {TRAIN} --threads 1 --json").replace("--save-every 3 --keep 2", "");
    let plan = highwater(dir.path(), &plan)
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    // A mebibyte to spare: the reserve is measured anew each time.
    let memory = plan["floor_bytes"].as_u64().unwrap() + (1 << 20);
    assert!(memory < plan["peak_bytes"].as_u64().unwrap());
    let name = run.file_name().unwrap().to_str().unwrap();
    let child = start(dir.path(), name, &format!("--threads 1 --memory {memory}"));
    assert_eq!(end(child), Some(0));
    let recomputed = |record: &Value| record["recomputed_nodes"].as_u64().unwrap();
    let metrics = metrics(&run);
    assert!(recomputed(&metrics[0]) < recomputed(&metrics[STEPS - 1]));
    assert_same(
        &outcome(&run),
        &expected,
        "another budget and another number of threads",
    );
}
