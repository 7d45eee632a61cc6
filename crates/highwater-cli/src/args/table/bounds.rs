//! What the value of a setting may be.

use std::fmt;
use std::ops::{Range, RangeFrom, RangeInclusive};

/// What a value may be, with words for it.
pub struct Bounds<T> {
    pub(super) holds: Box<dyn Fn(&T) -> bool + Send + Sync>,
    pub(super) expected: String,
}

impl<T> fmt::Debug for Bounds<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.expected)
    }
}

impl<T> Bounds<T> {
    fn new(expected: String, holds: impl Fn(&T) -> bool + Send + Sync + 'static) -> Self {
        Self {
            holds: Box::new(holds),
            expected,
        }
    }
}

macro_rules! whole {
    ($($type:ty),+) => {
        $(
            impl From<RangeInclusive<$type>> for Bounds<$type> {
                fn from(range: RangeInclusive<$type>) -> Self {
                    let expected = format!("{} to {}", range.start(), range.end());
                    Self::new(expected, move |value| range.contains(value))
                }
            }

            impl From<RangeFrom<$type>> for Bounds<$type> {
                fn from(range: RangeFrom<$type>) -> Self {
                    let expected = format!("at least {}", range.start);
                    Self::new(expected, move |value| range.contains(value))
                }
            }
        )+
    };
}

whole!(usize, u64);

impl From<RangeInclusive<f64>> for Bounds<f64> {
    fn from(range: RangeInclusive<f64>) -> Self {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        Self::new(expected, move |value| range.contains(value))
    }
}

impl From<Range<f64>> for Bounds<f64> {
    fn from(range: Range<f64>) -> Self {
        let expected = format!("a number from {} to below {}", range.start, range.end);
        // Kernels compute with it in `f32`, where it may round to the end.
        let rounded = range.start as f32..range.end as f32;
        Self::new(expected, move |&value| rounded.contains(&(value as f32)))
    }
}

/// What must be true of a value, and words for it.
pub fn where_true<T: 'static>(expected: &str, holds: fn(&T) -> bool) -> Bounds<T> {
    Bounds::new(expected.to_owned(), holds)
}

/// Above a number, in `f32` as well, where kernels compute with it; and not above another.
pub fn above(low: f64, most: f64) -> Bounds<f64> {
    let expected = format!("a number above {low}, at most {most}");
    Bounds::new(expected, move |&value| {
        value as f32 > low as f32 && value <= most
    })
}
