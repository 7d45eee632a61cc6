//! Layouts of records, as other programs leave them, in every format: which files are trained on, which are held out,
//! which are not read, and which records that makes.

#[path = "../bad_files/make.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod make;

use std::path::Path;
use std::sync::Arc;

use highwater_memory::Files;
use highwater_memory::files::MemoryFiles;
use highwater_text::Tokenizer;
use highwater_text::data::{Progress, Reads, Rows};
use highwater_text::prepare::{Preparation, prepare};
use highwater_text::records::record_parts;
use highwater_text::{Encoder, FieldMap, Learn};

const ENDINGS: [&str; 9] = [
    "jsonl", "ndjson", "json", "csv", "tsv", "parquet", "jsonl.gz", "json.zst", "csv.gz",
];

/// A file of so many texts, in the format of an ending.
fn file(ending: &str, count: usize) -> Vec<u8> {
    let texts: Vec<String> = (0..count).map(|i| format!("text {i}")).collect();
    let objects: Vec<String> = texts
        .iter()
        .map(|text| format!("{{\"text\": \"{text}\"}}"))
        .collect();
    let (plain, packed) = ending.split_once('.').unwrap_or((ending, ""));
    let bytes = match plain {
        "jsonl" | "ndjson" => objects.join("\n").into_bytes(),
        "json" => format!("[{}]", objects.join(", ")).into_bytes(),
        "csv" | "tsv" => format!("text\n{}\n", texts.join("\n")).into_bytes(),
        "parquet" => {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let column = make::texts(&texts).all();
            let schema = "required binary text (utf8);";
            make::parquet(schema, make::properties(), &[vec![column]])
        }
        other => panic!("{other}"),
    };
    match packed {
        "gz" => make::gz(bytes),
        "zst" => make::zst(bytes),
        _ => bytes,
    }
}

/// Records to train on and held out, and what is said of the files.
fn read(files: &Arc<dyn Files>, held_out: Option<&Path>) -> Result<(u64, u64, String), String> {
    let data = Path::new("/d");
    let tokenizer = Tokenizer::Bytes;
    let encoder = Encoder::new(&tokenizer, None, None, Learn::Answers).unwrap();
    let preparation = Preparation {
        data,
        held_out,
        reads: Reads::Training,
        progress: Progress::default(),
        map: FieldMap::default(),
        vocab_size: 256,
        length: 64,
        packing: true,
        pairs: false,
        threads: 2,
    };
    let told = |error: highwater_text::TextError| error.to_string();
    let out = Path::new("/rows");
    let prepared = prepare(files, &encoder, &preparation, out).map_err(told)?;
    let rows = Rows::open(&**files, out, 256).unwrap();
    assert_eq!(rows.packed(), prepared.counts);
    assert_eq!(rows.held_out(), prepared.held_out);
    let parts = record_parts(&**files, data, (held_out, Reads::Training)).map_err(told)?;
    let said = parts.describe(data, Reads::Training).unwrap_or_default();
    let held_out = prepared.held_out.map_or(0, |counts| counts.documents);
    Ok((prepared.counts.documents, held_out, said))
}

/// Names without endings, each with how many records it has; records to train on and held out; what is said.
type Layout = (&'static [(&'static str, usize)], u64, u64, &'static str);

const LAYOUTS: [Layout; 14] = [
    // mlx-lm
    (
        &[("train", 5), ("valid", 3), ("test", 2)],
        5,
        3,
        "data: train.* to train on; valid.* held out; not read: test.*",
    ),
    (
        &[("train", 5), ("val", 3)],
        5,
        3,
        "data: train.* to train on; val.* held out",
    ),
    (
        &[("train", 4), ("test", 2)],
        4,
        0,
        "data: train.* to train on; not read: test.*",
    ),
    // Hugging Face
    (
        &[
            ("data/train-00000-of-00002", 2),
            ("data/train-00001-of-00002", 3),
            ("data/validation-00000-of-00001", 1),
            ("data/test-00000-of-00001", 1),
        ],
        5,
        1,
        "data: data/train-00000-of-00002.*, data/train-00001-of-00002.* to train on; \
         data/validation-00000-of-00001.* held out; not read: data/test-00000-of-00001.*",
    ),
    (
        &[("train/0000", 2), ("validation/0000", 1), ("test/0000", 1)],
        2,
        1,
        "data: train/0000.* to train on; validation/0000.* held out; not read: test/0000.*",
    ),
    (
        &[("main/train/0", 2), ("main/dev/0", 1)],
        2,
        1,
        "data: main/train/0.* to train on; main/dev/0.* held out",
    ),
    (
        &[
            ("train_sft-00000-of-00001", 2),
            ("test_sft-00000-of-00001", 1),
        ],
        2,
        0,
        "data: train_sft-00000-of-00001.* to train on; not read: test_sft-00000-of-00001.*",
    ),
    (
        &[("my-train", 2), ("my-eval", 1), ("my-dev", 1)],
        2,
        2,
        "data: my-train.* to train on; my-dev.*, my-eval.* held out",
    ),
    (
        &[("chats", 3), ("valid", 2)],
        3,
        2,
        "data: chats.* to train on; valid.* held out",
    ),
    (
        &[("train", 3), ("extra", 2)],
        3,
        0,
        "data: train.* to train on; not read: extra.*",
    ),
    (&[("a", 3), ("b", 2)], 5, 0, ""),
    (
        &[("TRAIN", 3), ("Validation", 2)],
        3,
        2,
        "data: TRAIN.* to train on; Validation.* held out",
    ),
    (&[("trainer", 3), ("testament", 2), ("value", 1)], 6, 0, ""),
    (&[("train", 3), ("train-2", 2)], 5, 0, ""),
];

