use super::*;
use crate::files::Sequential;
use std::io::Read;

/// Not random, but different at each place.
fn pattern(start: u64, bytes: usize) -> Vec<u8> {
    (start..start + bytes as u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8)
        .collect()
}

#[test]
fn what_is_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b");
    DiskFiles.create_dir_all(&path).unwrap();
    let path = path.join("file");
    assert_eq!(DiskFiles.metadata(&path).unwrap(), None);
    let bytes = pattern(0, 20 << 20);
    let mut writer = DiskFiles.create(&path).unwrap();
    for piece in bytes.chunks(3 << 20) {
        writer.write_all(piece).unwrap();
    }
    writer.sync_all().unwrap();
    drop(writer);
    let mut log = DiskFiles.append(&path).unwrap();
    log.write_all(b"more").unwrap();
    log.sync_all().unwrap();

    let mut reader = DiskFiles.open(&path).unwrap();
    assert_eq!(reader.bytes(), (20 << 20) + 4);
    let mut part = vec![0; 5 << 20];
    for offset in [15 << 20, 0, 7_654_321] {
        reader.read_exact_at(offset, &mut part).unwrap();
        assert!(part == bytes[offset as usize..][..5 << 20]);
    }
    let error = reader.read_exact_at(16 << 20, &mut part).unwrap_err();
    assert_eq!(error.source.kind(), ErrorKind::UnexpectedEof);
    let mut all = Vec::new();
    Sequential::new(reader).read_to_end(&mut all).unwrap();
    assert!(all[..20 << 20] == bytes && &all[20 << 20..] == b"more");
}

#[test]
fn nothing_lies_below_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let memory = crate::files::MemoryFiles::new();
    memory.create_dir_all(folder.path()).unwrap();
    for files in [&DiskFiles as &dyn Files, &memory] {
        let file = folder.path().join("file");
        files.create(&file).unwrap();
        for name in ["x", "x/y"] {
            assert_eq!(files.metadata(&file.join(name)).unwrap(), None);
        }
        let made = files.create_dir_all(&file.join("x"));
        assert_eq!(made.unwrap_err().source.kind(), ErrorKind::NotADirectory);
    }
}

#[test]
fn names_are_made_listed_changed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    DiskFiles
        .create(&at("b"))
        .unwrap()
        .write_all(b"12")
        .unwrap();
    DiskFiles.create_dir_all(&at("a/inner")).unwrap();
    let entry = |name: &str, is_dir| Entry {
        name: name.into(),
        is_dir,
    };
    let listed = DiskFiles.list_dir(folder.path()).unwrap();
    assert_eq!(listed, [entry("a", true), entry("b", false)]);
    let found = DiskFiles.metadata(&at("b")).unwrap().unwrap();
    assert!(found.bytes == 2 && found.is_file && !found.is_dir);
    DiskFiles.rename(&at("b"), &at("c")).unwrap();
    DiskFiles.sync_dir(folder.path()).unwrap();
    DiskFiles.remove_file(&at("c")).unwrap();
    DiskFiles.remove_dir_all(&at("a")).unwrap();
    assert_eq!(DiskFiles.list_dir(folder.path()).unwrap(), []);
}

