//! Parquet files as libraries write them, whole and damaged.

use std::path::Path;

use parquet::basic::{Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::WriterVersion;
use serde_json::{Value, json};

use super::Want::{Bad, Fine};
use super::make::{Data, Values, parquet, properties, texts};
use super::{check, files, raw, read};

pub(crate) const TEXT: &str = "required binary text (UTF8);";

/// Two groups of three rows.
pub(crate) fn small() -> Vec<u8> {
    let column = || vec![texts(&["a", "b", "hello world"]).all()];
    parquet(TEXT, properties(), &[column(), column()])
}

/// The records of a file.
pub(crate) fn rows(bytes: &[u8]) -> Vec<Value> {
    let read = read(
        &files("a.parquet", bytes),
        Path::new("a.parquet"),
        usize::MAX,
    );
    assert_eq!(read.error, None);
    let records = read.records.into_iter();
    records.map(|record| Value::Object(record.fields)).collect()
}

/// One group of one column.
pub(crate) fn column(schema: &str, data: Data) -> Vec<u8> {
    parquet(schema, properties(), &[vec![data]])
}

#[test]
fn every_codec_and_encoding() {
    let long: Vec<String> = (0..3000)
        .map(|at| format!("text {at} {}", "x".repeat(at % 97)))
        .collect();
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    let with = |codec, version, dictionary| {
        let properties = properties()
            .set_compression(codec)
            .set_writer_version(version)
            .set_dictionary_enabled(dictionary)
            .set_data_page_row_count_limit(500);
        let definition: Vec<i16> = (0..3500).map(|at| i16::from(at % 7 != 0)).collect();
        let column = || vec![texts(&long).all(), texts(&long).some(&definition)];
        parquet(
            "required binary a (UTF8); optional binary b (UTF8);",
            properties,
            &[{
                let mut both = column();
                both.pop();
                both.push(texts(&long[..2571]).some(&definition[..3000]));
                both
            }],
        )
    };
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
    ];
    for codec in codecs {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [false, true] {
                let rows = rows(&with(codec, version, dictionary));
                assert_eq!(rows.len(), 3000, "{codec} {version:?}");
                assert_eq!(rows[2999]["a"], long[2999], "{codec} {version:?}");
                assert_eq!(rows[7]["b"], Value::Null);
                assert_eq!(rows[2999]["b"], long[2570], "{codec} {version:?}");
            }
        }
    }
    for encoding in [
        Encoding::DELTA_LENGTH_BYTE_ARRAY,
        Encoding::DELTA_BYTE_ARRAY,
        Encoding::PLAIN,
    ] {
        let properties = properties()
            .set_dictionary_enabled(false)
            .set_encoding(encoding);
        let rows = rows(&parquet(TEXT, properties, &[vec![texts(&long).all()]]));
        assert_eq!(
            (rows.len(), &rows[2999]["text"]),
            (3000, &json!(long[2999])),
            "{encoding}"
        );
    }
}

/// Conversations, as `datasets` writes them.
pub(crate) fn conversations() -> Vec<u8> {
    let schema = "optional group messages (LIST) { repeated group list { optional group element {
        optional binary role (UTF8); optional binary content (UTF8); } } } optional binary id (UTF8);";
    // Two turns; none; no list; a turn that is null; a turn without content.
    let repetition = [0, 1, 0, 0, 0, 0];
    let roles = texts(&["user", "assistant", "user"]).nested(&[4, 4, 1, 0, 2, 4], &repetition);
    let contents = texts(&["hi", "hello"]).nested(&[4, 4, 1, 0, 2, 3], &repetition);
    let ids = texts(&["1", "2", "4"]).some(&[1, 1, 0, 1, 0]);
    parquet(schema, properties(), &[vec![roles, contents, ids]])
}

/// What is said of a file that is cut.
const CUT: &[&str] = &[
    "a.parquet: the file ends in the middle: it does not end with PAR1",
    "copy the file again",
];

