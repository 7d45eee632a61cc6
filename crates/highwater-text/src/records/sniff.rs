//! What the first bytes of a file tell about it, whatever its name says.

use super::Fault;
use super::kind::{Format, Wrap};

/// Bytes that are looked at.
pub(super) const HEAD_BYTES: usize = 1024;
/// What UTF-8 may start with.
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

/// How a file is packed, by its first bytes.
pub(super) fn wrap(head: &[u8]) -> Option<Wrap> {
    match head {
        [0x1f, 0x8b, 0x08, ..] => Some(Wrap::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Wrap::Zstd),
        _ => None,
    }
}

/// Starts of files that are something else.
const OTHERS: [(&[u8], &str, &str); 14] = [
    (b"PAR1", "a Parquet file", "let its name end in .parquet"),
    (b"BZh", "packed with bzip2", "unpack it with bunzip2"),
    (b"\xfd7zXZ\0", "packed with xz", "unpack it with unxz"),
    (
        b"\x04\x22\x4d\x18",
        "packed with LZ4",
        "unpack it with unlz4",
    ),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it"),
    (
        b"PK\x03\x04",
        "a ZIP archive, or a spreadsheet",
        "unpack it, or save the sheet as CSV",
    ),
    (b"\x1f\x8b", "packed in an unknown way", "unpack it"),
    (
        b"\x93NUMPY",
        "an array of NumPy",
        "let its name end in .npy where it holds tokens",
    ),
    (
        b"ARROW1",
        "a file of Arrow",
        "save it as Parquet: pyarrow.parquet.write_table",
    ),
    (
        b"\xff\xff\xff\xff",
        "a stream of Arrow",
        "save it as Parquet: datasets.load_from_disk(..).to_parquet(..)",
    ),
    (b"%PDF-", "a PDF", "save its text"),
    (
        b"SQLite format 3\0",
        "a database of SQLite",
        "save its rows as CSV",
    ),
    (b"Obj\x01", "a file of Avro", "save it as Parquet"),
    (b"ORC", "a file of ORC", "save it as Parquet"),
];

/// Whether what a file starts with cannot be what its name says.
pub(super) fn check(head: &[u8], format: Format) -> Result<(), Fault> {
    if head.is_empty() {
        return Err(Fault::new("the file is empty").hint("leave it out, or write it again"));
    }
    if let Some(fault) = known(head, format) {
        return Err(fault);
    }
    if let Some(at) = head.iter().position(|&byte| byte == 0) {
        let binary = format!("the file is not text: byte {} is 0", at + 1);
        return Err(Fault::new(binary).hint("a file of text in UTF-8 was expected"));
    }
    Ok(())
}

/// What a file is instead of what its name says.
pub(super) fn known(head: &[u8], format: Format) -> Option<Fault> {
    if head.starts_with(b"version https://git-lfs") {
        let pointer = "the file is not there: Git LFS has left a pointer to it";
        return Some(Fault::new(pointer).hint("fetch it with git lfs pull"));
    }
    if let Some(encoding) = wide(head) {
        let hint = format!("convert it: iconv -f {encoding} -t UTF-8 FILE > NEW");
        return Some(Fault::new(format!("encoded in {encoding}; UTF-8 is needed")).hint(hint));
    }
    if let Some(wrap) = wrap(head) {
        let twice = format!("packed with {} once more", wrap.name());
        return Some(Fault::new(twice).hint("unpack it once"));
    }
    let other = OTHERS.iter().find(|(start, ..)| {
        // Letters alone may well start a text.
        let tells = format != Format::Text || !start.is_ascii() || head.contains(&0);
        head.starts_with(start) && tells
    });
    if let Some((_, what, hint)) = other {
        return Some(Fault::new(format!("the file is {what}")).hint(*hint));
    }
    if is_page(head, format) {
        let page = "a web page (HTML or XML), not the format of its extension";
        return Some(
            Fault::new(page)
                .hint("download the file again: the server may have returned an error page"),
        );
    }
    None
}

/// Whether a file of records is in truth a page of the web. A text may be one.
fn is_page(head: &[u8], format: Format) -> bool {
    let text = head.strip_prefix(BOM).unwrap_or(head).trim_ascii_start();
    let starts = |start: &[u8]| {
        let head = text.get(..start.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(start))
    };
    match format {
        Format::Text => false,
        Format::Lines | Format::Json => starts(b"<"),
        _ => starts(b"<!doctype html") || starts(b"<html") || starts(b"<?xml"),
    }
}

/// The name of an encoding of more than one byte for each letter.
fn wide(head: &[u8]) -> Option<&'static str> {
    Some(match head {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => "UTF-32",
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "UTF-16",
        [a, 0, b, 0, c, 0, ..] if [a, b, c].iter().all(|&&byte| byte != 0) => "UTF-16LE",
        [0, a, 0, b, 0, c, ..] if [a, b, c].iter().all(|&&byte| byte != 0) => "UTF-16BE",
        _ => return None,
    })
}
