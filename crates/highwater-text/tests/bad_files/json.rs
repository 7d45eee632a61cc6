//! JSON lines.

use super::Want::{Bad, Fine};
use super::{check, make};

const TWO: &str = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";

#[test]
fn lines_that_are_read() {
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!("{{\"a\": {open}{close}}}\n")
    };
    let long = |bytes: usize| format!("{{\"text\": \"{}\"}}\n", "x".repeat(bytes - 14));
    check(cases! { "a.jsonl";
        "two lines", TWO => Fine(2);
        "no line break at the end", TWO.trim_end() => Fine(2);
        "CRLF", &TWO.replace('\n', "\r\n") => Fine(2);
        "BOM", &format!("\u{feff}{TWO}") => Fine(2);
        "BOM and CRLF", &format!("\u{feff}\r\n{TWO}") => Fine(2);
        "blank lines", "\n \t\n{\"a\": 1}\n\n\r\n{\"a\": 2}\n   \n" => Fine(2);
        "blanks around", "  {\"a\": 1}  \n\t{\"a\": 2}\r\n" => Fine(2);
        "an empty object", "{}\n" => Fine(1);
        "a name twice", "{\"a\": 1, \"a\": 2}\n"
            => Bad(0, &["two values of an object are named \"a\"", "keep one"]);
        "an empty name", "{\"\": 1}\n" => Fine(1);
        "large numbers", "{\"a\": 123456789012345678901234567890, \"b\": 1e300}\n" => Fine(1);
        "escapes", r#"{"a": "\u00e9\ud83d\ude00\n\t\"\\\/"}"# => Fine(1);
        "line separators of Unicode", "{\"a\": \"x\u{2028}y\u{2029}\u{85}z\"}\n" => Fine(1);
        "a web page within", "{\"text\": \"<html></html>\"}\n" => Fine(1);
        "126 levels", &nested(126) => Fine(1);
        "the longest line", &long(8 << 20) => Fine(1);
        "a line of a mebibyte", &long(1 << 20) => Fine(1);
        "gzip without saying so", make::gz(TWO) => Fine(2);
        "Zstandard without saying so", make::zst(TWO) => Fine(2);
    });
    check(cases! { "A.JSONL";
        "capital letters", TWO => Fine(2);
    });
    check(cases! { "a.ndjson";
        "ndjson", TWO => Fine(2);
    });
    check(cases! { "a.b.c.jsonl";
        "dots in the name", TWO => Fine(2);
    });
}

/// The second line is this one.
fn second(line: impl AsRef<[u8]>) -> Vec<u8> {
    [
        b"{\"text\": \"a\"}\n",
        line.as_ref(),
        b"\n{\"text\": \"c\"}\n",
    ]
    .concat()
}

