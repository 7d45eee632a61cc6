use super::*;

fn text(files: &MemoryFiles, path: &str) -> Option<Vec<u8>> {
    let mut file = files.open(Path::new(path)).ok()?;
    let mut bytes = vec![0; file.bytes() as usize];
    file.read_exact_at(0, &mut bytes).unwrap();
    Some(bytes)
}

#[test]
fn only_what_was_synced_is_sure_to_survive() {
    let files = MemoryFiles::new();
    let path = Path::new("/run/file");
    files.create_dir_all(Path::new("/run")).unwrap();
    files.sync_dir(Path::new("/")).unwrap();
    let mut file = files.create(path).unwrap();
    file.write_all(b"first").unwrap();
    file.sync_all().unwrap();
    let outcomes = |files: &MemoryFiles| -> std::collections::BTreeSet<Option<Vec<u8>>> {
        (0..200)
            .map(|seed| text(&files.after_power_loss(seed), "/run/file"))
            .collect()
    };
    // The name is not durable yet.
    assert_eq!(outcomes(&files), [None, Some(b"first".to_vec())].into());
    files.sync_dir(Path::new("/run")).unwrap();
    assert_eq!(outcomes(&files), [Some(b"first".to_vec())].into());
    file.write_all(&[b'x'; 2000]).unwrap();
    let torn = outcomes(&files);
    assert!(torn.len() > 4 && torn.contains(&Some(b"first".to_vec())));
    assert!(torn.contains(&text(&files, "/run/file")));
    // Renames and removals, too, can be lost.
    file.sync_all().unwrap();
    files.rename(path, Path::new("/run/other")).unwrap();
    assert_eq!(outcomes(&files).len(), 2);
    files.remove_file(Path::new("/run/other")).unwrap();
    files.sync_dir(Path::new("/run")).unwrap();
    assert_eq!(outcomes(&files), [None].into());
}

#[test]
fn it_behaves_like_a_file_system() {
    let files = MemoryFiles::new();
    let at = |path: &str| PathBuf::from(path);
    assert!(
        files
            .create(&at("/missing/file"))
            .unwrap_err()
            .is_not_found()
    );
    files.create_dir_all(&at("/a/b")).unwrap();
    files
        .create(&at("/a/b/c"))
        .unwrap()
        .write_all(b"1")
        .unwrap();
    files
        .append(&at("/a/b/c"))
        .unwrap()
        .write_all(b"2")
        .unwrap();
    assert_eq!(text(&files, "/a/b/c").unwrap(), b"12");
    files.create_dir_all(&at("/d/e")).unwrap();
    let error = files.rename(&at("/a"), &at("/d")).unwrap_err();
    assert_eq!(error.source.kind(), ErrorKind::DirectoryNotEmpty);
    files.rename(&at("/a"), &at("/d/a")).unwrap();
    assert_eq!(text(&files, "/d/a/b/c").unwrap(), b"12");
    let entry = |name: &str| Entry {
        name: name.into(),
        is_dir: true,
    };
    assert_eq!(files.list_dir(&at("/d")).unwrap(), [entry("a"), entry("e")]);
    files.remove_dir_all(&at("/d/a")).unwrap();
    assert_eq!(files.metadata(&at("/d/a")).unwrap(), None);
    assert!(files.open(&at("/d")).is_err() && files.remove_file(&at("/d")).is_err());
}
