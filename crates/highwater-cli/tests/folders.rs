//! Folders as systems really have them: full, read-only, missing, without direct transfers or io_uring.
//!
//! What changes a whole process is done in a child: this test again, for one of those that are ignored.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests fail by panics, and say what they skip"
)]

mod cache;
mod outcome;
mod program;

use std::path::Path;
use std::process::{Command, Stdio};

use outcome::{assert_same, metrics, outcome};
use program::{assert_empty, end, floor, highwater, news, spill};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

const STEPS: usize = 3;
const DATA: &str = "--data guide.txt --batch 2 --seq 32 --seed 5 --threads 2";
const MIB: u64 = 1 << 20;
/// Where a child mounts a file system of its own.
const MOUNT: &str = "/mnt";

/// An empty folder with data to train on.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("guide.txt"), highwater_cli::data::GUIDE).unwrap();
    dir
}

fn train(out: &str, more: &str) -> String {
    format!("train --out {out} {DATA} --steps {STEPS} --keep 9 {more}")
}

/// Runs the program to its end; gives the exit code and what it said.
fn run(dir: &Path, line: &str) -> (Option<i32>, String) {
    let code = end(highwater(dir, line).spawn().unwrap());
    (code, news(dir))
}

/// Starts the program, which fails with this code, and says all of this.
#[track_caller]
fn fails(dir: &Path, line: &str, code: i32, expected: &[&str]) {
    let (found, news) = run(dir, line);
    assert_eq!(found, Some(code), "{line}\n{news}");
    for text in expected {
        assert!(news.contains(text), "{line}: {text}\n{news}");
    }
    assert!(
        // What does not parse has no code.
        (news.contains("error[HW") || news.starts_with("error: ")) && !news.contains("panicked"),
        "{news}"
    );
}

#[test]
fn a_folder_that_will_not_do_is_a_setting_that_is_not_possible() {
    let dir = folder();
    for (disk, expected) in [
        ("none=1GiB", "none: there is no such folder"),
        ("guide.txt=1GiB", "guide.txt: that is not a folder"),
        ("guide.txt/none=1GiB", "guide.txt/none: "),
        (".=99999999999TiB", "above 2^60"),
        (".=0", "it is zero"),
        (".=-1GiB", "it is negative"),
        (".=1Gibi", "64MiB"),
        (".=", "--disk"),
        ("=1GiB", "expected a folder and a size"),
        (".", "expected a folder and a size"),
        ("1GiB", "expected a folder and a size"),
    ] {
        let line = train("run", &format!("--disk {disk}"));
        fails(dir.path(), &line, 2, &[expected]);
        assert!(!dir.path().join("run").exists(), "{disk}");
    }
    fails(
        dir.path(),
        &train("guide.txt/run", ""),
        4,
        &["guide.txt/run"],
    );
}

#[test]
fn a_disk_of_too_little_space_says_so() {
    let dir = folder();
    let spill = spill("little");
    let memory = floor(dir.path(), DATA) - MIB;
    let disk = format!("--disk {}=64KiB --memory {memory}", spill.display());
    let full = [
        "this does not fit",
        "hint: --disk is limited to 64 KiB: a larger limit may reduce the memory that is needed",
    ];
    fails(dir.path(), &train("run", &disk), 3, &full);
    assert_empty(&spill);
    assert!(!dir.path().join("run").exists());
}

/// This test again, for one of the ignored ones, in this folder; under a command if there is one.
fn child(command: &[&str], test: &str, dir: &Path) {
    let program = std::env::current_exe().unwrap();
    let mut command = match command {
        [] => Command::new(program),
        [name, arguments @ ..] => {
            let mut command = Command::new(name);
            command.args(arguments).arg(program);
            command
        }
    };
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    let told = std::fs::File::create(dir.join("told")).unwrap();
    let errors = told.try_clone().unwrap();
    command.current_dir(dir).stdout(told).stderr(errors);
    let code = end(command.spawn().unwrap());
    let told = std::fs::read_to_string(dir.join("told")).unwrap();
    assert!(code == Some(0) && told.contains("1 passed"), "{told}");
}

#[test]
fn full_and_read_only_file_systems_are_named() {
    let mount = format!("mount -t tmpfs -o size=48m none {MOUNT} && exec \"$@\"");
    let shell = ["sh", "-c", &mount, "sh"];
    for unshare in [&["unshare", "-m"][..], &["unshare", "-r", "-m"]] {
        let command = [unshare, &shell].concat();
        let probe = Command::new(command[0])
            .args(&command[1..])
            .arg("true")
            .stderr(Stdio::null())
            .status();
        if probe.is_ok_and(|status| status.success()) {
            for test in ["full_disk", "full_output", "read_only"] {
                child(&command, test, folder().path());
            }
            return;
        }
    }
    println!("skipped: this user cannot mount a file system of its own");
}