#[test]
fn files_that_are_damaged() {
    let whole = small();
    let with = |at: usize, bytes: &[u8]| {
        let mut file = whole.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let end = whole.len();
    let web = format!("<!DOCTYPE html><html>{}</html>", " ".repeat(100));
    let not = |texts: Vec<Vec<u8>>| column(TEXT, Values::Bytes(texts).all());
    let long = "x".repeat(5 << 20);
    let two = parquet(
        "required binary a (UTF8); required binary b (UTF8);",
        properties(),
        &[vec![texts(&[&long]).all(), texts(&[&long]).all()]],
    );
    let large = parquet(
        TEXT,
        properties()
            .set_dictionary_enabled(false)
            .set_data_page_size_limit(64 << 20),
        &[vec![texts(&vec![&long[..1 << 20]; 20]).all()]],
    );
    check(cases! { "a.parquet";
        "as it should be", &whole => Fine(6);
        "no rows in a group", parquet(TEXT, properties(), &[vec![texts(&[]).all()], vec![texts(&["a"]).all()]])
            => Fine(1);
        "no rows", column(TEXT, texts(&[]).all()) => Bad(0, &["there are no examples in it"]);
        "no groups", parquet(TEXT, properties(), &[]) => Bad(0, &["there are no examples in it"]);
        "nothing", "" => Bad(0, &["a.parquet: the file is empty"]);
        "one byte", "P" => Bad(0, &["not a Parquet file: it does not start with PAR1"]);
        "the first bytes alone", "PAR1" => Bad(0, CUT);
        "both ends alone", "PAR1PAR1" => Bad(0, CUT);
        "no footer", b"PAR1\0\0\0\0PAR1" => Bad(0, &["its footer is damaged"]);
        "cut at the end", &whole[..end - 1] => Bad(0, CUT);
        "cut in the footer", &whole[..end - 50] => Bad(0, CUT);
        "cut in the values", &whole[..20] => Bad(0, CUT);
        "the start is missing", &whole[10..] => Bad(0, &["not a Parquet file"]);
        "a long footer", with(end - 8, &u32::MAX.to_le_bytes())
            => Bad(0, &["said to have 4294967295 bytes: too many"]);
        "a footer as long as the file", with(end - 8, &(end as u32).to_le_bytes()) => Bad(0, &["too many"]);
        "a short footer", with(end - 8, &[1, 0, 0, 0]) => Bad(0, &["its "]);
        "an encrypted footer", with(end - 4, b"PARE")
            => Bad(0, &["the file is encrypted", "without encryption"]);
        "encrypted", with(0, b"PARE") => Bad(0, &["the file is encrypted"]);
        "JSON lines", "{\"text\": \"a\"}\n" => Bad(0, &["not a Parquet file", "the extension of its format"]);
        "a web page", web => Bad(0, &["a web page"]);
        "Git LFS", "version https://git-lfs.github.com/spec/v1\n" => Bad(0, &["git lfs pull"]);
        "gzip", super::make::gz(&whole) => Bad(0, &["packed"]);
        "zeros", [0; 100] => Bad(0, &["not a Parquet file"]);
        "not UTF-8", not(vec![b"caf\xe9".to_vec()])
            => Bad(0, &["row 1: column text: byte 4 (0xe9) is not UTF-8"]);
        "not UTF-8 in row 2", not(vec![vec![], vec![0xff]]) => Bad(1, &["a.parquet, row 2: column text"]);
        "long without UTF-8", not(vec![vec![0xff; 7 << 20]]) => Bad(0, &["row 1: column text: byte 1"]);
        "a long text", not(vec![vec![b'x'; 9 << 20]])
            => Bad(0, &["row 1: column text: the row is longer than 8 MiB", "split"]);
        "two long texts", two => Bad(0, &["row 1: column b: the row is longer than 8 MiB"]);
        "a large page", large => Bad(0, &["row 1: column text: a page of", "write_batch_size=16"]);
        "a value that is cut", raw::texts(0, 1, &[raw::Page::data(1, [9, 0, 0, 0, b'x'])])
            => Bad(0, &["the data is damaged"]);
    });
}

/// Every byte of small files, changed in three ways: nothing takes much memory or brings the program down.
#[test]
fn every_byte_changed() {
    for whole in [small(), conversations()] {
        for at in 0..whole.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut file = whole.clone();
                file[at] ^= change;
                let files = files("a.parquet", &file);
                let (_, needed) = super::alloc::measure(|| read(&files, Path::new("a.parquet"), 0));
                assert!(
                    needed.peak <= 4 * file.len() + super::BLOCK_BYTES,
                    "byte {at}: {needed:?}"
                );
            }
        }
    }
}
