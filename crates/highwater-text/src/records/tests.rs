use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_memory::Files;
use highwater_memory::files::MemoryFiles;
use serde_json::json;

use super::*;

/// A file system with these files.
fn files(all: &[(&str, &str)]) -> Arc<dyn Files> {
    let files = MemoryFiles::new();
    for (path, text) in all {
        let path = Path::new(path);
        files.create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = files.create(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }
    Arc::new(files)
}

fn read(files: &Arc<dyn Files>, path: &str) -> Vec<Result<Record, TextError>> {
    Records::open(Arc::clone(files), Path::new(path))
        .unwrap()
        .collect()
}

/// Where the records of a file are.
fn places(file: &str, text: &str) -> Vec<Position> {
    let path = format!("d/{file}");
    let records = read(&files(&[(&path, text)]), &path).into_iter();
    let places = records.map(|record| record.unwrap().place);
    places
        .map(|place| {
            assert_eq!(place.path, Path::new(&path));
            place.position
        })
        .collect()
}

#[test]
fn records_know_where_they_are() {
    use Position::{Element, Line, Whole};
    let lines = "\n{\"a\": 1}\n \n{\"a\": 2}";
    assert_eq!(places("a.jsonl", lines), [Line(2), Line(4)]);
    assert_eq!(
        places("a.json", "[{},\n\n{}, {}]"),
        [Element(1), Element(2), Element(3)]
    );
    let table = "a,b\n1,2\n\n\n\"x\n\ny\",2\n3,4";
    assert_eq!(places("a.csv", table), [Line(2), Line(5), Line(8)]);
    assert_eq!(
        places("a.csv", &table.replace('\n', "\r\n")),
        [Line(2), Line(5), Line(8)]
    );
    assert_eq!(places("a.txt", "x\ny"), [Whole]);
    let long = "0123456\n".repeat(PIECE_BYTES_MAX / 8 + 1);
    let first = PIECE_BYTES_MAX as u64 / 8;
    // The first piece ends before its last line break.
    assert_eq!(places("a.md", &long), [Line(1), Line(first)]);
}

#[test]
fn fields_keep_their_order_and_bytes() {
    let one = |file: &str, text: &str| {
        let path = format!("d/{file}");
        let record = read(&files(&[(&path, text)]), &path)
            .swap_remove(0)
            .unwrap();
        Value::Object(record.fields).to_string()
    };
    assert_eq!(
        one(
            "a.jsonl",
            r#"{"z": 1.0, "a": [1e2, "\u00e9\n"], "m": null}"#
        ),
        r#"{"z":1.0,"a":[100.0,"é\n"],"m":null}"#
    );
    assert_eq!(
        one("a.csv", "z,a\r\n\" x \"\"y\"\"\r\n\", 1 \r\n"),
        r#"{"z":" x \"y\"\r\n","a":" 1 "}"#
    );
    assert_eq!(one("a.txt", "\u{feff} x\r\n"), r#"{"text":" x\r\n"}"#);
}

#[test]
fn folders_are_read_in_order() {
    let files = files(&[
        ("d/b.jsonl", "{\"a\": 2}\n"),
        ("d/a/z.csv", "a\n1\n"),
        ("d/c.txt", "3"),
        ("d/empty.jsonl", ""),
        ("d/.hidden.jsonl", "{}"),
        ("d/.git/x.json", "[{}]"),
        ("d/README.md", "about"),
        ("d/LICENSE.txt", "yes"),
        ("d/dataset_info.json", "{}"),
        ("d/weights.bin", "x"),
        ("d/none.jsonl", "\n\n"),
        ("d/readme.jsonl", "{\"a\": 4}"),
    ]);
    let found = record_files(&*files, Path::new("d")).unwrap();
    let names = ["a/z.csv", "b.jsonl", "c.txt", "none.jsonl", "readme.jsonl"];
    assert_eq!(found, names.map(|name| Path::new("d").join(name)));
    let records: Vec<Value> = read(&files, "d")
        .into_iter()
        .map(|record| Value::Object(record.unwrap().fields))
        .collect();
    assert_eq!(
        records,
        [
            json!({"a": "1"}),
            json!({"a": 2}),
            json!({"text": "3"}),
            json!({"a": 4})
        ]
    );
    // What is left out of folders is read where it is asked for.
    assert_eq!(
        record_files(&*files, Path::new("d/README.md")).unwrap(),
        [PathBuf::from("d/README.md")]
    );
}

#[test]
fn folders_without_records() {
    let files = files(&[("d/a.bin", "x"), ("e/a.jsonl", "\n"), ("e/b.csv", "a,b\n")]);
    let error = Records::open(Arc::clone(&files), Path::new("d")).unwrap_err();
    assert!(error.to_string().starts_with("d: no file in this folder"));
    assert!(error.hint().unwrap().contains(".jsonl"));
    let all = read(&files, "e");
    let [Err(error)] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(error.to_string(), "e: there are no examples in it");
    for path in ["d/a.bin", "x", "x.jsonl"] {
        assert!(record_files(&*files, Path::new(path)).is_err(), "{path}");
    }
}

#[test]
fn folders_are_not_gone_into_for_ever() {
    let deep = format!("{}a.jsonl", "d/".repeat(70));
    let files = files(&[(&deep, "{}")]);
    let error = record_files(&*files, Path::new("d")).unwrap_err();
    assert!(
        error.to_string().contains("more than 64 folders"),
        "{error}"
    );
}

#[test]
fn an_error_ends_it() {
    let files = files(&[
        ("d/a.jsonl", "{\"a\": 1}\n[]\n{\"a\": 2}"),
        ("d/b.jsonl", "{}"),
    ]);
    let mut records = Records::open(Arc::clone(&files), Path::new("d")).unwrap();
    assert!(records.next().unwrap().is_ok());
    let error = records.next().unwrap().unwrap_err();
    assert!(error.to_string().contains("a.jsonl, line 2: "), "{error}");
    assert!(records.next().is_none());
    assert!(records.next().is_none());
}

#[test]
fn bytes_are_counted() {
    let line = "{\"a\": 1}\n".repeat(100_000);
    let files = files(&[("d/a.jsonl", &line), ("d/b.jsonl", "{}")]);
    let mut records = Records::open(files, Path::new("d")).unwrap();
    assert_eq!((records.bytes(), records.bytes_read()), (900_002, 0));
    records.next().unwrap().unwrap();
    let read = records.bytes_read();
    assert!(read > 0 && read < 200_000, "{read}");
    assert_eq!(records.by_ref().count(), 100_000);
    assert_eq!(records.bytes_read(), 900_002);
}

#[test]
fn endings() {
    let is = |name: &str| is_record_file(Path::new(name));
    for name in [
        "a.jsonl",
        "a.NDJSON",
        "x/a.json",
        "a.csv.gz",
        "a.tsv.zst",
        "a.b.parquet",
    ] {
        assert!(is(name), "{name}");
    }
    for name in [
        "a.txt",
        "a.md.gz",
        "a.npy",
        "a.bin",
        "a",
        "a.gz",
        "jsonl",
        "x.jsonl/a",
        "",
    ] {
        assert!(!is(name), "{name}");
    }
}

/// Another thread may read them.
#[test]
fn records_may_be_sent() {
    fn is_sent<T: Send>() {}
    is_sent::<Records>();
    is_sent::<Record>();
}