#[test]
#[ignore = "in a child: with a small file system of its own below /mnt"]
fn full_disk() {
    let (dir, mount) = (Path::new("."), Path::new(MOUNT));
    let full = [MOUNT, "are free there", "hint: free some space"];
    fails(dir, &train("run", "--disk /mnt=64MiB"), 4, &full);
    assert!(!dir.join("run").exists());
    assert_empty(mount);
    // There is enough, and then something else takes it.
    let disk = "--disk /mnt=32MiB";
    let memory = floor(dir, &format!("{DATA} {disk}")) + MIB;
    let more = format!("{disk} --memory {memory}");
    assert_eq!(run(dir, &train("run", &more)).0, Some(0), "{}", news(dir));
    assert_empty(mount);
    std::fs::write(mount.join("other"), vec![1; 20 << 20]).unwrap();
    fails(dir, "resume run --steps 5", 4, &full);
    std::fs::remove_file(mount.join("other")).unwrap();
    assert_empty(mount);
    let (code, news) = run(dir, "resume run --steps 5");
    assert_eq!(code, Some(0), "{news}");
    assert_empty(mount);
}

#[test]
#[ignore = "in a child: with a small file system of its own below /mnt"]
fn full_output() {
    let (dir, mount) = (Path::new("."), Path::new(MOUNT));
    let full = [MOUNT, "are free there", "hint: free some space"];
    remount("size=24m");
    // Not even the settings have room.
    let other = mount.join("other");
    let _ = std::fs::write(&other, vec![1; 25 << 20]);
    fails(dir, &train("/mnt/run", ""), 4, &full);
    std::fs::remove_file(&other).unwrap();
    assert_empty(mount);
    // A state has room, two have not.
    fails(dir, &train("/mnt/run", "--save-every 1"), 4, &full);
    assert_empty(mount);
    let (code, news) = run(dir, &train("/mnt/run", "--save-every 3"));
    assert_eq!(code, Some(0), "{news}");
    let saved = || {
        let states = std::fs::read_dir(mount.join("run/checkpoints")).unwrap();
        let names = states.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names
    };
    assert_eq!(saved(), ["LATEST", "step-000003"]);
    fails(dir, "resume /mnt/run --steps 5", 4, &full);
    assert_eq!(saved(), ["LATEST", "step-000003"]);
    remount("size=200m");
    let (code, news) = run(dir, "resume /mnt/run --steps 5");
    assert_eq!(code, Some(0), "{news}");
    assert!(news.contains("resuming after step 3\n"), "{news}");
    assert_eq!(saved(), ["LATEST", "step-000003", "step-000005"]);
}

#[test]
#[ignore = "in a child: with a small file system of its own below /mnt"]
fn read_only() {
    let dir = Path::new(".");
    remount("ro");
    let refused = [MOUNT, "cannot be written to"];
    fails(dir, &train("run", "--disk /mnt=1MiB"), 2, &refused);
    assert!(!dir.join("run").exists());
    let refused = [MOUNT, "Read-only file system"];
    fails(dir, &train("/mnt/run", ""), 4, &refused);
}

/// Changes the file system that is mounted for this child.
fn remount(option: &str) {
    let option = format!("remount,{option}");
    let status = Command::new("mount").args(["-o", &option, MOUNT]).status();
    assert!(status.unwrap().success());
}

#[test]
fn what_a_system_denies_is_warned_of_once_and_changes_no_bit() {
    for test in ["denied_uring", "denied_direct"] {
        child(&[], test, folder().path());
    }
}

#[test]
#[ignore = "in a child: it denies a system call for good"]
fn denied_uring() {
    const SETUP: i64 = 425;
    deny(SETUP, vec![], 1);
    warned("uring", "threads, ");
}

#[test]
#[ignore = "in a child: it denies a system call for good"]
fn denied_direct() {
    let direct = u64::from(rustix::fs::OFlags::DIRECT.bits());
    let asked = SeccompCmpOp::MaskedEq(direct);
    let asked = SeccompCondition::new(2, SeccompCmpArgLen::Dword, asked, direct).unwrap();
    let rule = SeccompRule::new(vec![asked]).unwrap();
    deny(
        OPENAT,
        vec![rule],
        rustix::io::Errno::INVAL.raw_os_error() as u32,
    );
    warned("direct", "threads, through the page cache");
}

#[cfg(target_arch = "x86_64")]
const OPENAT: i64 = 257;
#[cfg(not(target_arch = "x86_64"))]
const OPENAT: i64 = 56;

/// Denies a call where the rules apply, to this process and all that it starts.
fn deny(call: i64, rules: Vec<SeccompRule>, error: u32) {
    let filter = SeccompFilter::new(
        [(call, rules)].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(error),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    apply_filter(&program).unwrap();
}

/// That a run with a disk says once what it does without, and comes to the same as without a disk.
fn warned(name: &str, backend: &str) {
    let dir = Path::new(".");
    assert_eq!(run(dir, &train("undisturbed", "")).0, Some(0));
    let spill = spill(name);
    let disk = format!("--disk {}=64MiB", spill.display());
    let memory = floor(dir, &format!("{DATA} {disk}")) + MIB;
    let (code, news) = run(dir, &train("run", &format!("{disk} --memory {memory}")));
    assert_eq!(code, Some(0), "{news}");
    let warnings: Vec<&str> = news
        .lines()
        .filter(|line| line.contains("warning"))
        .collect();
    assert!(
        warnings.len() == 1 && warnings[0].contains(backend),
        "{news}"
    );
    let moved = |record: &serde_json::Value| record["bytes_written"].as_u64().unwrap();
    assert!(
        metrics(Path::new("run"))
            .iter()
            .all(|record| moved(record) > 0)
    );
    let expected = outcome(Path::new("undisturbed"), STEPS);
    assert_same(&outcome(Path::new("run"), STEPS), &expected, backend);
    assert_empty(&spill);
}
