//! Parquet files that say what is not so.

use super::Want::{Bad, Fine};
use super::raw::{self, Page, Struct, plain, run};
use super::{check, make};

/// What is said of a schema that is wrong, and of a page that is too large.
const SCHEMA: &str = "a.parquet: its schema is damaged";
const LARGE: &[&str] = &["row 1: column text: a page of", "write_batch_size"];

/// A file of a footer alone.
fn of_footer(footer: Struct) -> Vec<u8> {
    raw::file(b"", footer)
}

#[test]
fn footers_that_lie() {
    let text = || raw::text("text");
    let schema = |elements: &[Struct]| of_footer(raw::footer(elements, &[]));
    let chunk = |start, bytes| {
        let chunk = raw::chunk(6, 0, start, bytes);
        of_footer(raw::footer(
            &[raw::root(1), text()],
            &[raw::group(1, &[chunk])],
        ))
    };
    let mut deep = vec![raw::root(1)];
    deep.extend((0..10_000).map(|_| raw::element("a", 1).int(5, 1)));
    let mut wide = vec![raw::root(20_000)];
    wide.extend((0..20_000).map(|at| raw::text(&at.to_string())));
    let said = |count| {
        Struct::default()
            .int(1, 1)
            .list_of(2, count, &[raw::root(1), text()])
    };
    let groups = |count: u64| {
        let footer = Struct::default().int(1, 1).list(2, &[raw::root(1), text()]);
        of_footer(footer.list_of(4, count, &vec![Struct::default(); 300_000]))
    };
    let far = raw::chunk(6, 0, 4, 0).bytes(1, b"other.parquet");
    check(cases! { "a.parquet";
        "no footer", of_footer(Struct::default()) => Bad(0, &[SCHEMA]);
        "no columns", schema(&[raw::root(0)]) => Bad(0, &["it has no columns"]);
        "no columns, many rows", of_footer(raw::footer(&[raw::root(0)], &[raw::group(1 << 40, &[])]))
            => Bad(0, &["it has no columns"]);
        "too few elements", schema(&[raw::root(2), text()]) => Bad(0, &[SCHEMA]);
        "too many elements", schema(&[raw::root(1), text(), text()]) => Bad(0, &[SCHEMA]);
        "two billion children", schema(&[raw::root(i64::from(i32::MAX)), text()]) => Bad(0, &[SCHEMA]);
        "children below 0", schema(&[raw::root(-1), text()]) => Bad(0, &["its footer is damaged"]);
        "very deep", schema(&deep) => Bad(0, &["more than 64 structs or lists within each other"]);
        "very wide", schema(&wide) => Bad(0, &["more than 16384 columns"]);
        "four billion elements", of_footer(said(1 << 32)) => Bad(0, &["its footer is damaged"]);
        "two to the 63 elements", of_footer(said(1 << 63)) => Bad(0, &["its footer is damaged"]);
        "many groups", groups(300_000) => Bad(0, &["more than 262144 groups of rows"]);
        "empty groups", groups(200_000) => Bad(0, &["there are no examples in it"]);
        "a type that is none", schema(&[raw::root(1), raw::element("a", 0).int(1, 9)]) => Bad(0, &[SCHEMA]);
        "no type", schema(&[raw::root(1), raw::element("a", 0)]) => Bad(0, &[SCHEMA]);
        "no repetition", schema(&[raw::root(1), Struct::default().int(1, 6).bytes(4, b"a")])
            => Bad(0, &[SCHEMA]);
        "bytes of length 0", schema(&[raw::root(1), raw::element("a", 0).int(1, 7).int(2, 0)])
            => Bad(0, &[SCHEMA]);
        "bytes of length 2 GiB", schema(&[raw::root(1), raw::element("a", 0).int(1, 7).int(2, i64::from(i32::MAX))])
            => Bad(0, &[SCHEMA]);
        "two columns of one name", schema(&[raw::root(2), text(), text()])
            => Bad(0, &["two columns are named \"text\""]);
        "values before the start", chunk(0, 4) => Bad(0, &["values lie outside the file"]);
        "values below 0", chunk(-5, 4) => Bad(0, &["values lie outside the file"]);
        "values after the end", chunk(4, 1 << 40) => Bad(0, &["values lie outside the file"]);
        "values of all bytes", chunk(4, i64::MAX) => Bad(0, &["values lie outside the file"]);
        "values in the footer", chunk(5, 2) => Bad(0, &["values lie outside the file"]);
        "a group without columns", of_footer(raw::footer(&[raw::root(1), text()], &[raw::group(1, &[])]))
            => Bad(0, &["row 1: a group of rows has 0 columns, the schema has 1"]);
        "rows below 0", of_footer(raw::footer(&[raw::root(1), text()], &[raw::group(-1, &[])]))
            => Bad(0, &["its footer is damaged"]);
        "another file", of_footer(raw::footer(&[raw::root(1), text()], &[raw::group(1, &[far])]))
            => Bad(0, &["its values are in another file"]);
        "encrypted columns", of_footer(raw::footer(&[raw::root(1), text()], &[raw::group(1, &[raw::chunk(6, 0, 4, 0).inner(8, Struct::default())])]))
            => Bad(0, &["the file is encrypted"]);
        "encrypted", of_footer(raw::footer(&[raw::root(1), text()], &[]).inner(8, Struct::default()))
            => Bad(0, &["the file is encrypted"]);
        "another type", raw::column(&[raw::root(1), text()], 1, 0, 1, &[Page::data(1, plain(b"a"))])
            => Bad(0, &["row 1: column text: its values are not of the type"]);
    });
}

