//! Sizes as people write and read them: `64MiB`, `1.5GiB`, `500MB`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes. Printed for people (`1.50 GiB`), stored as the plain integer.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// One binary kilobyte, 2^10 bytes.
    pub const KIB: Self = Self(1 << 10);
    /// One binary megabyte, 2^20 bytes.
    pub const MIB: Self = Self(1 << 20);
    /// One binary gigabyte, 2^30 bytes.
    pub const GIB: Self = Self(1 << 30);
    /// The largest size that is accepted from outside, 2^60 bytes.
    pub const MAX: Self = Self(1 << 60);
}

/// Text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a size: {problem}; expected a number and a unit, such as 64MiB, 1.5GiB or 500MB"
)]
pub struct SizeError {
    /// What was given, cut to a printable length.
    pub text: String,
    /// What is wrong with it.
    pub problem: SizeProblem,
}

/// Why a text is not a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeProblem {
    /// Nothing was given.
    #[error("it is empty")]
    Empty,
    /// It starts with a minus.
    #[error("it is negative")]
    Negative,
    /// It does not start with `digits` or `digits.digits`.
    #[error("it does not start with a plain decimal number")]
    Number,
    /// The unit is none of those known.
    #[error("its unit is none of B, K, KiB, KB, M, MiB, MB, G, GiB, GB, T, TiB, TB")]
    Unit,
    /// A fraction of a byte, such as `1.5` without a unit.
    #[error("a fraction needs a unit")]
    Fraction,
    /// Less than one byte.
    #[error("it is zero")]
    Zero,
    /// More than 2^60 bytes.
    #[error("it is above 2^60 bytes")]
    TooLarge,
}

/// The bytes of one unit, in any case of letters; none for an unknown unit. `K`, `M`, `G` and `T`
/// alone are binary, as in most tools.
fn unit_bytes(unit: &str) -> Option<u128> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    })
}

/// Splits off the leading digits; an error when there are none, or more than a u64 can need.
fn digits(text: &str) -> Result<(&str, &str), SizeProblem> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    match end {
        0 => Err(SizeProblem::Number),
        1..=20 => Ok(text.split_at(end)),
        _ => Err(SizeProblem::TooLarge),
    }
}

fn parse(text: &str) -> Result<u64, SizeProblem> {
    if text.is_empty() {
        return Err(SizeProblem::Empty);
    }
    if text.starts_with('-') {
        return Err(SizeProblem::Negative);
    }
    let (whole, rest) = digits(text)?;
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest)?,
        None => ("", rest),
    };
    let unit = unit_bytes(rest.strip_prefix(' ').unwrap_or(rest)).ok_or(SizeProblem::Unit)?;
    if rest == " " {
        return Err(SizeProblem::Unit);
    }
    if unit == 1 && !fraction.is_empty() {
        return Err(SizeProblem::Fraction);
    }
    // At most 20 digits each: whole x unit < 2^67 x 2^40, so nothing wraps in 128 bits.
    let whole: u128 = whole.parse().map_err(|_| SizeProblem::Number)?;
    let scale = 10_u128.pow(fraction.len() as u32);
    let fraction: u128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().map_err(|_| SizeProblem::Number)?
    };
    match whole * unit + fraction * unit / scale {
        0 => Err(SizeProblem::Zero),
        bytes if bytes > u128::from(Bytes::MAX.0) => Err(SizeProblem::TooLarge),
        bytes => Ok(bytes as u64),
    }
}

impl FromStr for Bytes {
    type Err = SizeError;

    /// Reads a size: digits, perhaps `.digits`, perhaps one space, a unit (bytes without one). A
    /// fraction of a byte is cut off.
    ///
    /// # Errors
    /// [`SizeError`] for anything else, for zero and for more than 2^60 bytes.
    fn from_str(text: &str) -> Result<Self, SizeError> {
        parse(text).map(Self).map_err(|problem| SizeError {
            text: text.chars().take(40).collect(),
            problem,
        })
    }
}

/// How a number that has no short form is rounded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rounding {
    Nearest,
    Up,
    Down,
}

/// Units with the bits and the decimals of each.
const UNITS: [(&str, u32, usize); 4] = [
    ("TiB", 40, 2),
    ("GiB", 30, 2),
    ("MiB", 20, 1),
    ("KiB", 10, 1),
];

/// A size with so many decimals more than usual.
fn rounded(bytes: u64, rounding: Rounding, more: usize) -> String {
    for (i, &(unit, shift, decimals)) in UNITS.iter().enumerate() {
        // 1023.97 MiB would print as 1024.0 MiB: what rounds to a whole unit takes that unit.
        let smaller_step = UNITS.get(i + 1).map_or(0.0, |&(_, shift, decimals)| {
            0.5 * 0.1_f64.powi(decimals as i32) * (1_u64 << shift) as f64
        });
        let one = 1_u64 << shift;
        if bytes as f64 + smaller_step < one as f64 {
            continue;
        }
        if bytes.is_multiple_of(one) {
            return format!("{} {unit}", bytes >> shift);
        }
        // In whole numbers: 2^60 bytes with nine decimals stay below 2^94.
        let decimals = decimals + more;
        let (scale, one) = (10_u128.pow(decimals as u32), u128::from(one));
        let scaled = u128::from(bytes) * scale;
        let steps = match rounding {
            // Halves to the even digit, as numbers are printed.
            Rounding::Nearest => {
                let (steps, twice) = (scaled / one, scaled % one * 2);
                steps + u128::from(twice > one || twice == one && steps % 2 == 1)
            }
            Rounding::Up => scaled.div_ceil(one),
            Rounding::Down => scaled / one,
        };
        return format!("{}.{:0decimals$} {unit}", steps / scale, steps % scale);
    }
    format!("{bytes} B")
}