#[test]
fn lines_that_are_no_objects() {
    const EXPECTED: &str = "a.jsonl, line 2: expected an object like {\"messages\": [...]}";
    check(cases! { "a.jsonl";
        "a list", second("[{\"a\": 1}]") => Bad(1, &[EXPECTED, "found a list", "give it a name"]);
        "an empty list", second("[]") => Bad(1, &[EXPECTED, "found a list"]);
        "a string", second("\"hello\"") => Bad(1, &[EXPECTED, "found a string"]);
        "a number", second("12.5") => Bad(1, &[EXPECTED, "found a number"]);
        "a negative number", second("-1") => Bad(1, &[EXPECTED, "found a number"]);
        "null", second("null") => Bad(1, &[EXPECTED, "found null"]);
        "true", second("true") => Bad(1, &[EXPECTED, "found a truth value"]);
        "JSON twice", second(r#""{\"a\": 1}""#) => Bad(1, &[EXPECTED, "was encoded twice"]);
        "a list over lines", "[\n{\"a\": 1},\n{\"a\": 2}\n]"
            => Bad(0, &["line 1, column 2: invalid JSON: it ends in the middle", "one list end in .json"]);
        "an object over lines", "{\n  \"a\": 1\n}\n"
            => Bad(0, &["line 1, column 2: invalid JSON: it ends in the middle", "each line must be a complete \
            object"]);
    });
}

#[test]
fn lines_that_are_no_json() {
    check(cases! { "a.jsonl";
        "a value is missing", second("{\"a\": }")
            => Bad(1, &["line 2, column 7: invalid JSON: expected value"]);
        "a colon is missing", second("{\"a\" 1}")
            => Bad(1, &["line 2, column 6: invalid JSON: expected `:`"]);
        "NaN", second("{\"a\": NaN}")
            => Bad(1, &["line 2, column 7: invalid JSON: NaN is not a number", "null", "allow_nan"]);
        "nan", second("{\"a\": nan}") => Bad(1, &["nan is not a number"]);
        "Infinity", second("{\"a\": Infinity}") => Bad(1, &["line 2, column 7", "Infinity is not a number"]);
        "-Infinity", second("{\"a\": -Infinity}") => Bad(1, &["-Infinity is not a number in JSON"]);
        "None", second("{\"a\": None}") => Bad(1, &["None is of Python", "json.dumps"]);
        "True", second("{\"a\": [True]}") => Bad(1, &["True is of Python"]);
        "single quotes", second("{'a': 1}")
            => Bad(1, &["line 2, column 2: invalid JSON: a single quote", "json.dumps"]);
        "a single quote in a value", second("{\"a\": 'b'}")
            => Bad(1, &["line 2, column 7", "a single quote"]);
        "names without quotes", second("{a: 1}") => Bad(1, &["line 2, column 2", "key must be a string"]);
        "a comma too many", second("{\"a\": 1,}")
            => Bad(1, &["line 2, column 9", "a comma with nothing after it"]);
        "a comma too many in a list", second("{\"a\": [1,]}") => Bad(1, &["a comma with nothing after it"]);
        "a comma after the object", second("{\"a\": 1},")
            => Bad(1, &["line 2, column 9", "a comma after the object", ".json"]);
        "two on a line", second("{\"a\": 1}{\"a\": 2}")
            => Bad(1, &["column 9", "something follows", "one object on each line"]);
        "something after", second("{\"a\": 1} x") => Bad(1, &["something follows the object"]);
        "a comment", second("{\"a\": 1} // x") => Bad(1, &["something follows the object"]);
        "a comment alone", second("// x") => Bad(1, &["JSON has no comments"]);
        "a comment of Python", second("# x") => Bad(1, &["JSON has no comments"]);
        "a tab in a string", second("{\"a\": \"x\ty\"}") => Bad(1, &["control character", "\\n and \\t"]);
        "a line break in a string", second("{\"a\": \"x\ny\"}")
            => Bad(1, &["line 2, column 9", "ends in the middle"]);
        "half a character", second(r#"{"a": "\ud83d"}"#) => Bad(1, &["half of a character", "'replace'"]);
        "an unknown escape", second(r#"{"a": "\x"}"#) => Bad(1, &["invalid escape"]);
        "too large a number", second("{\"a\": 1e999}") => Bad(1, &["number out of range"]);
        "a number that starts with 0", second("{\"a\": 01}") => Bad(1, &["invalid number"]);
        "the wrong bracket", second("{\"a\": [1}") => Bad(1, &["line 2, column 9"]);
        "a bracket too many", second("{\"a\": 1}]") => Bad(1, &["something follows"]);
        "letters", second("hello world") => Bad(1, &["line 2, column 1: invalid JSON: expected value"]);
        "a quote alone", second("\"") => Bad(1, &["ends in the middle"]);
        "not UTF-8", second(b"{\"a\": \"caf\xe9\"}")
            => Bad(1, &["line 2, column 11: byte 0xe9 is not UTF-8", "iconv"]);
        "not UTF-8 outside strings", second(b"{\"a\": \xff}")
            => Bad(1, &["line 2, column 7: byte 0xff is not UTF-8"]);
        "carriage returns only", second("{\"a\": 1}\r{\"a\": 2}\r")
            => Bad(1, &["something follows the object"]);
        "the end is missing", "{\"a\": \"hello"
            => Bad(0, &["line 1, column 13: invalid JSON: it ends in the middle"]);
        "a single quote on the first line", "{'messages': []}" => Bad(0, &["line 1, column 2"]);
    });
}

#[test]
fn lines_that_are_too_much() {
    let object = |inner: &str, count: usize| {
        let all = vec![inner; count].join(",");
        format!("{{\"a\": [{all}]}}")
    };
    let deep = |depth: usize| format!("{{\"a\": {}", "[".repeat(depth));
    let long = format!("{{\"text\": \"{}\"}}", "x".repeat(8 << 20));
    let names: Vec<String> = (0..140_000).map(|at| format!("\"{at}\":0")).collect();
    check(cases! { "a.jsonl";
        "too long", second(&long) => Bad(1, &["line 2: the line is longer than 8 MiB", "cut longer texts"]);
        "too long without an end", second("x".repeat(20 << 20)) => Bad(1, &["line 2: the line is longer"]);
        "too deep", second(object(&format!("{}{}", "[".repeat(200), "]".repeat(200)), 1))
            => Bad(1, &["more than 127 levels"]);
        "very deep", second(deep(1_000_000)) => Bad(1, &["more than 127 levels"]);
        "very deep objects", second("{\"a\":".repeat(500_000)) => Bad(1, &["more than 127 levels"]);
        "a long list", second(object("0", 131_073))
            => Bad(1, &["line 2: a list or object of more than 131072"]);
        "many lists", second(object("[]", 100_000))
            => Bad(1, &["line 2: its lists and objects take more than 32 MiB"]);
        "many objects", second(object("{\"\":0}", 90_000)) => Bad(1, &["take more than 32 MiB"]);
        "many names", second(format!("{{{}}}", names.join(","))) => Bad(1, &["more than 131072 values"]);
    });
    check(cases! { "a.jsonl";
        "the longest list", object("0", 131_072) => Fine(1);
        "three long lists", {let list = vec!["12345"; 131_072].join(","); format!("{{\"input_ids\":[{list}],\"labels\":[{list}],\"mask\":[{list}]}}")}
            => Fine(1);
    });
}

#[test]
fn lines_that_are_something_else() {
    let wide = |start: &[u8], big: bool, text: &str| {
        let units = text.encode_utf16();
        let bytes = units.flat_map(|unit| {
            if big {
                unit.to_be_bytes()
            } else {
                unit.to_le_bytes()
            }
        });
        [start, &bytes.collect::<Vec<_>>()].concat()
    };
    let lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 12345\n";
    let late = format!("{{\"a\": \"{}\0\"}}", "x".repeat(2000));
    check(cases! { "a.jsonl";
        "nothing", "" => Bad(0, &["a.jsonl: the file is empty", "write it again"]);
        "blank lines alone", "\n\n  \n" => Bad(0, &["a.jsonl: there are no examples in it"]);
        "a BOM alone", "\u{feff}" => Bad(0, &["there are no examples in it"]);
        "Git LFS", lfs => Bad(0, &["a.jsonl: the file is not there: Git LFS", "git lfs pull"]);
        "a web page", "<!DOCTYPE html>\n<html>"
            => Bad(0, &["a web page (HTML or XML)", "load the file again"]);
        "a web page after blanks", "\n\n  <html lang=\"en\">" => Bad(0, &["a web page"]);
        "XML", "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>"
            => Bad(0, &["a web page"]);
        "UTF-16", wide(b"\xff\xfe", false, TWO)
            => Bad(0, &["UTF-16; UTF-8 is needed", "iconv -f UTF-16 -t UTF-8"]);
        "UTF-16, high byte first", wide(b"\xfe\xff", true, TWO) => Bad(0, &["encoded in UTF-16"]);
        "UTF-16 without a mark", wide(b"", false, TWO) => Bad(0, &["iconv -f UTF-16LE"]);
        "UTF-16 without a mark, high byte first", wide(b"", true, TWO) => Bad(0, &["iconv -f UTF-16BE"]);
        "UTF-32", b"\xff\xfe\0\0{\0\0\0}\0\0\0" => Bad(0, &["UTF-32; UTF-8"]);
        "a byte 0", "{\"a\": \"\0\"}" => Bad(0, &["the file is not text: byte 8 is 0"]);
        "a byte 0 far on", late => Bad(0, &["line 1, column 2008", "control character"]);
        "Parquet", b"PAR1\x15\x04\x15\x10" => Bad(0, &["the file is a Parquet file", ".parquet"]);
        "bzip2", b"BZh91AY&SY" => Bad(0, &["packed with bzip2", "bunzip2"]);
        "xz", b"\xfd7zXZ\0\0\x04" => Bad(0, &["packed with xz", "unxz"]);
        "LZ4", b"\x04\x22\x4d\x18\x64" => Bad(0, &["packed with LZ4"]);
        "ZIP", b"PK\x03\x04\x14\0" => Bad(0, &["a ZIP archive"]);
        "7z", b"7z\xbc\xaf\x27\x1c\0" => Bad(0, &["a 7z archive"]);
        "NumPy", b"\x93NUMPY\x01\0" => Bad(0, &["an array of NumPy"]);
        "Arrow", b"ARROW1\0\0" => Bad(0, &["a file of Arrow", "Parquet"]);
        "a stream of Arrow", b"\xff\xff\xff\xff\x10\0\0\0" => Bad(0, &["a stream of Arrow", "to_parquet"]);
        "SQLite", b"SQLite format 3\0\x10" => Bad(0, &["a database of SQLite"]);
        "a PDF", b"%PDF-1.7\n" => Bad(0, &["the file is a PDF"]);
    });
}
