//! What values of Parquet files are in JSON, and how lists and structs come together.

use parquet::file::properties::WriterVersion;
use serde_json::json;

use super::make::{Values, parquet, properties, texts};
use super::parquet::{column, conversations, rows};

/// What has no form in JSON.
const NULL: Option<bool> = None;

/// Holds values of types to what they should be in JSON.
macro_rules! hold {
    ($($schema:literal, $values:expr => $json:expr;)*) => {
        $(
            let file = column(concat!("required ", $schema, ";"), $values.all());
            assert_eq!(rows(&file)[0]["a"], json!($json), "{}", $schema);
        )*
    };
}

#[test]
fn numbers_and_texts() {
    hold! {
        "boolean a", Values::Bool(vec![true]) => true;
        "int32 a", Values::I32(vec![-5]) => -5;
        "int32 a (INTEGER(32, false))", Values::I32(vec![-5]) => 4_294_967_291_u32;
        "int64 a", Values::I64(vec![i64::MIN]) => i64::MIN;
        "int64 a (UINT_64)", Values::I64(vec![-1]) => u64::MAX;
        "float a", Values::F32(vec![0.5]) => 0.5;
        "double a", Values::F64(vec![1e300]) => 1e300;
        "double a", Values::F64(vec![f64::NAN]) => NULL;
        "double a", Values::F64(vec![f64::INFINITY]) => NULL;
        "int32 a (DECIMAL(9, 2))", Values::I32(vec![-5]) => "-0.05";
        "int64 a (DECIMAL(18, 0))", Values::I64(vec![123]) => "123";
        "binary a (DECIMAL(30, 3))", Values::Bytes(vec![vec![0xff, 0x00]]) => "-0.256";
        "binary a (DECIMAL(60, 3))", Values::Bytes(vec![vec![1; 20]]) => NULL;
        "binary a (UTF8)", texts(&["\u{e9}"]) => "\u{e9}";
        "binary a (STRING)", texts(&["x"]) => "x";
        "binary a (ENUM)", texts(&["x"]) => "x";
        "binary a (JSON)", texts(&["{}"]) => "{}";
        "binary a", texts(&["bytes that are text"]) => "bytes that are text";
        "binary a", Values::Bytes(vec![vec![0xff, 0xd8]]) => NULL;
        "fixed_len_byte_array(2) a", Values::Fixed(vec![b"ab".to_vec()]) => "ab";
        "fixed_len_byte_array(16) a (UUID)", Values::Fixed(vec![vec![65; 16]]) => NULL;
    }
}

#[test]
fn dates_and_times() {
    hold! {
        "int32 a (DATE)", Values::I32(vec![19_800]) => "2024-03-18";
        "int32 a (DATE)", Values::I32(vec![-1]) => "1969-12-31";
        "int32 a (DATE)", Values::I32(vec![i32::MAX]) => i32::MAX;
        "int64 a (TIMESTAMP(MILLIS, true))", Values::I64(vec![1_700_000_000_123]) => "2023-11-14T22:13:20.123Z";
        "int64 a (TIMESTAMP(MICROS, false))", Values::I64(vec![-1]) => "1969-12-31 23:59:59.999999";
        "int64 a (TIMESTAMP(NANOS, true))", Values::I64(vec![i64::MAX]) => "2262-04-11T23:47:16.854775807Z";
        "int64 a (TIMESTAMP(MILLIS, true))", Values::I64(vec![i64::MAX]) => i64::MAX;
        "int32 a (TIME(MILLIS, true))", Values::I32(vec![3_723_004]) => "01:02:03.004";
        "int96 a", Values::I96(vec![[1_000_000_000, 0, 2_440_589]]) => "1970-01-02T00:00:01Z";
    }
}

#[test]
fn lists_of_all_kinds() {
    assert_eq!(
        rows(&conversations()),
        [
            json!({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}], "id": "1"}),
            json!({"messages": [], "id": "2"}),
            json!({"messages": null, "id": null}),
            json!({"messages": [null], "id": "4"}),
            // A field that is null within a list of groups is one that the row does not have.
            json!({"messages": [{"role": "user"}], "id": null}),
        ]
    );
    let old = column(
        "optional group a (LIST) { repeated binary array (UTF8); }",
        texts(&["x", "y", "z"]).nested(&[2, 2, 1, 2], &[0, 1, 0, 0]),
    );
    assert_eq!(
        rows(&old),
        [
            json!({"a": ["x", "y"]}),
            json!({"a": []}),
            json!({"a": ["z"]})
        ]
    );
    let bare = column(
        "repeated int32 a;",
        Values::I32(vec![1, 2]).nested(&[1, 1, 0], &[0, 1, 0]),
    );
    assert_eq!(rows(&bare), [json!({"a": [1, 2]}), json!({"a": []})]);
    let lists = "optional group a (LIST) { repeated group list { optional group element (LIST) {
        repeated group list { optional int32 element; } } } }";
    let lists = column(
        lists,
        Values::I32(vec![1, 2, 3]).nested(&[5, 5, 4, 5, 3, 1], &[0, 2, 2, 1, 1, 0]),
    );
    assert_eq!(
        rows(&lists),
        [json!({"a": [[1, 2, null], [3], []]}), json!({"a": []})]
    );
}

#[test]
fn maps_and_structs() {
    let schema = "required group a (MAP) { repeated group key_value { required binary key (UTF8); optional int32 value; } }";
    let map = parquet(
        schema,
        properties(),
        &[vec![
            texts(&["x", "y"]).nested(&[1, 1, 0], &[0, 1, 0]),
            Values::I32(vec![7]).nested(&[2, 1, 0], &[0, 1, 0]),
        ]],
    );
    assert_eq!(
        rows(&map),
        [json!({"a": {"x": 7, "y": null}}), json!({"a": {}})]
    );
    let within = column(
        "optional group a { optional group b { required int32 c; } }",
        Values::I32(vec![1]).some(&[2, 1, 0]),
    );
    assert_eq!(
        rows(&within),
        [
            json!({"a": {"b": {"c": 1}}}),
            json!({"a": {}}),
            json!({"a": null})
        ]
    );
}

#[test]
fn lists_over_many_pages() {
    let many: Vec<i32> = (0..100_000).collect();
    let repetition: Vec<i16> = (0..100_000).map(|at| i16::from(at % 50_000 != 0)).collect();
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        let properties = properties()
            .set_writer_version(version)
            .set_dictionary_enabled(false)
            .set_data_page_size_limit(1000)
            .set_write_batch_size(100);
        let data = Values::I32(many.clone()).nested(&vec![1; 100_000], &repetition);
        let rows = rows(&parquet("repeated int32 a;", properties, &[vec![data]]));
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1]["a"], json!(many[50_000..]));
    }
}