/// The bytes that the last digit of a size stands for, with so many decimals more than usual.
fn last_digit(bytes: u64, more: usize) -> u64 {
    let unit = UNITS.iter().find(|&&(_, shift, _)| bytes >> shift > 0);
    unit.map_or(1, |&(_, shift, decimals)| {
        let scale = 10_u64.pow((decimals + more) as u32);
        (1_u64 << shift).div_ceil(scale)
    })
}

impl Bytes {
    /// What is needed and what there is, for a message about too little: what is needed is rounded up and
    /// what there is down, with as many decimals as it takes to tell them apart: rounding alone never does.
    #[must_use]
    pub fn needed_of(needed: Self, there: Self) -> (String, String) {
        let apart = needed.0.abs_diff(there.0);
        let digits = (0..6).find(|&more| last_digit(needed.0, more) <= apart);
        match digits.filter(|_| apart > 0) {
            Some(more) => (
                rounded(needed.0, Rounding::Up, more),
                rounded(there.0, Rounding::Down, more),
            ),
            None => (format!("{} B", needed.0), format!("{} B", there.0)),
        }
    }

    /// The size rounded up: what surely is enough.
    #[must_use]
    pub fn rounded_up(self) -> String {
        rounded(self.0, Rounding::Up, 0)
    }
}

impl fmt::Display for Bytes {
    /// Whole multiples of a unit print exactly (`64 MiB`); the rest with one decimal up to MiB and
    /// two above (`1.50 GiB`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&rounded(self.0, Rounding::Nearest, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn needs_are_rounded_up_and_budgets_down() {
        let mib = |more: u64| Bytes((40 << 20) + more);
        for (needed, there, told) in [
            (mib(1), mib(0), ("41943041 B", "41943040 B")),
            (mib(2 << 20), mib(70_000), ("42 MiB", "40.0 MiB")),
            (mib(60_000), mib(50_000), ("40.058 MiB", "40.047 MiB")),
            (mib(120_000), mib(110_000), ("40.115 MiB", "40.104 MiB")),
            (mib(5_001), mib(5_000), ("41948041 B", "41948040 B")),
            (mib(5_001), mib(5_001), ("41948041 B", "41948041 B")),
            (
                Bytes(1 << 30),
                Bytes((1 << 30) - 1),
                ("1073741824 B", "1073741823 B"),
            ),
            (Bytes(7), Bytes(5), ("7 B", "5 B")),
            (mib(0), mib(0), ("41943040 B", "41943040 B")),
        ] {
            let found = Bytes::needed_of(needed, there);
            assert_eq!((&*found.0, &*found.1), told);
        }
        assert_eq!(mib(1).rounded_up(), "40.1 MiB");
        assert_eq!(mib(0).rounded_up(), "40 MiB");
    }

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("3GiB", 3 << 30),
            ("1.5GiB", 3 << 29),
            ("1.5 GiB", 3 << 29),
            ("500MB", 500_000_000),
            ("2G", 2 << 30),
            ("2g", 2 << 30),
            ("16k", 16 << 10),
            ("1TB", 1_000_000_000_000),
            ("1TiB", 1 << 40),
            ("4096", 4096),
            ("4096B", 4096),
            ("1152921504606846976", 1 << 60),
            ("0.1KiB", 102),
            ("007MiB", 7 << 20),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_and_says_what_was_expected() {
        use SizeProblem::{Empty, Fraction, Negative, Number, TooLarge, Unit, Zero};
        for (text, problem) in [
            ("", Empty),
            ("-1GiB", Negative),
            ("GiB", Number),
            (".5GiB", Number),
            ("1.GiB", Number),
            ("+1GiB", Number),
            (" 1GiB", Number),
            ("1e9", Unit),
            ("1,5GiB", Unit),
            ("1GiB ", Unit),
            ("1 ", Unit),
            ("1  GiB", Unit),
            ("1GiBs", Unit),
            ("64Gibi", Unit),
            ("1.5.5GiB", Unit),
            ("1.5", Fraction),
            ("0", Zero),
            ("0.0GiB", Zero),
            ("0.0001KiB", Zero),
            ("1152921504606846977", TooLarge),
            ("1048577TiB", TooLarge),
            ("99999999999999999999999999GiB", TooLarge),
        ] {
            let error = text.parse::<Bytes>().expect_err(text);
            assert_eq!(error.problem, problem, "{text}");
            assert!(error.to_string().contains("64MiB"), "{error}");
        }
    }

    #[test]
    fn prints_for_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (64 << 20, "64 MiB"),
            ((64 << 20) + 1, "64.0 MiB"),
            ((1 << 30) - 1, "1.00 GiB"),
            (3 << 29, "1.50 GiB"),
            (1 << 40, "1 TiB"),
            (u64::MAX, "16777216.00 TiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>9}|", Bytes(64 << 20)), "   64 MiB|");
    }

    proptest! {
        #[test]
        fn whole_bytes_survive_text_and_json(bytes in 1..=Bytes::MAX.0) {
            prop_assert_eq!(bytes.to_string().parse(), Ok(Bytes(bytes)));
            let json = serde_json::to_string(&Bytes(bytes)).unwrap();
            prop_assert_eq!(&json, &bytes.to_string());
            prop_assert_eq!(serde_json::from_str::<Bytes>(&json).unwrap(), Bytes(bytes));
        }

        #[test]
        fn what_is_printed_is_read_back_nearly(bytes in 1..=Bytes::MAX.0) {
            let back: Bytes = Bytes(bytes).to_string().parse().unwrap();
            prop_assert!((back.0 as f64 - bytes as f64).abs() <= 0.05 * bytes as f64);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<Bytes>();
        }
    }
}
