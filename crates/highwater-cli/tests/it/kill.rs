//! A run that is stopped or killed at any time and resumed ends as the run that never was; a disk that
//! it used has nothing of it left.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test says what went wrong by stopping there"
)]

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::outcome::{Outcome, assert_same, metrics, outcome};
use crate::program::{assert_empty, end, floor, highwater, news, spill};
use crate::share::one_of;
use highwater::philox;

const STEPS: usize = 16;
const DATA: &str = "--data guide.txt --batch 4 --seq 64 --dropout 0.1 --order shuffled --seed 5";
const TRAIN: &str = "--steps 16 --save-every 3 --keep 2";

/// Starts the run `name`, or goes on with it if there is something to go on with.
fn start(dir: &Path, name: &str, more: &str) -> Child {
    let line = if dir.join(name).join("config.toml").exists() {
        format!("resume {name} {more}")
    } else {
        format!("train --out {name} {DATA} {TRAIN} {more}")
    };
    highwater(dir, &line).spawn().unwrap()
}

/// Waits for an end that is no failure; none for a kill.
fn ended(dir: &Path, child: Child) -> Option<i32> {
    let code = end(child);
    assert!(
        matches!(code, None | Some(0 | 130)),
        "{code:?}: {}",
        news(dir)
    );
    code
}

/// The run that never was stopped, and how long it took.
fn undisturbed(dir: &Path, more: &str) -> (Outcome, Duration) {
    std::fs::write(dir.join("guide.txt"), highwater_cli::data::GUIDE).unwrap();
    let started = Instant::now();
    let child = start(dir, "undisturbed", more);
    assert_eq!(ended(dir, child), Some(0));
    (outcome(&dir.join("undisturbed"), STEPS), started.elapsed())
}

/// Kills a run so often at random times, begun anew whenever it came to its end. `after` looks at what a
/// kill has left.
fn killed(
    dir: &Path,
    expected: &Outcome,
    mut duration: Duration,
    more: &str,
    kills: usize,
    after: impl Fn(),
) {
    let mut when = vec![0.0; kills];
    philox::fill_uniform(7, 0, &mut when);
    let run = dir.join("run");
    let (mut ends, mut killed) = (0, 0);
    while killed < kills || run.exists() {
        let mut child = start(dir, "run", more);
        if let Some(when) = when.get(killed) {
            std::thread::sleep(duration.mul_f32(*when));
            child.kill().unwrap();
        }
        let code = ended(dir, child);
        after();
        if code.is_none() {
            killed += 1;
            continue;
        }
        ends += 1;
        assert_same(&outcome(&run, STEPS), expected, &format!("run {ends}"));
        std::fs::remove_dir_all(&run).unwrap();
        // It was faster than it was thought to be: the next kill comes earlier.
        duration = duration.mul_f32(0.8);
    }
    assert!(ends > 0);
    println!("{kills} kills, {ends} ends");
}

fn killed_in_memory(kills: usize) {
    let dir = tempfile::tempdir().unwrap();
    let more = "--threads 2";
    let (expected, duration) = undisturbed(dir.path(), more);
    killed(dir.path(), &expected, duration, more, kills, || ());
}

fn killed_with_a_disk(kills: usize) {
    let dir = tempfile::tempdir().unwrap();
    let (expected, _) = undisturbed(dir.path(), "--threads 2");
    let spill = spill("kill");
    let disk = format!("--threads 2 --disk {}=64MiB", spill.display());
    // A mebibyte to spare: the reserve is measured anew each time.
    let memory = floor(dir.path(), &format!("{DATA} {disk}")) + (1 << 20);
    let more = format!("{disk} --memory {memory}");
    let started = Instant::now();
    let child = start(dir.path(), "with-a-disk", &more);
    assert_eq!(ended(dir.path(), child), Some(0));
    let duration = started.elapsed();
    let run = dir.path().join("with-a-disk");
    assert_same(&outcome(&run, STEPS), &expected, "with a disk");
    let moved = |record: &serde_json::Value| record["bytes_read"].as_u64().unwrap();
    assert!(metrics(&run).iter().all(|record| moved(record) > 0));
    killed(dir.path(), &expected, duration, &more, kills, || {
        assert_empty(&spill);
    });
}

#[test]
fn killed_at_any_time_and_resumed_it_ends_the_same() {
    killed_in_memory(8_usize.div_ceil(one_of()));
}

#[test]
fn killed_with_a_disk_it_leaves_nothing_there_and_ends_the_same() {
    killed_with_a_disk(8_usize.div_ceil(one_of()));
}

#[test]
#[ignore = "in full: minutes"]
fn in_full_killed_at_any_time_and_resumed_it_ends_the_same() {
    killed_in_memory(100);
}

#[test]
#[ignore = "in full: minutes"]
fn in_full_killed_with_a_disk_it_leaves_nothing_there_and_ends_the_same() {
    killed_with_a_disk(100);
}

#[test]
fn interrupted_it_saves_and_goes_on_with_other_means() {
    let dir = tempfile::tempdir().unwrap();
    let (expected, _) = undisturbed(dir.path(), "--threads 2");
    // A machine that is busy elsewhere may let the run end before the signal comes.
    let stopped = (0..5)
        .map(|i| dir.path().join(format!("run-{i}")))
        .find(|run| {
            let name = run.file_name().unwrap().to_str().unwrap();
            let mut child = start(dir.path(), name, "--threads 2");
            while metrics(run).is_empty() && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let pid = child.id().to_string();
            Command::new("kill").args(["-INT", &pid]).status().unwrap();
            ended(dir.path(), child) == Some(130)
        });
    let run = stopped.expect("a run that takes longer than a signal");
    let done = metrics(&run).len();
    assert!((1..STEPS).contains(&done));
    let saved = run.join(format!("checkpoints/step-{done:06}/manifest.json"));
    assert!(saved.exists() && !run.join("final").exists());

    // A mebibyte to spare: the reserve is measured anew each time.
    let memory = floor(dir.path(), &format!("{DATA} --threads 1")) + (1 << 20);
    let name = run.file_name().unwrap().to_str().unwrap();
    let child = start(dir.path(), name, &format!("--threads 1 --memory {memory}"));
    assert_eq!(ended(dir.path(), child), Some(0));
    let recomputed = |record: &serde_json::Value| record["recomputed_nodes"].as_u64().unwrap();
    let metrics = metrics(&run);
    assert!(recomputed(&metrics[0]) < recomputed(&metrics[STEPS - 1]));
    assert_same(
        &outcome(&run, STEPS),
        &expected,
        "another budget and another number of threads",
    );
}
