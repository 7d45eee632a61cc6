//! Every error that users of the program can meet: `MESSAGES.md` shows what provokes it and what is said.
//!
//! To add an error, add a case to `messages/cases.rs`, and write the page anew:
//! `HIGHWATER_MESSAGES=write cargo test -p highwater-cli --test it messages`. Then read what has changed there.

#![cfg(target_os = "linux")]

mod cases;
mod fixtures;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::program::{end, highwater, news};
use cases::{Case, Means};

const ERRORS: &str = include_str!("../../../../ERRORS.md");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/MESSAGES.md");
const WRITE: &str = "HIGHWATER_MESSAGES=write cargo test -p highwater-cli --test it messages";
const INTRODUCTION: &str = "# Errors of the `highwater` program

Each command below fails with the message that follows it. They run in a folder with a model, data and runs: `base` is a \
valid model folder, `run` and `lora` are valid runs, and the other files each have one fault. DIR stands for the path of \
that folder, N for sizes and steps that depend on the machine, TENSOR and OPERATION for names that do, and `...` for \
lines of progress. `ERRORS.md` lists the codes.
";

/// Lines before an error that no two runs have in common.
const PROGRESS: [&str; 4] = ["step ", "planned peak", "held-out loss", "sample "];
/// Codes of errors whose sizes depend on the machine.
const MEASURED: [&str; 2] = ["HW0305", "HW1003"];
/// Those that numbers end with: where that is depends on how the processor rounds.
const NUMERIC: [&str; 2] = ["HW0202", "HW0205"];
const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "bytes", "B"];

/// Codes that no command ends with, and why.
const UNSEEN: [(&[&str], &str); 6] = [
    (
        &[
            "HW0100", "HW0102", "HW0103", "HW0104", "HW0105", "HW0106", "HW0107", "HW0110",
            "HW0111", "HW0112", "HW0113",
        ],
        "only incorrect calls of the library return these; the program checks models, settings and data first",
    ),
    (
        &["HW0200", "HW0203", "HW0901", "HW1001"],
        "a bug in a kernel, in the library or in the program",
    ),
    (
        &["HW0204"],
        "the program ends with the error of the step that failed, and begins no other step",
    ),
    (
        &["HW0301", "HW0302", "HW0303", "HW0304"],
        "the program plans before it allocates: a run that does not fit ends with HW1003",
    ),
    (
        &["HW0403"],
        "weights are compared with the model before they are loaded: those of another model end with HW1013",
    ),
    (
        &["HW0404"],
        "the program calls the loader itself: images that cannot be loaded end with HW1024",
    ),
];

#[test]
fn the_page_shows_what_users_meet() {
    let folder = tempfile::tempdir().unwrap();
    // What the program resolves is the same path.
    let dir = folder.path().canonicalize().unwrap();
    fixtures::make(&dir);
    let page = page(&dir);
    if is_to_be_written() {
        fs::write(PAGE, &page).unwrap();
    }
    let kept = fs::read_to_string(PAGE).unwrap_or_default();
    let differ = page.lines().zip(kept.lines()).find(|(new, old)| new != old);
    assert!(
        page == kept,
        "MESSAGES.md is not what users meet: write it anew by `{WRITE}`, and read what has changed.\n\
         First line that differs, now and on the page:\n{differ:#?}"
    );
}

#[test]
fn each_code_is_met_or_said_not_to_be() {
    let met: BTreeSet<&str> = cases::all().map(|case| case.code).collect();
    let unseen: Vec<&str> = UNSEEN
        .iter()
        .flat_map(|(codes, _)| *codes)
        .copied()
        .collect();
    let both: Vec<&str> = met.iter().copied().chain(unseen).collect();
    let once: BTreeSet<&str> = both.iter().copied().collect();
    assert_eq!(once.len(), both.len(), "a code is listed twice: {both:?}");
    let documented: BTreeSet<&str> = codes().map(|[code, ..]| code).collect();
    assert_eq!(once, documented);
}

#[expect(clippy::disallowed_methods, reason = "who runs the tests says it")]
fn is_to_be_written() -> bool {
    std::env::var("HIGHWATER_MESSAGES").is_ok_and(|value| value == "write")
}

/// The rows of `ERRORS.md`: a code, what is wrong, and what to do.
fn codes() -> impl Iterator<Item = [&'static str; 3]> {
    let rows = ERRORS.lines().filter(|line| line.starts_with("| HW"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        <[&str; 3]>::try_from(cells).unwrap()
    })
}

fn page(dir: &Path) -> String {
    let mut page = vec![INTRODUCTION.to_owned()];
    for [code, wrong, next] in codes() {
        let met = cases::all().filter(|case| case.code == code);
        let met: Vec<String> = met.map(|case| shown(dir, case)).collect();
        if !met.is_empty() {
            page.push(format!("## {code}: {wrong}\n\nWhat to do: {next}.\n"));
            page.extend(met);
        }
    }
    page.push("## Codes that no command ends with\n".to_owned());
    let unseen = UNSEEN.iter();
    page.extend(unseen.map(|(codes, why)| format!("- {}: {why}.", codes.join(", "))));
    page.join("\n") + "\n"
}

/// A case as the page shows it.
fn shown(dir: &Path, case: &Case) -> String {
    let (code, news) = met(dir, case);
    let line = typed(case);
    let told = format!("error[{}]: ", case.code);
    assert!(news.contains(&told), "{line}: {news}");
    for foreign in [".rs:", "panicked", "Some(", "unwrap"] {
        assert!(!news.contains(foreign), "{line}: {foreign}: {news}");
    }
    let news = normalised(&news, dir, case);
    let about = case.about;
    format!("### {about}\n\n```console\n{line}\n{news}\n```\n\nExit code {code}.\n")
}

