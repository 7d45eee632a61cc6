//! Tables.

use super::Want::{Bad, Fine};
use super::{check, make};

const TABLE: &str = "text,label\na,1\nb,2\n";

#[test]
fn tables_that_are_read() {
    let text = format!("\"{}\"", "x, \"\"y\"\"\n".repeat(100_000));
    check(cases! { "a.csv";
        "two rows", TABLE => Fine(2);
        "no line break at the end", TABLE.trim_end() => Fine(2);
        "CRLF", TABLE.replace('\n', "\r\n") => Fine(2);
        "BOM", format!("\u{feff}{TABLE}") => Fine(2);
        "quotes", "\"text\",\"label\"\n\"a, b\",\"say \"\"x\"\"\"\n" => Fine(1);
        "line breaks in quotes", "text,label\n\"a\n\nb\r\nc\",1\nd,2\n" => Fine(2);
        "blank lines", "text,label\n\n\na,1\n\n" => Fine(1);
        "blank lines and CRLF", "text,label\r\n\r\na,1\r\n\r\n" => Fine(1);
        "blank lines of one column", "text\r\n\r\na\r\n" => Fine(1);
        "empty fields", "text,label\n,\na,\n" => Fine(2);
        "an empty text", "text\n\"\"\n\"a\"\n" => Fine(2);
        "one column", "text\nhello\nworld\n" => Fine(2);
        "a quote within a field", "text,label\n5\" wide,1\n" => Fine(1);
        "ends in a quoted line break", "text\n\"a\n\"\n" => Fine(1);
        "ends in a quote", "text\n\"a\n\"" => Fine(1);
        "ends in a doubled quote", "text\n\"a\"\"\"" => Fine(1);
        "a long text", format!("text,label\n{text},1\n") => Fine(1);
    });
    check(cases! { "a.tsv";
        "tabs", TABLE.replace(',', "\t") => Fine(2);
        "commas between tabs", "text\tlabel\na, b, c\t1\n" => Fine(1);
    });
    check(cases! { "a.csv.gz";
        "packed", make::gz(TABLE) => Fine(2);
    });
    check(cases! { "a.tsv.zst";
        "packed otherwise", make::zst(TABLE.replace(',', "\t")) => Fine(2);
    });
    check(cases! { "A.CSV";
        "capital letters", TABLE => Fine(2);
    });
}

#[test]
fn tables_with_wrong_headers() {
    let many: Vec<String> = (0..20_000).map(|at| format!("c{at}")).collect();
    check(cases! { "a.csv";
        "nothing", "" => Bad(0, &["a.csv: the file is empty"]);
        "a header alone", "text,label\n" => Bad(0, &["a.csv: there are no examples in it"]);
        "blank lines alone", "\n\n\n" => Bad(0, &["there are no examples in it"]);
        "a BOM alone", "\u{feff}" => Bad(0, &["there are no examples in it"]);
        "a column twice", "text,label,text\na,1,b\n"
            => Bad(0, &["a.csv, line 1: two columns are named \"text\""]);
        "a nameless column", ",text\n0,a\n" => Bad(0, &["line 1: column 1 has no name", "index=False"]);
        "a comma too many", "text,label,\na,1,\n" => Bad(0, &["column 3 has no name"]);
        "blank lines before it", "\n\ntext,\na,1\n" => Bad(0, &["line 3: column 2 has no name"]);
        "semicolons", "text;label\na;1\n"
            => Bad(0, &["line 1: one column, named \"text;label\"", "';'", ".tsv"]);
        "tabs", "text\tlabel\na\t1\n" => Bad(0, &["one column", ".tsv"]);
        "carriage returns only", TABLE.replace('\n', "\r")
            => Bad(0, &["line 1: lines end in carriage returns only", "tr '\\r' '\\n'"]);
        "bars", "text|label\na|1\n" => Bad(0, &["one column", "'|'"]);
        "not UTF-8", b"t\xe9xt,label\na,1\n" => Bad(0, &["line 1: field 1: byte 2 (0xe9) is not UTF-8"]);
        "many columns", many.join(",") => Bad(0, &["more than 16384 columns"]);
        "a web page", "<!doctype html>\n" => Bad(0, &["a web page"]);
        "a spreadsheet", b"PK\x03\x04\x14\0\x06\0" => Bad(0, &["a spreadsheet", "save the sheet as CSV"]);
        "UTF-16", b"\xff\xfet\0e\0x\0t\0\n\0" => Bad(0, &["UTF-16"]);
    });
}

#[test]
fn tables_with_wrong_rows() {
    let open = format!(
        "text,label\na,1\n\"b,2\n{}",
        "some text,3\n".repeat(1_000_000)
    );
    let long = format!("text,label\na,1\n{},2\n", "x".repeat(9 << 20));
    let wide = format!("text,label\na,1\n{}\n", ",".repeat(2_000_000));
    check(cases! { "a.csv";
        "too few fields", "text,label\na,1\nb\n"
            => Bad(1, &["a.csv, line 3: 1 field, and the header has 2 columns", "quote fields"]);
        "too many fields", "text,label\na, b,1\n"
            => Bad(0, &["line 2: 3 fields, and the header has 2 columns"]);
        "one column, two fields", "text\na,b\n" => Bad(0, &["2 fields, and the header has 1 column;"]);
        "after blank lines", "text,label\n\n\na\n" => Bad(0, &["line 4: 1 field"]);
        "after line breaks", "text,label\n\"a\n\nb\",1\nc\n" => Bad(1, &["line 5: 1 field"]);
        "CRLF", "text,label\r\na,1\r\nb\r\n" => Bad(1, &["line 3: 1 field"]);
        "at the end", "text,label\na,1\nb" => Bad(1, &["line 3: 1 field"]);
        "not UTF-8", b"text,label\na,1\nb,\xff\n"
            => Bad(1, &["line 3: field 2: byte 1 (0xff) is not UTF-8", "iconv"]);
        "a quote left open", "text,label\na,1\n\"b,2\nc,3\n"
            => Bad(1, &["line 3: a double quote is opened in this row and never closed", "written twice"]);
        "a quote left open at the end", "text,label\na,1\nb,\""
            => Bad(1, &["line 3: a double quote is opened"]);
        "a quote left open in the header", "\"text,label\na,1\n"
            => Bad(0, &["line 1: a double quote is opened"]);
        "a quote left open for long", open
            => Bad(1, &["line 3: the row that begins here is longer than 8 MiB", "a double quote may have been left open"]);
        "a long row", long => Bad(1, &["line 3: the row that begins here is longer than 8 MiB"]);
        "a wide row", wide => Bad(1, &["line 3: the row that begins here has more than 1048576 separators"]);
        "a web page from line 2 on", "text,label\n<html>\n" => Bad(0, &["line 2: 1 field"]);
    });
    check(cases! { "a.tsv";
        "tabs missing", "text\tlabel\na,1\n" => Bad(0, &["a.tsv, line 2: 1 field"]);
    });
}