#[test]
fn pages_that_lie() {
    let page = || Page::data(1, plain(b"a"));
    let said = |page: Page| raw::texts(0, 1, &[page]);
    let by_number =
        |values| Page::data(values, [vec![1], run(0, 8)[4..].to_vec()].concat()).encoded(8);
    let gzip = |bytes: usize, said: i64| {
        let packed = make::gz([&plain(b"a")[..], &vec![0; bytes]].concat());
        raw::texts(
            2,
            1,
            &[Page {
                unpacked: said,
                ..Page::data(1, packed)
            }],
        )
    };
    check(cases! { "a.parquet";
        "as it should be", said(page()) => Fine(1);
        "an empty page before it", raw::texts(0, 1, &[Page::data(0, ""), page()]) => Fine(1);
        "another kind of page before it", raw::texts(0, 1, &[Page { kind: 1, ..page() }, page()]) => Fine(1);
        "a dictionary", raw::texts(0, 3, &[Page::dictionary(1, plain(b"a")), by_number(3)]) => Fine(3);
        "no page", raw::texts(0, 1, &[]) => Bad(0, &["row 1: column text: it ends before the last row"]);
        "too few rows", raw::texts(0, 5, &[page()]) => Bad(1, &["row 2: column text: it ends"]);
        "many rows", raw::texts(0, i64::MAX, &[]) => Bad(0, &["it ends before the last row"]);
        "two gigabytes", said(Page { packed: i64::from(i32::MAX), ..page() })
            => Bad(0, &["the header of a page is damaged"]);
        "two gigabytes unpacked", raw::texts(6, 1, &[Page { unpacked: i64::from(i32::MAX), ..page() }])
            => Bad(0, LARGE);
        "17 MiB unpacked", raw::texts(1, 1, &[Page { unpacked: 17 << 20, ..page() }]) => Bad(0, LARGE);
        "below 0", said(Page { packed: -1, ..page() }) => Bad(0, &["the header of a page is damaged"]);
        "unpacked below 0", said(Page { unpacked: -1, ..page() }) => Bad(0, &["the header of a page is damaged"]);
        "values below 0", said(Page { values: -1, ..page() }) => Bad(0, &["the header of a page is damaged"]);
        "16 MiB that are not there", raw::texts(1, 1, &[Page { unpacked: 16 << 20, ..page() }])
            => Bad(0, &["SNAPPY is damaged"]);
        "another number of bytes", said(Page { unpacked: 9, ..page() })
            => Bad(0, &["is damaged: 5 bytes instead of 9"]);
        "an unknown encoding", said(page().encoded(77)) => Bad(0, &["encoded in an unknown way, number 77"]);
        "an encoding of other types", said(page().encoded(5)) => Bad(0, &["column text"]);
        "no dictionary", raw::texts(0, 1, &[by_number(1)])
            => Bad(0, &["column text: a dictionary is missing"]);
        "two dictionaries", raw::texts(0, 1, &[Page::dictionary(1, plain(b"a")), Page::dictionary(1, plain(b"a"))])
            => Bad(0, &["a column has two dictionaries"]);
        "a dictionary of billions", raw::texts(0, 1, &[Page::dictionary(1 << 30, plain(b"a")), by_number(1)])
            => Bad(0, &["a dictionary of 1073741824 values; the most is 524288"]);
        "a dictionary with less", raw::texts(0, 1, &[Page::dictionary(9, plain(b"a")), by_number(1)])
            => Bad(0, &["column text"]);
        "a number that is in no dictionary", raw::texts(0, 1, &[Page::dictionary(1, plain(b"a")), Page::data(1, [vec![1], run(1, 8)[4..].to_vec()].concat()).encoded(8)])
            => Bad(0, &["row 1: "]);
        "a text beyond the page", said(Page::data(1, u32::MAX.to_le_bytes()))
            => Bad(0, &["column text: the data is damaged"]);
        "no values at all", said(Page::data(1, "")) => Bad(0, &["column text: the data is damaged"]);
        "a bomb of gzip", gzip(64 << 20, 5) => Bad(0, &["column text"]);
        "a small bomb of gzip", gzip(64 << 20, 17 << 20) => Bad(0, LARGE);
        "no gzip", raw::texts(2, 1, &[page()])
            => Bad(0, &["a page packed with GZIP is damaged", "copy the file again"]);
        "no Zstandard", raw::texts(6, 1, &[page()]) => Bad(0, &["a page packed with ZSTD is damaged"]);
        "no Snappy", raw::texts(1, 1, &[page()]) => Bad(0, &["a page packed with SNAPPY is damaged"]);
        "no LZ4", raw::texts(7, 1, &[page()]) => Bad(0, &["a page packed with LZ4_RAW is damaged"]);
        "no old LZ4", raw::texts(5, 1, &[page()]) => Bad(0, &["a page packed with LZ4 is damaged"]);
        "LZO", raw::texts(3, 1, &[page()]) => Bad(0, &["packed with LZO are not read", "compression="]);
        "Brotli", raw::texts(4, 1, &[page()]) => Bad(0, &["packed with BROTLI are not read"]);
        "an unknown codec", raw::texts(42, 1, &[page()]) => Bad(0, &["in an unknown way, number 42"]);
        "a codec below 0", raw::texts(-1, 1, &[page()]) => Bad(0, &["in an unknown way, number -1"]);
    });
}

/// A thousand times as large once they are unpacked, and one such page in each of many columns.
#[test]
fn columns_that_are_too_much_together() {
    const COLUMNS: usize = 40;
    let body = make::zst(vec![0; 16 << 20]);
    let page = Page {
        packed: body.len() as i64,
        unpacked: 16 << 20,
        ..Page::data(1, body)
    };
    let page = page.bytes();
    let of_column = |at: usize| raw::chunk(6, 6, (4 + at * page.len()) as i64, page.len() as i64);
    let chunks: Vec<Struct> = (0..COLUMNS).map(of_column).collect();
    let mut schema = vec![raw::root(COLUMNS as i64)];
    schema.extend((0..COLUMNS).map(|at| raw::text(&format!("c{at}"))));
    let footer = raw::footer(&schema, &[raw::group(1, &chunks)]);
    check(cases! { "a.parquet";
        "pages of all columns", raw::file(&page.repeat(COLUMNS), footer)
            => Bad(0, &["row 1: column c4: its columns take too much memory together", "data_page_size"]);
    });
}
