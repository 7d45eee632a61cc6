//! The program in processes of its own, which may take only so long: what hangs fails.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cache;

/// More than any run of these tests takes on a slow machine.
const LIMIT: Duration = Duration::from_mins(3);

/// Of the guide this share is held out, where a test states none: a tenth would take most of the time of short runs.
const HELD_OUT: [&str; 2] = ["--held-out", "0.005"];

/// The program in a folder, not started yet.
pub(crate) fn command<'a>(dir: &Path, words: impl IntoIterator<Item = &'a str>) -> Command {
    let words: Vec<&str> = words.into_iter().collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
    command
        .current_dir(dir)
        .env("XDG_CACHE_HOME", cache::home())
        .args(&words);
    if reads_the_guide(&words) {
        command.args(HELD_OUT);
    }
    command
}

/// Whether these words train on the guide, and say neither how much of it is held out nor where that is said.
fn reads_the_guide(words: &[&str]) -> bool {
    let says = |flag: &str| {
        words
            .iter()
            .any(|word| word.split('=').next() == Some(flag))
    };
    let data = words.iter().position(|&word| word == "--data");
    let other = data.is_some_and(|at| {
        !words
            .get(at + 1)
            .is_some_and(|it| it.ends_with("guide.txt"))
    });
    let flags = ["--held-out", "--eval-data", "--config", "--help", "--set"];
    words.first() == Some(&"train") && !other && !flags.into_iter().any(says)
}

/// The program in a folder. What it says goes to the file `news` there.
pub(crate) fn highwater(dir: &Path, line: &str) -> Command {
    let mut command = command(dir, line.split_whitespace());
    let news = std::fs::File::create(dir.join("news")).unwrap();
    command.stdout(Stdio::null()).stderr(news);
    command
}

/// Waits for the end; gives the exit code, none for a kill.
pub(crate) fn end(mut child: Child) -> Option<i32> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if started.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("it hangs: over {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What the program said last in this folder.
pub(crate) fn news(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("news")).unwrap()
}

/// The least memory, in bytes, that `plan` names for these settings.
pub(crate) fn floor(dir: &Path, settings: &str) -> u64 {
    let plan = dir.join("plan.json");
    let file = std::fs::File::create(&plan).unwrap();
    let mut command = highwater(dir, &format!("plan --json {settings}"));
    let code = end(command.stdout(file).spawn().unwrap());
    assert_eq!(code, Some(0), "{}", news(dir));
    let plan: Value = serde_json::from_slice(&std::fs::read(plan).unwrap()).unwrap();
    plan["floor_bytes"].as_u64().unwrap()
}

/// An empty folder for `--disk`: one for each test, and always the same, so that its disk is measured once.
pub(crate) fn spill(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("spill-{test}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// That a folder has nothing in it.
pub(crate) fn assert_empty(folder: &Path) {
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
