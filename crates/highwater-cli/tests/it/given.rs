//! What users give that is not what is expected: no files, links, names without a folder, and far too much of
//! everything. Messages name it as they gave it, and are short.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::started::{highwater, words};

/// What is said, in an error of this exit code.
fn refused(dir: &Path, line: &str, expected: i32) -> String {
    let (code, _, news) = highwater(dir, line);
    assert_eq!(code, expected, "{line}\n{news}");
    assert!(news.contains("error["), "{line}\n{news}");
    news
}

#[test]
fn what_is_no_regular_file_is_called_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    fs::write(dir.join("text.txt"), "water runs over stones. ".repeat(100)).unwrap();
    let records = "{\"text\": \"water\"}\n".repeat(99);
    fs::write(dir.join("texts.jsonl"), records).unwrap();
    for ending in [
        "", ".txt", ".npy", ".bin", ".jsonl", ".csv", ".toml", ".json",
    ] {
        let path = dir.join(format!("pipe{ending}"));
        let made = Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
        symlink("/dev/zero", dir.join(format!("device{ending}"))).unwrap();
    }
    for line in [
        "train --data X",
        "train --data X.txt",
        "train --data X.npy",
        "train --data X.bin",
        "train --data X.jsonl",
        "train --data X.csv",
        "init --data X.npy",
        "train --data text.txt --eval-data X.txt",
        "train --data texts.jsonl --eval-data X.jsonl",
        "train --data text.txt --tokenizer X.json",
        "train --data texts.jsonl --chat-template X",
        "train --config X.toml",
        "plan --init-from X.json",
        "plan --diff X.json X.json",
        "data show X.jsonl",
    ] {
        for name in ["pipe", "device"] {
            let news = refused(dir, &line.replace('X', name), 4);
            let told =
                format!(": it is a {name}; only regular files are read: copy it to a file first");
            assert!(news.contains(&told), "{line}: {news}");
        }
    }
    // A plan needs no data, and says what `train` will.
    let (code, _, news) = highwater(dir, "plan --data pipe.txt --threads 2");
    assert!(code == 0 && news.contains("it is a pipe"), "{news}");
}