#[test]
fn folders_in_every_format_are_divided_by_their_names() {
    let mut tried = 0;
    for ending in ENDINGS {
        for (names, train, held_out, said) in LAYOUTS {
            let files = files(
                names
                    .iter()
                    .map(|(name, count)| (format!("{name}.{ending}"), file(ending, *count))),
            );
            let found = read(&files, None);
            let said = said.replace(".*", &format!(".{ending}"));
            assert_eq!(found, Ok((train, held_out, said)), "{names:?} {ending}");
            tried += 1;
        }
        for names in [
            &["valid"][..],
            &["test"],
            &["val", "test"],
            &["dev/a", "eval"],
        ] {
            let files = files(
                names
                    .iter()
                    .map(|name| (format!("{name}.{ending}"), file(ending, 1))),
            );
            let error = read(&files, None).unwrap_err();
            assert!(
                error.contains("no file to train on, by their names: "),
                "{error}"
            );
            assert!(error.contains(&format!("{}.{ending}", names[0])), "{error}");
            tried += 1;
        }
    }
    assert!(tried > 150, "{tried}");
}

fn files(all: impl IntoIterator<Item = (String, Vec<u8>)>) -> Arc<dyn Files> {
    let files = MemoryFiles::new();
    for (name, bytes) in all {
        let path = Path::new("/d").join(name);
        files.create_dir_all(path.parent().unwrap()).unwrap();
        files.create(&path).unwrap().write_all(&bytes).unwrap();
    }
    Arc::new(files)
}

#[test]
fn what_is_held_out_may_lie_elsewhere() {
    let all = |more: &[(&str, usize)]| {
        let own = [("train.jsonl", 4), ("valid.jsonl", 2)];
        let all = own.iter().chain(more);
        files(all.map(|(name, count)| ((*name).to_owned(), file("jsonl", *count))))
    };
    let others = all(&[("/e/valid.jsonl", 3), ("/e/train.jsonl", 9)]);
    let (train, held_out, said) = read(&others, Some(Path::new("/e"))).unwrap();
    assert_eq!((train, held_out), (4, 3));
    assert!(said.contains("not read: valid.jsonl, "), "{said}");
    let one = all(&[("more.jsonl", 1)]);
    let (train, held_out, _) = read(&one, Some(Path::new("/d/more.jsonl"))).unwrap();
    assert_eq!((train, held_out), (4, 1));
}

#[test]
fn what_is_left_out_of_a_folder_is_said() {
    let others = files([
        ("train.jsonl".to_owned(), file("jsonl", 2)),
        ("train.jsonl.bz2".to_owned(), b"BZh9".to_vec()),
        ("README.md".to_owned(), b"about".to_vec()),
        ("state.arrow".to_owned(), b"ARROW1".to_vec()),
        (".hidden".to_owned(), b"x".to_vec()),
        ("LICENSE".to_owned(), b"x".to_vec()),
    ]);
    let (_, _, said) = read(&others, None).unwrap();
    assert_eq!(
        said,
        "data: train.jsonl to train on; not read: state.arrow, train.jsonl.bz2"
    );
}

#[test]
fn what_is_held_out_has_to_be_learnable_too() {
    let all = files([
        ("train.jsonl".to_owned(), file("jsonl", 2)),
        ("valid.jsonl".to_owned(), b"{\"text\": \"a\"}".to_vec()),
    ]);
    let error = read(&all, None).unwrap_err();
    assert!(
        error.starts_with("/d/valid.jsonl: the loss would be computed on no token"),
        "{error}"
    );
    let all = files([
        ("train.jsonl".to_owned(), file("jsonl", 2)),
        ("valid.jsonl".to_owned(), b"{\"body\": \"a b\"}".to_vec()),
    ]);
    let error = read(&all, None).unwrap_err();
    assert!(
        error.starts_with("/d/valid.jsonl, line 1: there is no text"),
        "{error}"
    );
}
