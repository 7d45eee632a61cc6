use super::*;

#[test]
fn decimals() {
    let texts = [
        (0, 2, "0.00"),
        (5, 0, "5"),
        (-5, 3, "-0.005"),
        (12_345, 2, "123.45"),
        (-12_345, 5, "-0.12345"),
        (i128::MIN, 38, "-1.70141183460469231731687303715884105728"),
    ];
    for (value, digits, text) in texts {
        assert_eq!(decimal_text(value, digits), text);
    }
    assert_eq!(integer(&[0xff]), Some(-1));
    assert_eq!(integer(&[0x01, 0x00]), Some(256));
    assert_eq!(integer(&[0x80; 16]), Some(i128::from_be_bytes([0x80; 16])));
    assert_eq!(integer(&[0; 17]), None);
    assert_eq!(integer(&[]), None);
}

#[test]
fn times_that_no_calendar_has_stay_numbers() {
    for unit in [1_000, 1_000_000, 1_000_000_000] {
        for value in [i64::MIN, -1, 0, i64::MAX] {
            for meaning in [Meaning::Time(unit), Meaning::Timestamp(unit, true)] {
                let found = of_i64(value, meaning);
                assert!(found.is_string() || found == value, "{value} {meaning:?}");
            }
        }
    }
    assert_eq!(of_i64(i64::MAX, Meaning::Date), i64::MAX);
    assert_eq!(of_int96([u32::MAX; 3]), of_int96([u32::MAX; 3]));
}

#[test]
fn meanings_need_their_types() {
    let element = |converted| Element {
        converted: Some(converted),
        ..Element::default()
    };
    assert_eq!(meaning(&element(0), Physical::BYTE_ARRAY), Meaning::Text);
    assert_eq!(meaning(&element(0), Physical::INT32), Meaning::Plain);
    assert_eq!(meaning(&element(6), Physical::INT32), Meaning::Date);
    assert_eq!(meaning(&element(6), Physical::INT64), Meaning::Plain);
    assert_eq!(meaning(&element(10), Physical::INT32), Meaning::Plain);
    let scaled = |scale| Element {
        scale,
        ..element(5)
    };
    assert_eq!(
        meaning(&scaled(3), Physical::BYTE_ARRAY),
        Meaning::Decimal(3)
    );
    for scale in [-1, 39, i64::MAX] {
        assert_eq!(
            meaning(&scaled(scale), Physical::BYTE_ARRAY),
            Meaning::Other
        );
    }
}
