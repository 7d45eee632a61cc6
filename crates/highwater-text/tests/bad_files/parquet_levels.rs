//! Parquet files whose levels and lengths say what is not so.

use super::Want::{Bad, Fine};
use super::raw::{self, Page, plain, run};
use super::{check, make};

/// A column of text that comes many times: its repetition and definition levels are at most 1.
fn list(codec: i64, pages: &[Page]) -> Vec<u8> {
    let schema = [raw::root(1), raw::element("list", 2).int(1, 6).int(6, 0)];
    raw::column(&schema, 6, codec, 1, pages)
}

/// The same with a page that is not packed.
fn column(values: i64, body: Vec<u8>, encoding: i64) -> Vec<u8> {
    list(0, &[Page::data(values, body).encoded(encoding)])
}

/// The repetition levels of one row of so many values.
fn one_row(values: u64) -> Vec<u8> {
    let levels = [run(0, 1)[4..].to_vec(), run(1, values - 1)[4..].to_vec()].concat();
    [&(levels.len() as u32).to_le_bytes()[..], &levels].concat()
}

/// A list of so many nulls.
fn nulls(values: u64) -> Vec<u8> {
    let page = Page::data(values as i64, [one_row(values), run(2, values)].concat());
    let schema = [
        raw::root(1),
        raw::element("a", 1).int(5, 1).int(6, 3),
        raw::element("list", 2).int(5, 1),
        raw::element("element", 1).int(1, 6).int(6, 0),
    ];
    raw::column(&schema, 6, 0, 1, &[page])
}

/// Texts whose lengths are packed, said to be so many.
fn lengths(values: i64, count: u64, encoding: i64) -> Vec<u8> {
    let mut body = Vec::new();
    for number in [128, 4, count, 0] {
        raw::varint(&mut body, number);
    }
    raw::texts(0, 1, &[Page::data(values, body).encoded(encoding)])
}

/// A list of so many items, each of which is the one long text of a dictionary.
fn copies(count: u64) -> Vec<u8> {
    let packed = |page: Page| {
        let body = make::zst(&page.body);
        Page {
            packed: body.len() as i64,
            body,
            ..page
        }
    };
    let numbers = [vec![1], run(0, count)[4..].to_vec()].concat();
    let body = [one_row(count), run(1, count), numbers].concat();
    let dictionary = packed(Page::dictionary(1, plain(&vec![b'x'; 1 << 20])));
    let page = packed(Page::data(count as i64, body).encoded(8));
    list(6, &[dictionary, page])
}

#[test]
fn levels_that_lie() {
    check(cases! { "a.parquet";
        "a list of nulls", nulls(1 << 17) => Fine(1);
        "items of lists that are not there", column(2, [vec![4, 0, 0, 0, 2, 0, 2, 1], run(0, 2)].concat(), 0)
            => Bad(0, &["column list: it has more values than others of its list"]);
        "a list that is too long", nulls((1 << 17) + 1)
            => Bad(0, &["row 1: column a.list.element: a list or object of more than 131072"]);
        "a list of two billion", nulls(i32::MAX as u64)
            => Bad(0, &["a list or object of more than 131072 values"]);
        "no levels", column(1, vec![], 0) => Bad(0, &["column list: a page is damaged"]);
        "levels beyond the page", column(1, vec![0xff; 8], 0) => Bad(0, &["a page is damaged"]);
        "too few levels", column(9, [run(0, 2), run(0, 9)].concat(), 0) => Bad(0, &["a page is damaged"]);
        "runs of none", column(9, [run(0, 0), run(0, 9)].concat(), 0) => Bad(0, &["a page is damaged"]);
        "texts from texts in a list", column(1, [run(0, 1), run(1, 1)].concat(), 7)
            => Bad(0, &["DELTA_BYTE_ARRAY are not read"]);
        "lengths of billions", lengths(i64::from(i32::MAX), 1 << 30, 6)
            => Bad(0, &["more than 1048576 values"]);
        "lengths of more than there are", lengths(1, 1 << 40, 6) => Bad(0, &["a page is damaged"]);
        "lengths of nothing", lengths(1, 5, 6) => Bad(0, &["a page is damaged"]);
        "prefixes of billions", lengths(i64::from(i32::MAX), 1 << 30, 7)
            => Bad(0, &["more than 1048576 values"]);
        "a few copies", copies(8) => Fine(1);
        "many copies", copies(100_000) => Bad(0, &["row 1: column list: the row is longer than 8 MiB"]);
    });
}
