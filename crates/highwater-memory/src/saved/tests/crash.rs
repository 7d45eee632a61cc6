//! Whatever call fails while states are saved and removed, the newest complete one is found.

use super::careless::{Careless, DRAFTED_FILE, DRAFTED_FOLDER};
use super::*;
use crate::files::{Fault, FaultKind, Operation, ScriptedFiles};
use std::sync::Arc;

const STEPS: [u64; 4] = [10, 20, 30, 40];
const KEPT: usize = 2;

/// The part of a run that these tests are about: saves states and removes old ones. Goes on behind
/// `done`, the last step that was reported as saved.
fn run(files: &dyn Files, done: &mut u64) -> Result<(), SavedError> {
    for step in STEPS {
        if step <= *done {
            continue;
        }
        match save(files, dir(), step) {
            Ok(_) | Err(SavedError::AlreadySaved(_)) => *done = step,
            Err(error) => return Err(error),
        }
        keep_last(files, dir(), keep(KEPT), None)?;
    }
    Ok(())
}

/// What must hold at any time after `done` was reported as saved: all that is called a state is
/// complete, and it or a newer one is there and loads bit by bit; so does the one that `LATEST` names.
fn check(files: &dyn Files, done: u64) -> Result<(), String> {
    let found = latest_complete(files, dir()).map_err(|error| error.to_string())?;
    if let Some(skipped) = found.skipped.first() {
        return Err(format!("{} is not complete: {}", skipped.name, skipped.why));
    }
    match found.saved {
        None if done > 0 => return Err(format!("step {done} is lost, and all others")),
        Some(saved) if saved.number() < done => return Err(format!("step {done} is lost")),
        Some(saved) if !load(files, &saved).unwrap() => return Err("wrong contents".into()),
        _ => {}
    }
    if done > 0 {
        let latest = files
            .open(&dir().join(LATEST))
            .map_err(|error| error.to_string())?;
        let latest = text(files, latest.path());
        let named = verify(files, &dir().join(latest.trim_end())).map_err(|e| e.to_string())?;
        if named.number() < done {
            return Err(format!("{LATEST} is behind: {latest}"));
        }
    }
    Ok(())
}

/// What must hold after a run that went on to the end: nothing is left of what was interrupted.
fn check_end(files: &dyn Files) {
    check(files, 40).unwrap();
    assert_eq!(text(files, &dir().join(LATEST)), "step-000040\n");
    // A next state removes what a failed removal has left.
    save(files, dir(), 50).unwrap();
    keep_last(files, dir(), keep(KEPT), None).unwrap();
    assert_eq!(names(files), [LATEST, "step-000040", "step-000050"]);
}

fn scripted(kind: FaultKind, at: u64, persistent: bool) -> (MemoryFiles, ScriptedFiles) {
    let memory = MemoryFiles::new();
    let files = Arc::new(memory.clone());
    (
        memory,
        ScriptedFiles::new(
            files,
            Some(Fault {
                at,
                persistent,
                kind,
            }),
        ),
    )
}

/// How many calls a run without a fault makes.
fn calls() -> u64 {
    let files = ScriptedFiles::new(Arc::new(MemoryFiles::new()), None);
    run(&files, &mut 0).unwrap();
    let calls = files.calls().len() as u64;
    assert!(calls > 100, "{calls}");
    calls
}

#[test]
fn an_error_once_is_reported_and_the_run_can_go_on() {
    for kind in [FaultKind::InputOutput, FaultKind::DiskFull] {
        for at in 0..calls() {
            let (memory, files) = scripted(kind, at, false);
            let mut done = 0;
            let result = run(&files, &mut done);
            check(&memory, done).unwrap();
            if let Err(error) = result {
                let SavedError::Files(error) = error else {
                    panic!("{error}")
                };
                assert_eq!(error.is_disk_full(), kind == FaultKind::DiskFull, "{error}");
                run(&files, &mut done).unwrap();
            } else {
                // Only `keep_last` goes on when it cannot look at a state: it leaves that one alone.
                let call = files.calls()[at as usize];
                let looks = matches!(call, Operation::Open | Operation::Read | Operation::Inspect);
                let harmless = looks || kind == FaultKind::DiskFull;
                assert!(harmless, "the error at call {at} was not reported");
            }
            check_end(&memory);
        }
    }
}

#[test]
fn an_error_that_persists_loses_nothing() {
    for kind in [FaultKind::InputOutput, FaultKind::DiskFull] {
        for at in 0..calls() {
            let (memory, files) = scripted(kind, at, true);
            let mut done = 0;
            for _ in 0..3 {
                let _ = run(&files, &mut done);
            }
            check(&memory, done).unwrap();
            // The disk is mended.
            run(&memory, &mut done).unwrap();
            check_end(&memory);
        }
    }
}

