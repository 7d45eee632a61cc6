//! `strftime_now`.

use std::fmt::Write;

use chrono::NaiveDateTime;

use super::error::{Error, Result};

/// A time as Python's `strftime` writes it, where nobody chose another language.
pub(super) fn written(time: NaiveDateTime, format: &str) -> Result<String> {
    let mut out = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        let flag = tail.chars().next().filter(|c| matches!(c, '-' | '_'));
        let flag_length = usize::from(flag.is_some());
        let code = tail[flag_length..].chars().next();
        let code = code.ok_or_else(|| Error::unsupported("strftime_now of a % at the end"))?;
        let numbers = matches!(
            code,
            'd' | 'm' | 'y' | 'H' | 'I' | 'M' | 'S' | 'j' | 'U' | 'W' | 'e' | 'k' | 'l'
        );
        let whole = &rest[at..at + 1 + flag_length + code.len_utf8()];
        match code {
            '%' if flag.is_none() => out.push('%'),
            'f' if flag.is_none() => {
                // A string takes all that is written to it.
                let _ = write!(out, "{:06}", time.and_utc().timestamp_subsec_micros());
            }
            // The time has no zone.
            'z' | 'Z' if flag.is_none() => {}
            'a' | 'A' | 'b' | 'B' | 'c' | 'C' | 'D' | 'F' | 'G' | 'h' | 'n' | 'p' | 'P' | 'r'
            | 'R' | 't' | 'T' | 'u' | 'V' | 'w' | 'x' | 'X' | 'Y'
                if flag.is_none() =>
            {
                write!(out, "{}", time.format(whole)).map_err(|_| unknown(whole))?;
            }
            _ if numbers => write!(out, "{}", time.format(whole)).map_err(|_| unknown(whole))?,
            _ => return Err(unknown(whole)),
        }
        rest = &rest[at + whole.len()..];
    }
    out.push_str(rest);
    Ok(out)
}

fn unknown(code: &str) -> Error {
    Error::unsupported(format!("strftime_now of {code}"))
}
