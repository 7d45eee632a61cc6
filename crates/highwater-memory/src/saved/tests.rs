use super::*;
use crate::files::{DiskFiles, Files, MemoryFiles, is_draft};
use std::num::NonZeroUsize;
use std::path::Path;

mod careless;
mod crash;
mod damage;

/// Where states are saved.
fn dir() -> &'static Path {
    Path::new("/runs/one/checkpoints")
}

fn name(step: u64) -> String {
    format!("step-{step:06}")
}

/// Some bytes that differ from step to step and place to place.
fn bytes(step: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new()
        .update(&step.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

/// What the files of a state are called.
const OWN: [&str; 3] = ["weights.safetensors", "empty", "run.json"];

/// The files of the state of a step.
fn contents(step: u64) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("weights.safetensors", bytes(step, 2500 + step as usize)),
        ("empty", Vec::new()),
        ("run.json", bytes(step + 1, 300)),
    ]
}

fn save(files: &dyn Files, dir: &Path, step: u64) -> Result<Saved, SavedError> {
    let mut state = SaveWriter::begin(files, dir, &name(step))?;
    for (name, bytes) in contents(step) {
        let mut file = state.file(name)?;
        for piece in bytes.chunks(700) {
            file.write_all(piece)?;
        }
        file.close()?;
    }
    state.finish()
}

/// Reads a state with its check, and compares it to what was saved.
fn load(files: &dyn Files, saved: &Saved) -> Result<bool, SavedError> {
    let expected = contents(saved.number());
    let mut equal = saved.files().len() == expected.len();
    for (name, bytes) in expected {
        let mut file = saved.read(files, name)?;
        let mut found = vec![0; file.remaining() as usize];
        file.read_exact(&mut found)?;
        file.finish()?;
        equal &= found == bytes;
    }
    Ok(equal)
}

fn keep(states: usize) -> NonZeroUsize {
    NonZeroUsize::new(states).unwrap()
}

fn names(files: &dyn Files) -> Vec<String> {
    files
        .list_dir(dir())
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect()
}

