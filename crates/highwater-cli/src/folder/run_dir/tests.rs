use super::*;
use highwater_memory::DiskFiles;
use std::fs;

fn create(path: &Path, force: bool) -> Result<RunDir, RunDirError> {
    RunDir::create(&DiskFiles, path, force, &[])
}

/// A run as it is when it has ended, with what names itself in each of its files.
fn run(path: &Path, name: &str) -> RunDir {
    let run = create(path, false).unwrap();
    begin(&run, name);
    finish(&run, name);
    run
}

fn begin(run: &RunDir, name: &str) {
    fs::write(run.tokens_draft(), name).unwrap();
    run.begin(&DiskFiles).unwrap();
    for file in [run.config(), run.model(), run.log(), run.metrics()] {
        fs::write(file, name).unwrap();
    }
}

fn finish(run: &RunDir, name: &str) {
    let state = run.checkpoints().join("step-000010");
    fs::create_dir_all(&state).unwrap();
    for file in crate::folder::state::STATE_FILES
        .into_iter()
        .chain(["manifest.json"])
    {
        fs::write(state.join(file), name).unwrap();
    }
    fs::write(run.checkpoints().join("LATEST"), "step-000010\n").unwrap();
    fs::create_dir_all(run.final_model()).unwrap();
    let weights = run.final_model().join("model.safetensors");
    fs::write(&weights, name).unwrap();
    run.own(&DiskFiles, [weights]).unwrap();
    run.own(&DiskFiles, [run.final_step()]).unwrap();
    fs::write(run.final_step(), name).unwrap();
}

/// All files in a folder with what they hold, but for the lock and the manifest.
fn files(path: &Path) -> Vec<(PathBuf, String)> {
    fn walk(at: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if !["lock", "manifest.txt", ".put-aside"]
                .contains(&path.file_name().unwrap().to_str().unwrap())
            {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(path, &mut found);
    found.sort();
    found
}

#[test]
fn a_folder_has_one_run_and_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/run");
    let open = || RunDir::open(&DiskFiles, &path);
    assert!(matches!(open(), Err(RunDirError::NoRun(_))));
    let first = run(&path, "first");
    for force in [false, true] {
        assert!(matches!(create(&path, force), Err(RunDirError::Locked(_))));
    }
    drop(first);
    assert!(matches!(create(&path, false), Err(RunDirError::InUse(_))));
    drop(open().unwrap());
}

#[test]
fn a_run_is_replaced_once_the_new_one_has_saved_something() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    drop(run(&path, "first"));
    fs::write(path.join(".hidden"), "mine").unwrap();
    let before = files(&path);
    // One that is given up before it begins, or before it has saved anything.
    create(&path, true).unwrap().abandon(&DiskFiles);
    assert_eq!(files(&path), before);
    let second = create(&path, true).unwrap();
    begin(&second, "second");
    assert!(second.give_back(&DiskFiles).unwrap());
    assert_eq!(files(&path), before);
    drop(second);
    let second = create(&path, true).unwrap();
    begin(&second, "second");
    second.abandon(&DiskFiles);
    assert_eq!(files(&path), before);
    // One that is killed, and one more.
    for name in ["second", "third"] {
        let killed = create(&path, true).unwrap();
        begin(&killed, name);
        let first = files(&killed.replaced());
        assert!(
            first
                .iter()
                .all(|(_, text)| text.starts_with("first") || text == "step-000010\n")
        );
        assert_eq!(first.len() + 1, before.len());
    }
    // One that has saved something.
    let last = create(&path, true).unwrap();
    begin(&last, "last");
    finish(&last, "last");
    last.settle(&DiskFiles).unwrap();
    assert!(!last.give_back(&DiskFiles).unwrap());
    let left = files(&path);
    assert_eq!(left.len(), before.len());
    let texts = ["last", "mine", "step-000010\n"];
    assert!(left.iter().all(|(_, text)| texts.contains(&text.as_str())));
    assert!(!last.replaced().exists());
}

/// Wherever a kill cuts off the replacing of a run, the old one is back or whole beside the new one.
#[test]
fn a_kill_between_two_runs_loses_neither() {
    use highwater_memory::files::{Fault, FaultKind, ScriptedFiles};
    use std::sync::Arc;

    let mut ended = false;
    for at in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        drop(run(&path, "first"));
        let before = files(&path);
        let fault = Fault {
            at,
            persistent: true,
            kind: if at % 2 == 0 {
                FaultKind::CrashBefore
            } else {
                FaultKind::CrashAfter
            },
        };
        let scripted = ScriptedFiles::new(Arc::new(DiskFiles), Some(fault));
        let begun = RunDir::create(&scripted, &path, true, &[])
            .and_then(|run| run.begin(&scripted).map(|()| run));
        ended = !scripted.crashed();
        drop(begun);
        if ended {
            break;
        }
        // What comes next puts it back, whether it goes on with the run or replaces it.
        if at % 3 == 0 {
            drop(RunDir::open(&DiskFiles, &path).unwrap());
            let mut left = files(&path);
            left.retain(|(path, _)| !path.to_string_lossy().contains(".highwater-"));
            assert_eq!(left, before, "call {at}");
        }
        let new = create(&path, true).unwrap();
        begin(&new, "new");
        finish(&new, "new");
        new.settle(&DiskFiles).unwrap();
        let left = files(&path);
        assert_eq!(left.len(), before.len(), "call {at}");
        assert!(left.iter().all(|(_, text)| text != "first"), "call {at}");
    }
    assert!(ended);
}