/// A command as a user types it.
fn typed(case: &Case) -> String {
    let line = case.line;
    match case.means {
        Means::Plain => format!("$ highwater {line}"),
        Means::FullOutput => format!("$ highwater {line} > /dev/full"),
        Means::Offline => format!("$ HF_HUB_OFFLINE=1 highwater {line}"),
        Means::AddressSpace(limit) => format!("$ ulimit -v {limit}\n$ highwater {line}"),
        Means::KilledChild => format!("$ highwater {line}  # and `kill -9` of its child"),
        Means::CutWeights => format!("$ highwater {line}  # and `truncate` between two turns"),
    }
}

/// Runs a command: its exit code, and what it says.
fn met(dir: &Path, case: &Case) -> (i32, String) {
    let mut command = highwater(dir, case.line);
    command.stdin(Stdio::null());
    match case.means {
        Means::Plain | Means::KilledChild => {}
        Means::Offline => {
            command.env("HF_HUB_OFFLINE", "1").env_remove("HF_ENDPOINT");
        }
        Means::FullOutput => {
            let full = File::options().write(true).open("/dev/full").unwrap();
            command.stdout(full);
        }
        Means::AddressSpace(limit) => command = limited(&command, dir, limit),
        Means::CutWeights => {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        }
    }
    let mut child = command.spawn().unwrap();
    match case.means {
        Means::KilledChild => kill_child(&child),
        Means::CutWeights => cut_weights(dir, &mut child),
        _ => {}
    }
    let code = end(child).expect("no signal");
    (code, news(dir))
}

/// A command under a limit of the shell.
fn limited(command: &Command, dir: &Path, limit: &str) -> Command {
    let script = format!("ulimit -v {limit} && exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).arg(command.get_program());
    shell.args(command.get_args()).current_dir(dir);
    let set = command
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    shell.envs(set).stdin(Stdio::null()).stdout(Stdio::null());
    shell.stderr(File::create(dir.join("news")).unwrap());
    shell
}

/// Kills the process that a process starts.
fn kill_child(parent: &Child) {
    let path = format!("/proc/{0}/task/{0}/children", parent.id());
    let started = Instant::now();
    loop {
        let children = fs::read_to_string(&path).unwrap_or_default();
        if let Some(child) = children.split_whitespace().next() {
            let pid = Pid::from_raw(child.parse().unwrap()).unwrap();
            kill_process(pid, Signal::KILL).unwrap();
            return;
        }
        assert!(started.elapsed() < Duration::from_mins(1), "no child");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Says something to a model, cuts its file short, and says something else.
fn cut_weights(dir: &Path, child: &mut Child) {
    let mut said = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap());
    writeln!(said, "hi").unwrap();
    answers.read_line(&mut String::new()).unwrap();
    let weights = dir.join("large/model.safetensors");
    let weights = File::options().write(true).open(weights).unwrap();
    weights.set_len(1_000_000).unwrap();
    writeln!(said, "of").unwrap();
}

/// What was said, without what depends on the machine.
fn normalised(news: &str, dir: &Path, case: &Case) -> String {
    let news = news.replace(dir.to_str().unwrap(), "DIR");
    let news = match case.means {
        Means::CutWeights => without_tensor(&news),
        _ => news,
    };
    let mut lines: Vec<&str> = Vec::new();
    for line in news.trim_end().lines() {
        let is_progress = PROGRESS.iter().any(|start| line.starts_with(start));
        match lines.last() {
            Some(&"...") if is_progress => {}
            _ => lines.push(if is_progress { "..." } else { line }),
        }
    }
    let news = lines.join("\n");
    let news = if NUMERIC.contains(&case.code) {
        without_place(&news)
    } else {
        news
    };
    // Of saved states it is said how much space is free.
    if MEASURED.contains(&case.code) || case.line.contains("--keep") {
        without_sizes(&without_holder(&news), case.line)
    } else {
        news
    }
}

/// What does not fit, without the operation: with other kernels it is another operation.
fn without_holder(news: &str) -> String {
    let line = |line: &str| match line.split_once(", reached in ") {
        Some((start, _)) => format!("{start}, reached in OPERATION"),
        None => line.to_owned(),
    };
    news.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// An error without the step and the operation that it is about.
fn without_place(news: &str) -> String {
    let line = |line: &str| {
        let (start, rest) = line.split_once("]: step ").unwrap_or((line, ""));
        let Some((_, end)) = rest.split_once(':') else {
            return line.to_owned();
        };
        let place = "First non-finite result: ";
        let end = end
            .split_once(place)
            .map_or(end.to_owned(), |it| format!("{}{place}OPERATION", it.0));
        format!("{start}]: step N:{end}")
    };
    news.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// An error without the tensor that it is about: which of them wait in their file depends on the machine.
fn without_tensor(news: &str) -> String {
    let (start, rest) = news.split_once("]: ").unwrap();
    let (_, end) = rest.split_once(": ").unwrap();
    format!("{start}]: TENSOR: {end}")
}

/// A text with N in the place of all sizes but those of the command itself.
fn without_sizes(text: &str, command: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        let is_other = |c: char| !c.is_ascii_digit() && c != '.';
        let (number, behind) = from.split_at(from.find(is_other).unwrap_or(from.len()));
        let word = behind.strip_prefix(' ').unwrap_or(behind);
        let unit = UNITS.iter().find(|unit| word.starts_with(**unit));
        let is_measured = unit.is_some_and(|unit| !command.contains(&[number, *unit].concat()));
        kept.push_str(before);
        kept.push_str(if is_measured { "N" } else { number });
        rest = behind;
    }
    kept + rest
}
