//! The spill store over real folders: each back end, and what a system may refuse.
//!
//! What changes a whole process is done in a child: this test again, for one of the tests that are
//! ignored here.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests fail by panics, and say what they skip"
)]

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use highwater_memory::spill::{
    BLOCK, Backend, Extent, SpillError, Store, Tag, free_bytes, measure, open, open_with,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const MIB: u64 = 1 << 20;

/// Memory from a block's start on.
struct Memory {
    bytes: Vec<u8>,
    start: usize,
}

impl Memory {
    fn new(bytes: usize, seed: u32) -> Self {
        let mut memory = vec![0; bytes + BLOCK];
        let start = memory.as_ptr().addr().wrapping_neg() % BLOCK;
        let mut state = seed;
        for byte in &mut memory[start..] {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
        }
        memory.truncate(start + bytes);
        Self {
            bytes: memory,
            start,
        }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

/// Payloads of several sizes, written and read by two threads at a time.
fn round_trip(store: &Store) {
    let sizes = [0, 1, BLOCK, 3 * MIB as usize + 5, 21 * MIB as usize, 7];
    let places = |first: u64| {
        let mut offset = first;
        sizes.map(|bytes| {
            let capacity = bytes as u64;
            let at = Extent { offset, capacity };
            offset += Extent::footprint(capacity);
            at
        })
    };
    let half = 26 * MIB;
    std::thread::scope(|scope| {
        for first in [0, half] {
            scope.spawn(move || {
                for version in 0..2 {
                    for (cell, at) in (first..).zip(places(first)) {
                        let tag = Tag { cell, version };
                        let seed = (cell + version) as u32;
                        let mut memory = Memory::new(at.capacity as usize, seed);
                        store.write(at, tag, memory.get()).unwrap();
                        let mut read = Memory::new(at.capacity as usize, !seed);
                        store.read(at, tag, read.get()).unwrap();
                        assert!(memory.get() == read.get());
                    }
                }
            });
        }
    });
}

const STORE_BYTES: u64 = 52 * MIB;

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

/// Whether io_uring is to be had here at all.
fn has_uring(folder: &Path) -> bool {
    match open_with(folder, MIB, 1, Backend::Uring, true) {
        Ok(_) => true,
        Err(error) => {
            println!("skipped: no io_uring here: {error}");
            false
        }
    }
}

#[test]
fn every_back_end_keeps_payloads() {
    let folder = tempfile::tempdir().unwrap();
    for (backend, direct) in [
        (Backend::Auto, true),
        (Backend::Auto, false),
        (Backend::Threads, true),
        (Backend::Threads, false),
    ] {
        let store = open_with(folder.path(), STORE_BYTES, 1, backend, direct).unwrap();
        let said = store.backend();
        assert!(
            direct || said == "threads, through the page cache",
            "{said}"
        );
        assert!(
            backend == Backend::Auto || said.starts_with("threads"),
            "{said}"
        );
        round_trip(&store);
        assert!(is_empty(folder.path()));
    }
}

/// Those of a process's open files (`/proc/../fd`) that are in the folder, with a name or without.
fn open_files(files: &Path, folder: &Path) -> Vec<PathBuf> {
    let open = std::fs::read_dir(files).unwrap();
    let ours = open.filter_map(|entry| {
        let path = entry.unwrap().path();
        let target = std::fs::read_link(&path).ok()?;
        target.starts_with(folder).then_some(path)
    });
    ours.collect()
}

/// What is in the file of a store that this process has open.
fn contents(folder: &Path) -> Vec<u8> {
    let files = open_files(Path::new("/proc/self/fd"), folder);
    // Rings and threads share one open file.
    assert_eq!(files.len(), 1);
    std::fs::read(&files[0]).unwrap()
}

#[test]
fn files_are_the_same_by_io_uring_and_by_threads() {
    let folder = tempfile::tempdir().unwrap();
    if !has_uring(folder.path()) {
        return;
    }
    let files = [
        (Backend::Uring, true),
        (Backend::Threads, true),
        (Backend::Threads, false),
    ]
    .map(|(backend, direct)| {
        let inner = tempfile::tempdir_in(&folder).unwrap();
        let store = open_with(inner.path(), STORE_BYTES, 1, backend, direct).unwrap();
        round_trip(&store);
        contents(inner.path())
    });
    assert!(files[0] == files[1] && files[0] == files[2]);
    assert_eq!(files[0].len() as u64, STORE_BYTES);
}

#[test]
fn what_a_folder_cannot_hold_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let missing = open(&folder.path().join("none"), 1, 1).unwrap_err();
    assert!(
        missing.to_string().contains("there is no such folder"),
        "{missing}"
    );
    let file = tempfile::NamedTempFile::new_in(&folder).unwrap();
    let no_folder = open(file.path(), 1, 1).unwrap_err();
    assert!(
        no_folder.to_string().contains("not a folder"),
        "{no_folder}"
    );
    let read_only = open(Path::new("/proc"), 1, 1).unwrap_err();
    assert!(!read_only.is_full() && matches!(read_only, SpillError::Create { .. }));
    let full = open(folder.path(), 1 << 60, 1).unwrap_err();
    assert!(
        full.is_full() && full.to_string().contains("are free there"),
        "{full}"
    );
    assert!(free_bytes(folder.path()).unwrap() > 0);
    drop(file);
    assert!(is_empty(folder.path()));
}

#[test]
fn bandwidths_are_measured_with_little() {
    let folder = tempfile::tempdir().unwrap();
    for bytes in [0, 3 * MIB] {
        let found = measure(folder.path(), bytes).unwrap();
        let all = [
            found.read,
            found.write,
            found.read_while_writing,
            found.write_while_reading,
            found.processor_seconds,
        ];
        assert!(
            all.iter().all(|figure| figure.is_finite() && *figure > 0.0),
            "{found:?}"
        );
    }
    assert!(is_empty(folder.path()));
}

/// This test again, for one of the ignored ones; under a command if there is one.
fn child(command: &[&str], test: &str) -> Command {
    let program = std::env::current_exe().unwrap();
    let mut command = match command {
        [] => Command::new(program),
        [name, arguments @ ..] => {
            let mut command = Command::new(name);
            command.args(arguments).arg(program);
            command
        }
    };
    command.args([
        test,
        "--exact",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    command
}

/// What a child that passes its test prints.
fn passes(mut child: Command) -> String {
    let output = child.output().unwrap();
    let (out, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}\n{errors}");
    assert!(out.contains("1 passed"), "{out}");
    out.into_owned()
}

#[test]
fn where_io_uring_is_denied_threads_do() {
    for call in ["denied_setup", "denied_enter"] {
        passes(child(&[], call));
    }
}

#[test]
#[ignore = "in a child: it denies a system call for good"]
fn denied_setup() {
    denied(libc_numbers::SETUP);
}

#[test]
#[ignore = "in a child: it denies a system call for good"]
fn denied_enter() {
    denied(libc_numbers::ENTER);
}

mod libc_numbers {
    //! The same on every architecture that Linux has.
    pub(super) const SETUP: i64 = 425;
    pub(super) const ENTER: i64 = 426;
}

fn denied(call: i64) {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
    let filter = SeccompFilter::new(
        [(call, vec![])].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(1),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    apply_filter(&program).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let refused = open_with(folder.path(), MIB, 1, Backend::Uring, true).unwrap_err();
    assert!(matches!(refused, SpillError::Create { .. }), "{refused}");
    let store = open(folder.path(), STORE_BYTES, 1).unwrap();
    assert!(
        store.backend().starts_with("threads"),
        "{}",
        store.backend()
    );
    round_trip(&store);
}

#[test]
fn little_locked_memory_does() {
    passes(child(&[], "little_locked_memory"));
}

#[test]
#[ignore = "in a child: it lowers a limit for good"]
fn little_locked_memory() {
    let folder = tempfile::tempdir().unwrap();
    let before = has_uring(folder.path());
    let maximum = Some(8 * MIB).min(getrlimit(Resource::Memlock).maximum.or(Some(8 * MIB)));
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Memlock, limit).unwrap();
    assert_eq!(has_uring(folder.path()), before);
    round_trip(&open(folder.path(), STORE_BYTES, 1).unwrap());
}

#[test]
fn a_full_disk_is_said_at_the_start() {
    let mount = "mount -t tmpfs -o size=32m none /mnt && exec \"$@\"";
    let shell = ["sh", "-c", mount, "sh"];
    for unshare in [&["unshare", "-m"][..], &["unshare", "-r", "-m"]] {
        let command = [unshare, &shell].concat();
        let probe = Command::new(command[0])
            .args(&command[1..])
            .arg("true")
            .stderr(Stdio::null())
            .status();
        if probe.is_ok_and(|status| status.success()) {
            let told = passes(child(&command, "full_tmpfs"));
            assert!(!told.contains("skipped"), "{told}");
            return;
        }
    }
    println!("skipped: this user cannot mount a file system of its own");
}

#[test]
#[ignore = "in a child: with a small file system of its own below /mnt"]
fn full_tmpfs() {
    let folder = Path::new("/mnt");
    let free = free_bytes(folder).unwrap();
    if free > 32 * MIB {
        println!("skipped: /mnt is no small file system");
        return;
    }
    let full = open(folder, 33 * MIB, 1).unwrap_err();
    assert!(full.is_full(), "{full}");
    assert_eq!(free_bytes(folder), Some(free));
    let store = open(folder, 30 * MIB, 1).unwrap();
    assert!(open(folder, 30 * MIB, 1).unwrap_err().is_full());
    let (offset, capacity) = (0, 29 * MIB);
    let (at, tag) = (
        Extent { offset, capacity },
        Tag {
            cell: 1,
            version: 1,
        },
    );
    let mut memory = Memory::new(capacity as usize, 1);
    store.write(at, tag, memory.get()).unwrap();
    store.read(at, tag, memory.get()).unwrap();
    drop(store);
    assert_eq!(free_bytes(folder), Some(free));
}

#[test]
fn a_kill_leaves_nothing_behind() {
    for delay in [0, 3, 11, 20, 47] {
        // The child's folder lies where this process can look into it afterwards.
        let folder = tempfile::tempdir().unwrap();
        let mut killed = child(&[], "writes_until_killed")
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let files = format!("/proc/{}/fd", killed.id());
        let started = Instant::now();
        while open_files(Path::new(&files), folder.path()).is_empty() {
            assert!(
                started.elapsed() < Duration::from_mins(1),
                "it does not start"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(delay));
        killed.kill().unwrap();
        assert_eq!(killed.wait().unwrap().signal(), Some(9));
        assert!(is_empty(folder.path()), "after {delay} ms");
    }
}

#[test]
#[ignore = "in a child: it goes on until it is killed"]
fn writes_until_killed() {
    // If nobody kills it, it ends all the same.
    for _ in 0..100 {
        round_trip(&open(Path::new("."), STORE_BYTES, 1).unwrap());
    }
}
