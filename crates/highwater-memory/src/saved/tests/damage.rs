//! Whatever bits change on disk, a damaged state is never taken, and the damaged file is named.

use super::*;

fn state() -> PathBuf {
    dir().join(name(1))
}

/// A state, and its files with their sizes, the manifest's too.
fn saved() -> (MemoryFiles, Vec<(PathBuf, u64)>) {
    let files = MemoryFiles::new();
    save(&files, dir(), 1).unwrap();
    let mut paths = Vec::new();
    for entry in files.list_dir(&state()).unwrap() {
        let path = state().join(entry.name);
        let bytes = files.metadata(&path).unwrap().unwrap().bytes;
        paths.push((path, bytes));
    }
    assert_eq!(paths.len(), 4);
    (files, paths)
}

/// Checks that the state is refused, and `path` named as the reason.
fn refused(files: &dyn Files, path: &Path, what: &str) {
    let error = verify(files, &state()).expect_err(what).to_string();
    assert!(error.contains(path.to_str().unwrap()), "{what}: {error}");
    let found = latest_complete(files, dir()).unwrap();
    assert!(found.saved.is_none() && found.skipped.len() == 1, "{what}");
}

#[test]
fn every_flipped_bit_is_noticed() {
    let (files, paths) = saved();
    let mut flips = 0;
    for (path, bytes) in &paths {
        for byte in 0..*bytes {
            for bit in 0..8 {
                files.flip_bit(path, byte, bit).unwrap();
                refused(
                    &files,
                    path,
                    &format!("{} byte {byte} bit {bit}", path.display()),
                );
                files.flip_bit(path, byte, bit).unwrap();
                flips += 1;
            }
        }
    }
    assert!(flips > 20_000, "{flips}");
    verify(&files, &state()).unwrap();
}

#[test]
fn every_truncation_and_addition_is_noticed() {
    let (files, paths) = saved();
    for (path, bytes) in &paths {
        for len in 0..*bytes {
            let copy = files.copy();
            copy.truncate(path, len).unwrap();
            refused(
                &copy,
                path,
                &format!("{} cut to {len} bytes", path.display()),
            );
        }
        let copy = files.copy();
        copy.append(path).unwrap().write_all(b"\n").unwrap();
        refused(&copy, path, "a byte more");
        copy.remove_file(path).unwrap();
        refused(&copy, path, "removed");
        copy.create_dir_all(path).unwrap();
        refused(&copy, path, "a folder instead");
    }
}

#[test]
fn exchanged_files_and_renamed_states_are_noticed() {
    let (files, _) = saved();
    let at = |name: &str| state().join(name);
    files.rename(&at("run.json"), &at("x")).unwrap();
    files
        .rename(&at("weights.safetensors"), &at("run.json"))
        .unwrap();
    files.rename(&at("x"), &at("weights.safetensors")).unwrap();
    assert!(matches!(
        verify(&files, &state()),
        Err(SavedError::Size { .. })
    ));
    // An older state under a newer name would be stale.
    let (files, _) = saved();
    save(&files, dir(), 2).unwrap();
    files.rename(&state(), &dir().join(name(3))).unwrap();
    let found = latest_complete(&files, dir()).unwrap();
    assert_eq!(found.saved.unwrap().number(), 2);
    let why = found.skipped[0].why.to_string();
    assert!(why.contains("it belongs to step-000001"), "{why}");
}

#[test]
fn hostile_manifests_are_refused() {
    let (files, _) = saved();
    let path = state().join(MANIFEST);
    let original = text(&files, &path);
    let deep = "[".repeat(100_000);
    for hostile in ["", "{}", "null", "[1]", "\u{0}", "{\"content\":{}}", &deep] {
        write_atomic(&files, &path, hostile.as_bytes()).unwrap();
        refused(&files, &path, hostile);
    }
    let newer = original.replace("\"version\": 1", "\"version\": 2");
    write_atomic(&files, &path, newer.as_bytes()).unwrap();
    assert!(matches!(
        verify(&files, &state()),
        Err(SavedError::Version { version: 2, .. })
    ));
    let other = original.replace("highwater saved state", "something else");
    write_atomic(&files, &path, other.as_bytes()).unwrap();
    refused(&files, &path, "another format");
    // Too large to be read at all.
    write_atomic(&files, &path, &vec![b' '; (16 << 20) + 1]).unwrap();
    refused(&files, &path, "too large");
    // With its own hash right, but a name that leads elsewhere.
    for name in ["../../../etc/passwd", "/etc/passwd", "a/b", "manifest.json"] {
        let entry = FileEntry {
            name: name.into(),
            bytes: 1,
            blake3: "00".into(),
        };
        let evil = manifest::encode("step-000001", &[entry]).unwrap();
        write_atomic(&files, &path, &evil).unwrap();
        assert!(
            matches!(verify(&files, &state()), Err(SavedError::FileName(_))),
            "{name}"
        );
    }
}

#[test]
fn contents_that_change_after_the_check_are_noticed_while_loading() {
    let (files, _) = saved();
    let saved = latest_complete(&files, dir()).unwrap().saved.unwrap();
    assert!(load(&files, &saved).unwrap());
    files.flip_bit(&state().join("run.json"), 0, 0).unwrap();
    assert!(matches!(load(&files, &saved), Err(SavedError::Hash(_))));
    assert!(matches!(
        saved.read(&files, "none"),
        Err(SavedError::Missing(_))
    ));
}