#[test]
fn short_and_interrupted_writes_are_no_errors() {
    for (kind, persistent) in [
        (FaultKind::Short, false),
        (FaultKind::Short, true),
        (FaultKind::Interruption, false),
    ] {
        for at in 0..calls() {
            let (memory, files) = scripted(kind, at, persistent);
            run(&files, &mut 0).unwrap();
            check_end(&memory);
        }
    }
}

const CRASHES: [FaultKind; 3] = [
    FaultKind::CrashBefore,
    FaultKind::CrashWithin,
    FaultKind::CrashAfter,
];

#[test]
fn a_kill_at_any_call_loses_nothing() {
    for kind in CRASHES {
        for at in 0..calls() {
            let (memory, files) = scripted(kind, at, true);
            let mut done = 0;
            let _ = run(&files, &mut done);
            check(&memory, done).unwrap();
            run(&memory, &mut done).unwrap();
            check_end(&memory);
        }
    }
}

#[test]
fn a_power_cut_at_any_call_loses_nothing() {
    for kind in CRASHES {
        for at in 0..calls() {
            let (memory, files) = scripted(kind, at, true);
            let mut done = 0;
            let _ = run(&files, &mut done);
            for seed in 0..80 {
                let memory = memory.after_power_loss(seed);
                check(&memory, done).unwrap_or_else(|e| panic!("{kind:?} {at} {seed}: {e}"));
                if seed < 4 {
                    run(&memory, &mut done.clone()).unwrap();
                    check_end(&memory);
                }
            }
        }
    }
}

#[test]
fn a_power_cut_at_any_call_after_another_loses_nothing() {
    for first in (0..calls()).step_by(7) {
        let (memory, files) = scripted(FaultKind::CrashAfter, first, true);
        let mut done = 0;
        let _ = run(&files, &mut done);
        let memory = memory.after_power_loss(first);
        for second in 0..40 {
            let memory = memory.copy();
            let fault = Fault {
                at: second,
                persistent: true,
                kind: FaultKind::CrashAfter,
            };
            let files = ScriptedFiles::new(Arc::new(memory.clone()), Some(fault));
            let mut done = done;
            let _ = run(&files, &mut done);
            for seed in 0..8 {
                check(&memory.after_power_loss(seed), done).unwrap();
            }
        }
    }
}

#[test]
fn errors_while_looking_for_a_state_are_reported_and_never_give_a_wrong_one() {
    let memory = MemoryFiles::new();
    run(&memory, &mut 0).unwrap();
    let look = |fault| {
        let files = ScriptedFiles::new(Arc::new(memory.clone()), fault);
        let found = latest_complete(&files, dir());
        (found, files.calls().len() as u64)
    };
    let (_, calls) = look(None);
    for at in 0..calls {
        for persistent in [false, true] {
            let fault = Fault {
                at,
                persistent,
                kind: FaultKind::InputOutput,
            };
            let Ok(found) = look(Some(fault)).0 else {
                continue;
            };
            assert!(!found.skipped.is_empty());
            assert!(
                found
                    .saved
                    .is_none_or(|saved| !persistent && load(&memory, &saved).unwrap())
            );
        }
        for kind in [FaultKind::Short, FaultKind::Interruption] {
            let found = look(Some(Fault {
                at,
                persistent: false,
                kind,
            }))
            .0
            .unwrap();
            assert!(found.skipped.is_empty());
            assert_eq!(found.saved.unwrap().number(), 40);
        }
    }
}

/// Whether to forget the sync of a file or folder of this name.
type Forgets = fn(&str) -> bool;

/// Runs until call `at` on a file system that forgets some syncs, and cuts the power.
fn careless_run(forgets: Forgets, at: u64, seed: u64) -> Result<(), String> {
    let memory = MemoryFiles::new();
    let careless = Careless {
        inner: memory.clone(),
        forgets,
    };
    let fault = Fault {
        at,
        persistent: true,
        kind: FaultKind::CrashAfter,
    };
    let files = ScriptedFiles::new(Arc::new(careless), Some(fault));
    let mut done = 0;
    let _ = run(&files, &mut done);
    check(&memory.after_power_loss(seed), done)
}

#[test]
fn these_tests_notice_each_sync_that_is_forgotten() {
    let notice = |forgets: Forgets| {
        let mut cuts = (0..calls()).flat_map(|at| (0..20).map(move |seed| (at, seed)));
        cuts.any(|(at, seed)| careless_run(forgets, at, seed).is_err())
    };
    assert!(
        !notice(|_| false),
        "nothing is forgotten, nothing may be found"
    );
    let careless: [(&str, Forgets); 8] = [
        ("all", |_| true),
        ("a file", |name| name == "run.json"),
        ("the manifest", |name| name == MANIFEST),
        ("the names in the state", |name| name == DRAFTED_FOLDER),
        ("the name of the state", |name| name == "checkpoints"),
        ("the folder of the states", |name| name == "one"),
        ("the folder of the run", |name| name == "runs"),
        ("LATEST", |name| name == DRAFTED_FILE),
    ];
    for (what, forgets) in careless {
        assert!(notice(forgets), "forgetting {what} was not noticed");
    }
}
