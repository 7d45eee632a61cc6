//! Model folders with one thing wrong, or one thing odd: each is read as transformers reads it, or refused by name. No
//! model is cut short in silence, nothing hangs, and nothing is a mistake of the program.
//!
//! Some of them in CI; with `HIGHWATER_CASES=2000` as many as `.ci/full` asks for.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../byte_tokenizer/mod.rs"]
mod byte_tokenizer;
#[path = "../cache/mod.rs"]
mod cache;
mod folder;
mod mutations;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use folder::{FAMILIES, Folder};
use mutations::{Expected, MUTATIONS};

/// More than any of them takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);
/// How many are tried when nobody says.
const CASES: usize = 160;
/// Processes at a time.
const AT_ONCE: usize = 2;

/// Evaluates a folder; gives the exit code, none for a kill, and what was printed and said.
fn eval(dir: &Path, data: &str) -> (Option<i32>, String, String) {
    let open = |name: &str| std::fs::File::create(dir.join(name)).unwrap();
    let line = format!(
        "eval --model ./m --data {data} --memory 512MiB --seq 32 --batch 2 --threads 1 --json"
    );
    let mut child = Command::new(env!("CARGO_BIN_EXE_highwater"))
        .env("XDG_CACHE_HOME", cache::home())
        .current_dir(dir)
        .args(line.split_whitespace())
        .stdout(open("results"))
        .stderr(open("news"))
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if started.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(3));
    };
    let read = |name: &str| {
        let bytes = std::fs::read(dir.join(name)).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    (code, read("results"), read("news"))
}

fn loss(results: &str) -> Option<f64> {
    let results: serde_json::Value = serde_json::from_str(results).ok()?;
    results["loss"].as_f64()
}

/// What is wrong with the end of a case, if anything is.
fn verdict(
    expected: &Expected,
    whole: f64,
    (code, results, news): (Option<i32>, String, String),
) -> Result<(), String> {
    let end = format!("exit code {code:?}, {results}{news}");
    let Some(code) = code else {
        return Err(format!("it hangs, or was killed: {end}"));
    };
    if code != 0 {
        let told = ["error[HW", "error: "]
            .iter()
            .any(|start| news.contains(start));
        let is_ours = code == 1 || news.contains("panicked") || news.contains(".rs:");
        if is_ours || !told || !(2..=5).contains(&code) {
            return Err(format!("no refusal for users: {end}"));
        }
    }
    let is_whole = || loss(&results).is_some_and(|loss| (loss - whole).abs() < 1e-6 * whole);
    match expected {
        Expected::Right if code == 0 && is_whole() => Ok(()),
        Expected::Said(text) if code == 0 && is_whole() && news.contains(text) => Ok(()),
        Expected::Refused(texts) if code != 0 && texts.iter().all(|text| news.contains(text)) => {
            Ok(())
        }
        Expected::RightOrRefused if code != 0 || is_whole() => Ok(()),
        _ => Err(format!("{expected:?} was expected ({whole}): {end}")),
    }
}

#[test]
fn folders_with_one_thing_wrong_are_right_or_refused_by_name() {
    #[expect(clippy::disallowed_methods, reason = "more of them are tried by hand")]
    let cases = std::env::var("HIGHWATER_CASES").ok();
    let cases = cases.map_or(CASES, |cases| cases.parse().unwrap());
    let folders: Vec<Folder> = FAMILIES.iter().map(|family| Folder::of(family)).collect();
    let whole = |folder: &Folder| {
        let dir = tempfile::tempdir().unwrap();
        folder.write(dir.path());
        let (code, results, news) = eval(dir.path(), "ids.jsonl");
        assert_eq!(code, Some(0), "{}: {news}", folder.family);
        loss(&results).unwrap()
    };
    let losses: Vec<f64> = folders.iter().map(whole).collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let case = next.fetch_add(1, Ordering::Relaxed);
            if case >= cases {
                break;
            }
            // Every mutation of every family comes, and others of the same kind after that.
            let (name, mutate) = MUTATIONS[case % MUTATIONS.len()];
            let which = (case / MUTATIONS.len() + case) % folders.len();
            let mut folder = folders[which].clone();
            folder.seed = case as u64;
            let Some(expected) = mutate(&mut folder) else {
                continue;
            };
            let dir = tempfile::tempdir().unwrap();
            folder.write(dir.path());
            let end = eval(dir.path(), folder.data);
            if let Err(problem) = verdict(&expected, losses[which], end) {
                let family = folder.family;
                wrong
                    .lock()
                    .unwrap()
                    .push(format!("{case}: {name} of {family}: {problem}"));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(
        wrong.is_empty(),
        "{} of {cases} cases:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
