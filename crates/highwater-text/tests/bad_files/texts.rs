//! Files that are nothing but text, and names that say nothing.

use std::path::Path;

use super::Want::{Bad, Fine};
use super::{check, files, make, read};

#[test]
fn texts() {
    let words = "some words ".repeat(300_000);
    let broken = [words.as_bytes(), b"\nx\xff"].concat();
    let lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    check(cases! { "a.txt";
        "a text", b"hello\nworld\n" => Fine(1);
        "a web page", b"<!doctype html><html></html>" => Fine(1);
        "what starts like something else", b"BZh and ORC and Obj" => Fine(1);
        "a BOM", b"\xef\xbb\xbfhello" => Fine(1);
        "a mebibyte", "x".repeat(1 << 20).as_bytes() => Fine(1);
        "a mebibyte and a byte", "x".repeat((1 << 20) + 1).as_bytes() => Fine(2);
        "words", words.as_bytes() => Fine(4);
        "letters of three bytes", "\u{65e5}".repeat(1 << 20).as_bytes() => Fine(4);
        "blanks in the middle", format!("a{}b", " ".repeat(3 << 20)).as_bytes() => Fine(2);
        "nothing", "" => Bad(0, &["a.txt: the file is empty"]);
        "blanks alone", " \n\n" => Bad(0, &["there are no examples in it"]);
        "not UTF-8", b"ab\ncaf\xe9" => Bad(0, &["a.txt, line 2: byte 7 (0xe9) is not UTF-8", "iconv"]);
        "not UTF-8 far on", broken => Bad(3, &["a.txt, line 2: byte 3300003 (0xff) is not UTF-8"]);
        "cut in a letter", b"\xef\xbb\xbfcaf\xc3" => Bad(0, &["line 1: byte 7 (0xc3) is not UTF-8"]);
        "a byte 0", b"ab\0" => Bad(0, &["the file is not text: byte 3 is 0"]);
        "a program", b"\x7fELF\x02\x01\x01\0" => Bad(0, &["the file is not text"]);
        "UTF-16", b"\xff\xfeh\0i\0" => Bad(0, &["UTF-16"]);
        "Parquet", b"PAR1\0\0" => Bad(0, &["the file is a Parquet file"]);
    });
    check(cases! { "a.md";
        "Markdown", "# x" => Fine(1);
        "Git LFS", lfs => Bad(0, &["git lfs pull"]);
    });
    check(cases! { "a.text";
        "text", "x" => Fine(1);
    });
    check(cases! { "a.txt.gz";
        "packed", make::gz("hello") => Fine(1);
    });
    check(cases! { "a.md.zst";
        "packed otherwise", make::zst("hello") => Fine(1);
    });
}

/// Pieces have all of the text, and end before white space.
#[test]
fn pieces_are_the_whole_text() {
    let words = (0..400_000).map(|at| format!("word{at} {}", "\n".repeat(at % 3)));
    let text = words.collect::<Vec<_>>().concat();
    let files = files("a.txt", text.as_bytes());
    let read = read(&files, Path::new("a.txt"), usize::MAX);
    let pieces = read
        .records
        .iter()
        .map(|record| record.fields["text"].as_str().unwrap());
    let pieces: Vec<&str> = pieces.collect();
    assert!(pieces.len() > 4 && pieces.iter().all(|piece| piece.len() <= 1 << 20));
    assert!(
        pieces[1..]
            .iter()
            .all(|piece| piece.starts_with([' ', '\n']))
    );
    assert_eq!(pieces.concat(), text);
}

#[test]
fn names() {
    const KNOWN: &[&str] = &[
        "the file's extension is not that of a supported format",
        ".jsonl, .ndjson, .json, .csv, .tsv, .parquet, .txt, .text, .md, and each but .parquet may end in .gz or .zst",
    ];
    let names = [
        "a",
        "a.xlsx",
        "a.npy",
        "a.bin",
        "a.gz",
        "a.jsonl.bz2",
        "a.jsonl.gz.gz",
        "jsonl",
        ".jsonl",
        "a.jsonl.tmp",
        "a.arrow",
    ];
    for name in names {
        let said = read(&files(name, b"{}"), Path::new(name), 0).error.unwrap();
        assert!(
            KNOWN.iter().all(|part| said.contains(part)),
            "{name}: {said}"
        );
    }
    let files = files("a.jsonl", b"{}");
    let missing = read(&files, Path::new("b.jsonl"), 0).error.unwrap();
    assert!(
        missing.contains("b.jsonl: there is no such file or folder"),
        "{missing}"
    );
}