/// What no run wrote is never touched, and named where it is in the way.
#[test]
fn foreign_files_stay() {
    let foreign = [
        "notes.txt",
        "final/thesis.doc",
        "final/config.json",
        "checkpoints/mine.pt",
        "checkpoints/step-7.tmp/notes",
        "checkpoints/step-000010/notes.txt",
        "checkpoints/step-000009/model.safetensors",
        "tensorboard/ev",
        "config.toml",
        "chat_template.jinja",
        "run.log",
        "plan.json",
        "metrics.jsonl",
        "tokens.bin",
        "tokens.bin.tmp",
        "model.json",
        "manifest.txt",
        "final.json",
        "save.now",
        "replaced/old",
        "replaced/final/model.safetensors",
        "replaced/manifest.txt",
        ".git/config",
        "sub/x",
        "lock",
    ];
    for name in foreign {
        for had_run in [false, true] {
            for force in [false, true] {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("run");
                if had_run {
                    drop(run(&path, "run"));
                }
                let file = path.join(name);
                let was_own = file.exists();
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                if !was_own {
                    fs::write(&file, "mine").unwrap();
                }
                let case = format!("{name}, a run: {had_run}, --force: {force}");
                match create(&path, force) {
                    Ok(new) => {
                        begin(&new, "new");
                        finish(&new, "new");
                        new.settle(&DiskFiles).unwrap();
                    }
                    Err(RunDirError::Foreign(told)) => {
                        assert!(
                            had_run || name == "lock" || !path.join("lock").exists(),
                            "{case}"
                        );
                        assert!(told.starts_with(&path), "{case}: {told:?}");
                        assert!(force || !had_run, "{case}");
                    }
                    Err(RunDirError::InUse(_)) => {
                        assert!(!force && had_run, "{case}");
                    }
                    Err(error) => panic!("{case}: {error}"),
                }
                if !was_own {
                    assert_eq!(fs::read_to_string(&file).unwrap(), "mine", "{case}");
                }
            }
        }
    }
}

#[test]
fn what_a_run_reads_is_not_replaced_by_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    drop(run(&path, "run"));
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(path.join("final"), &link).unwrap();
    for input in [
        path.join("final"),
        path.join("config.toml"),
        link,
        path.clone(),
    ] {
        let refused = RunDir::create(&DiskFiles, &path, true, std::slice::from_ref(&input));
        assert!(matches!(refused, Err(RunDirError::Input(told)) if told == input));
    }
    let beside = dir.path().join("run2");
    fs::create_dir(&beside).unwrap();
    RunDir::create(&DiskFiles, &path, true, &[beside]).unwrap();
}

#[test]
fn an_abandoned_folder_leaves_nothing_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mine")).unwrap();
    let path = dir.path().join("mine/deep/run");
    for begins in [false, true] {
        let run = create(&path, false).unwrap();
        fs::write(run.tokens_draft(), "tokens").unwrap();
        if begins {
            run.begin(&DiskFiles).unwrap();
        }
        run.abandon(&DiskFiles);
        assert!(!dir.path().join("mine/deep").exists());
    }
    assert!(dir.path().join("mine").exists());
}

#[test]
fn the_default_folder_always_works() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gpt2-nano");
    let create = || RunDir::create_numbered(&DiskFiles, &path).unwrap();
    let (first, second) = (create(), create());
    assert_eq!(first.path(), path);
    assert!(second.path().ends_with("gpt2-nano-2"));
    fs::write(first.config(), "").unwrap();
    drop((first, second));
    assert!(create().path().ends_with("gpt2-nano-2"));
}

#[test]
fn what_killed_processes_left_goes_when_a_run_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    drop(run(&path, "run"));
    // No process has such a number.
    for name in [".highwater-4194999-1.tmp", ".highwater-4194999-2.tmp"] {
        fs::create_dir(path.join(name)).unwrap();
        fs::write(path.join(name).join("tokens.bin"), "tokens").unwrap();
    }
    fs::create_dir(path.join(".highwater-4194999-2.tmp/mine")).unwrap();
    fs::write(path.join(".highwater-4194999-3.tmp"), "a file").unwrap();
    let alive = format!(".highwater-{}-999999.tmp", std::process::id());
    for name in [&*alive, ".highwater-mine.tmp", ".hidden"] {
        fs::write(path.join(name), "another's").unwrap();
    }
    drop(RunDir::open(&DiskFiles, &path).unwrap());
    assert!(!path.join(".highwater-4194999-1.tmp").exists());
    assert!(!path.join(".highwater-4194999-3.tmp").exists());
    assert!(path.join(".highwater-4194999-2.tmp/mine").exists());
    for name in [&*alive, ".highwater-mine.tmp", ".hidden"] {
        assert!(path.join(name).exists(), "{name}");
    }
}
