//! A process of its own, since the whole process is measured: it stays inside its budget while its
//! parameters and moments are several times as large, and so does its page cache where direct transfers
//! are refused.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests fail by panicking, and say what they skip"
)]
#![cfg(target_os = "linux")]

mod process;

use highwater::{Builder, Engine, Totals};
use process::high_water;
use std::path::Path;
use std::process::Command;

/// Losses of a few steps; `look` is called after each.
fn train(builder: Builder, look: impl FnMut()) -> (Vec<f32>, Totals) {
    let engine = builder.seed(7).threads(2).build().unwrap();
    let seen = process::train(&engine, look);
    (seen, engine.totals())
}

/// 96 MiB of parameters and moments in 64 MiB.
fn little(folder: &Path) -> Builder {
    Engine::builder().memory(BUDGET).disk(folder, 256 << 20)
}

const BUDGET: u64 = 64 << 20;

#[test]
fn the_process_stays_inside_its_budget() {
    let folder = tempfile::tempdir().unwrap();
    let (seen, totals) = train(little(folder.path()), || ());
    let most = high_water();
    assert!(most <= BUDGET, "{most} of {BUDGET}");
    assert!(totals.io.bytes_read > 0 && totals.io.bytes_written > 0);
    assert_eq!(seen, train(Engine::builder(), || ()).0);
    // Once more, in a child: it denies a system call for good.
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["without_direct_transfers", "--exact", "--ignored"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && told.contains("1 passed"),
        "{told}"
    );
}

/// How much of a folder's files, which have no names, this process has in the page cache, in bytes; none
/// where there is no program that tells.
fn cached(folder: &Path) -> Option<u64> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let ours = open.filter_map(|entry| {
        let path = entry.unwrap().path();
        let target = std::fs::read_link(&path).ok()?;
        let name = path.file_name()?.to_str()?.to_owned();
        target.starts_with(folder).then_some(name)
    });
    let process = std::process::id();
    let bytes = ours.map(|name| {
        let told = Command::new("fincore")
            .args(["--bytes", "--noheadings", "--output", "RES"])
            .arg(format!("/proc/{process}/fd/{name}"))
            .output()
            .ok()?;
        String::from_utf8(told.stdout)
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    });
    bytes.sum()
}

#[test]
#[ignore = "in a child: it denies a system call for good"]
fn without_direct_transfers() {
    use rustix::fs::OFlags;
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule, apply_filter,
    };
    const PAGE_CACHE: u64 = 16 << 20;
    let openat = if cfg!(target_arch = "x86_64") {
        257
    } else {
        56
    };
    let direct = u64::from(OFlags::DIRECT.bits());
    let asked = SeccompCmpOp::MaskedEq(direct);
    let asked = SeccompCondition::new(2, SeccompCmpArgLen::Dword, asked, direct).unwrap();
    let rules = vec![SeccompRule::new(vec![asked]).unwrap()];
    let filter = SeccompFilter::new(
        [(openat, rules)].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(rustix::io::Errno::INVAL.raw_os_error() as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    apply_filter(&program).unwrap();

    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().canonicalize().unwrap();
    let mut most = Some(0);
    let look = || most = most.zip(cached(&path)).map(|(a, b)| a.max(b));
    let (seen, totals) = train(little(folder.path()), look);
    assert!(totals.io.bytes_written > 4 * PAGE_CACHE);
    match most {
        Some(most) => assert!(most <= PAGE_CACHE, "{most} bytes of page cache"),
        None => println!("skipped: no fincore here"),
    }
    assert_eq!(seen, train(Engine::builder(), || ()).0);
}