#[test]
fn errors_name_operation_and_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing");
    let error = DiskFiles.open(&path).unwrap_err();
    assert!(
        error.is_not_found() && error.to_string().starts_with("cannot open /"),
        "{error}"
    );
    assert!(error.to_string().contains("missing"), "{error}");
    let error = DiskFiles.open(folder.path()).unwrap_err();
    assert_eq!(error.source.kind(), ErrorKind::IsADirectory);
    assert_eq!(
        DiskFiles.remove_dir_all(&path).unwrap_err().operation,
        Operation::Remove
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_recognised() {
    let mut full = DiskFiles.append(Path::new("/dev/full")).unwrap();
    let error = full.write_all(b"x").unwrap_err();
    assert!(error.is_disk_full(), "{error}");
    // It cannot be brought to disk either, and a second attempt does not hide that.
    assert_eq!(full.sync_all().unwrap_err().operation, Operation::Sync);
    assert!(
        full.sync_all()
            .unwrap_err()
            .to_string()
            .contains("an earlier attempt failed")
    );
}

/// How many bytes of a file are in the page cache.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "only a mapping can be asked this")]
fn cached_bytes(path: &Path) -> u64 {
    use rustix::mm::{MapFlags, ProtFlags};
    use std::ffi::{c_int, c_uchar, c_void};
    unsafe extern "C" {
        fn mincore(address: *mut c_void, len: usize, found: *mut c_uchar) -> c_int;
    }
    let file = File::open(path).unwrap();
    let len = file.metadata().unwrap().len() as usize;
    let page = rustix::param::page_size();
    let mut found = vec![0_u8; len.div_ceil(page)];
    let (access, flags) = (ProtFlags::READ, MapFlags::SHARED);
    // SAFETY: a new mapping, which nobody reads, and which is given back below; `found` has a
    // byte for each of its pages.
    unsafe {
        let mapped = rustix::mm::mmap(std::ptr::null_mut(), len, access, flags, &file, 0);
        let mapped = mapped.unwrap();
        assert_eq!(mincore(mapped, len, found.as_mut_ptr()), 0);
        rustix::mm::munmap(mapped, len).unwrap();
    }
    found.iter().filter(|&&bits| bits & 1 == 1).count() as u64 * page as u64
}

#[test]
#[cfg(target_os = "linux")]
fn the_page_cache_stays_small() {
    const SIZE: u64 = 96 << 20;
    // In the build's folder: the system's folder for temporary files can be memory itself.
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = folder.path().join("large");
    fs::write(&path, pattern(0, 16 << 20)).unwrap();
    assert_eq!(cached_bytes(&path), 16 << 20, "the measure works");
    let mut writer = DiskFiles.create(&path).unwrap();
    for start in (0..SIZE).step_by(1 << 20) {
        writer.write_all(&pattern(start, 1 << 20)).unwrap();
        let cached = cached_bytes(&path);
        assert!(cached <= WRITE_WINDOW + WRITE_PIECE, "{cached}");
    }
    writer.sync_all().unwrap();
    assert!(cached_bytes(&path) <= 1 << 20);
    let mut reader = DiskFiles.open(&path).unwrap();
    let mut buffer = vec![0; 1 << 20];
    for start in (0..SIZE).step_by(1 << 20) {
        reader.read_exact_at(start, &mut buffer).unwrap();
        assert!(cached_bytes(&path) <= READ_WINDOW + 2 * READ_AHEAD);
    }
    drop(reader);
    assert!(cached_bytes(&path) <= 1 << 20);
}

/// Opening a pipe would wait for who writes to it, or reads from it: neither ever comes here.
#[test]
fn what_is_no_file_is_refused_and_waited_on_by_nobody() {
    use std::os::unix::net::UnixListener;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let made = std::process::Command::new("mkfifo")
        .arg(at("pipe"))
        .status();
    assert!(made.unwrap().success());
    let _socket = UnixListener::bind(at("socket")).unwrap();
    std::os::unix::fs::symlink(at("pipe"), at("link")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", at("device")).unwrap();
    for (name, told) in [
        ("pipe", "it is a pipe"),
        ("link", "it is a pipe"),
        ("socket", "it is a socket"),
        ("device", "it is a device"),
        ("", "directory"),
    ] {
        let error = DiskFiles.open(&at(name)).unwrap_err().to_string();
        assert!(error.contains(told) && error.contains(name), "{error}");
    }
    for error in [
        DiskFiles.create(&at("pipe")).unwrap_err(),
        DiskFiles.append(&at("link")).unwrap_err(),
    ] {
        assert!(error.to_string().contains("it is a pipe"), "{error}");
    }
}