fn text(files: &dyn Files, path: &Path) -> String {
    let mut file = files.open(path).unwrap();
    let mut bytes = vec![0; file.bytes() as usize];
    file.read_exact_at(0, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_newest_state_is_found_and_old_ones_are_removed() {
    let files = MemoryFiles::new();
    assert!(latest_complete(&files, dir()).unwrap().saved.is_none());
    // Numbers decide, not the alphabet.
    for step in [999_998, 999_999, 1_000_000] {
        let saved = save(&files, dir(), step).unwrap();
        assert_eq!(saved.name(), name(step));
    }
    let found = latest_complete(&files, dir()).unwrap();
    assert!(found.skipped.is_empty());
    let saved = found.saved.unwrap();
    assert_eq!(saved.number(), 1_000_000);
    assert!(load(&files, &saved).unwrap());
    assert_eq!(
        keep_last(&files, dir(), keep(2), None).unwrap(),
        [name(999_998)]
    );
    assert_eq!(names(&files), [LATEST, "step-1000000", "step-999999"]);
    assert_eq!(text(&files, &dir().join(LATEST)), "step-1000000\n");
    assert_eq!(
        remove_newer(&files, dir(), 999_999, &OWN).unwrap(),
        [name(1_000_000)]
    );
    assert_eq!(names(&files), [LATEST, "step-999999"]);
}

#[test]
fn large_files_go_to_disk_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("checkpoints");
    let large = bytes(7, (5 << 20) + 17);
    let mut state = SaveWriter::begin(&DiskFiles, &dir, "step-000007").unwrap();
    let mut file = state.file("weights").unwrap();
    let (first, rest) = large.split_at(1000);
    file.write_all(first).unwrap();
    file.write_all(rest).unwrap();
    file.close().unwrap();
    let saved = state.finish().unwrap();
    assert_eq!(
        saved.files()[0].blake3,
        blake3::hash(&large).to_hex().as_str()
    );
    let found = latest_complete(&DiskFiles, &dir).unwrap().saved.unwrap();
    assert_eq!(found, saved);
    let mut file = found.read(&DiskFiles, "weights").unwrap();
    let mut back = vec![0; large.len()];
    file.read_exact(&mut back[..1000]).unwrap();
    file.read_exact(&mut back[1000..]).unwrap();
    file.finish().unwrap();
    assert!(back == large);
}

#[test]
fn names_are_checked() {
    let files = MemoryFiles::new();
    for name in [
        "",
        "step",
        "-5",
        "step-",
        "step-x",
        "../step-1",
        "a/b-1",
        ".hidden-1",
        "é-1",
    ] {
        let error = SaveWriter::begin(&files, dir(), name).unwrap_err();
        assert!(matches!(error, SavedError::StateName(_)), "{name}");
    }
    let mut state = SaveWriter::begin(&files, dir(), "step-1").unwrap();
    state.file("a").unwrap().close().unwrap();
    let long = "x".repeat(201);
    for name in [
        "",
        "a",
        "b/c",
        "b\\c",
        "..",
        ".b",
        "manifest.json",
        "a b",
        "é",
        "\0",
        &long,
    ] {
        assert!(
            matches!(state.file(name), Err(SavedError::FileName(_))),
            "{name}"
        );
    }
}

#[test]
fn an_unclosed_file_cannot_be_forgotten() {
    let files = MemoryFiles::new();
    let mut state = SaveWriter::begin(&files, dir(), "step-1").unwrap();
    state.file("a").unwrap().write_all(b"1").unwrap();
    assert!(matches!(state.file("b"), Err(SavedError::Unclosed(_))));
    assert!(names(&files).iter().all(|name| is_draft(name)));
    assert_eq!(names(&files).len(), 1);
    assert!(matches!(state.finish(), Err(SavedError::Unclosed(_))));
    assert!(names(&files).is_empty());
    // As a kill leaves it.
    let left = dir().join(".highwater-1-1.tmp");
    files.create_dir_all(&left).unwrap();
    files.create(&left.join("a")).unwrap();
    files.create(&dir().join(".highwater-1-2.tmp")).unwrap();
    let state = SaveWriter::begin(&files, dir(), "step-2").unwrap();
    assert_eq!(names(&files).len(), 1);
    drop(state);
}

#[test]
fn a_complete_state_is_not_replaced_but_a_broken_one_is() {
    let files = MemoryFiles::new();
    save(&files, dir(), 1).unwrap();
    save(&files, dir(), 2).unwrap();
    files.remove_file(&dir().join(LATEST)).unwrap();
    assert!(matches!(
        save(&files, dir(), 2),
        Err(SavedError::AlreadySaved(_))
    ));
    assert_eq!(text(&files, &dir().join(LATEST)), "step-000002\n");
    files
        .flip_bit(&dir().join(name(2)).join("run.json"), 7, 7)
        .unwrap();
    let found = latest_complete(&files, dir()).unwrap();
    assert_eq!(found.saved.unwrap().number(), 1);
    assert!(found.skipped[0].why.to_string().contains("run.json"));
    save(&files, dir(), 2).unwrap();
    assert_eq!(
        latest_complete(&files, dir())
            .unwrap()
            .saved
            .unwrap()
            .number(),
        2
    );
    save(&files, dir(), 3).unwrap();
    assert_eq!(
        names(&files),
        [LATEST, "step-000001", "step-000002", "step-000003"]
    );
}

#[test]
fn copies_of_states_stay() {
    let files = MemoryFiles::new();
    for step in 1..=3 {
        save(&files, dir(), step).unwrap();
    }
    // As `cp -r` makes one under a name of a step that is to come.
    let copy = dir().join(name(9));
    for entry in files.list_dir(&dir().join(name(2))).unwrap() {
        let mut file = files.open(&dir().join(name(2)).join(&entry.name)).unwrap();
        let mut bytes = vec![0; file.bytes() as usize];
        file.read_exact_at(0, &mut bytes).unwrap();
        files.create_dir_all(&copy).unwrap();
        let mut to = files.create(&copy.join(&entry.name)).unwrap();
        to.write_all(&bytes).unwrap();
    }
    assert_eq!(remove_newer(&files, dir(), 2, &OWN).unwrap(), [name(3)]);
    assert!(keep_last(&files, dir(), keep(2), None).unwrap().is_empty());
    let left = [LATEST, "step-000001", "step-000002", "step-000009"];
    assert_eq!(names(&files), left);
}

#[test]
fn what_somebody_puts_beside_a_state_stays() {
    let files = MemoryFiles::new();
    let put = |step: u64, name_of: &str| {
        let path = dir().join(name(step)).join(name_of);
        files.create(&path).unwrap().write_all(b"mine").unwrap();
        path
    };
    for step in 1..=4 {
        save(&files, dir(), step).unwrap();
    }
    let notes = [put(1, "notes.txt"), put(4, "plot.png")];
    put(2, ".DS_Store");
    assert_eq!(keep_last(&files, dir(), keep(1), None).unwrap(), [name(2)]);
    assert_eq!(remove_newer(&files, dir(), 2, &OWN).unwrap(), [name(3)]);
    // A state that is damaged is written anew.
    files
        .remove_file(&dir().join(name(4)).join("run.json"))
        .unwrap();
    let saved = save(&files, dir(), 4).unwrap();
    assert!(load(&files, &saved).unwrap());
    for path in notes {
        assert_eq!(text(&files, &path), "mine");
    }
    assert_eq!(names(&files), [LATEST, "step-000001", "step-000004"]);
}

#[test]
fn what_is_not_a_state_is_left_alone() {
    let files = MemoryFiles::new();
    let folders = [
        "best",
        "notes.tmp",
        "step-000003.old",
        "step-000005.tmp",
        "step-000009",
    ];
    for folder in folders {
        files.create_dir_all(&dir().join(folder)).unwrap();
    }
    files.create(&dir().join("step-3.tmp")).unwrap();
    files.create(&dir().join("LATEST.tmp")).unwrap();
    save(&files, dir(), 5).unwrap();
    keep_last(&files, dir(), keep(1), None).unwrap();
    let found = latest_complete(&files, dir()).unwrap();
    assert_eq!(found.saved.unwrap().number(), 5);
    assert!(matches!(found.skipped[0].why, SavedError::NoManifest(_)));
    assert_eq!(
        names(&files),
        [
            LATEST,
            "LATEST.tmp",
            "best",
            "notes.tmp",
            "step-000003.old",
            "step-000005",
            "step-000005.tmp",
            "step-000009",
            "step-3.tmp"
        ]
    );
}
