//! Letters as Python's `str` sees them.

use std::sync::LazyLock;

use regex::Regex;

use super::error::{Error, Result};

/// One character of a general category, such as `L`.
struct Category(LazyLock<Regex>);

impl Category {
    fn has(&self, c: char) -> bool {
        self.0.is_match(c.encode_utf8(&mut [0; 4]))
    }
}

macro_rules! category {
    ($pattern:literal) => {
        Category(LazyLock::new(|| {
            #[allow(
                clippy::unwrap_used,
                reason = "the pattern is a constant that a test compiles"
            )]
            Regex::new($pattern).unwrap()
        }))
    };
}

static LETTER: Category = category!(r"\A\p{L}\z");
static DECIMAL: Category = category!(r"\A\p{Nd}\z");
static NUMBER: Category = category!(r"\A\p{N}\z");
static IDEOGRAPH: Category = category!(r"\A\p{Han}\z");
static UNPRINTABLE: Category = category!(r"\A[\p{C}\p{Z}]\z");
static CASED: Category = category!(r"\A[\p{Lu}\p{Ll}\p{Lt}]\z");
static TITLE: Category = category!(r"\A\p{Lt}\z");
static WORD: Category = category!(r"\A[\p{L}\p{N}_]\z");

/// `str.isspace` of a character.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// `str.strip`.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// `str.rstrip`.
pub(super) fn trim_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

/// Whether `repr` writes a character as it is.
pub(super) fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    !UNPRINTABLE.has(c)
}

pub(super) fn is_letter(c: char) -> bool {
    c.is_ascii_alphabetic() || (!c.is_ascii() && LETTER.has(c))
}

pub(super) fn is_decimal(c: char) -> bool {
    c.is_ascii_digit() || (!c.is_ascii() && DECIMAL.has(c))
}

/// `str.isdigit` of a character.
pub(super) fn is_digit(c: char) -> Result<bool> {
    if is_decimal(c) || c.is_ascii() || !NUMBER.has(c) {
        return Ok(is_decimal(c));
    }
    // Superscripts and circled digits are digits; fractions and Roman numbers are not.
    Err(Error::unsupported(format!("isdigit of {c:?}")))
}

/// `str.isnumeric` of a character.
pub(super) fn is_numeric(c: char) -> Result<bool> {
    if c.is_ascii() || !IDEOGRAPH.has(c) {
        return Ok(c.is_ascii_digit() || (!c.is_ascii() && NUMBER.has(c)));
    }
    Err(Error::unsupported(format!("isnumeric of {c:?}")))
}

/// A character of `\w`.
pub(super) fn is_word(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric() || c == '_';
    }
    WORD.has(c)
}

/// Whether a character is upper, lower or title case.
pub(super) fn is_cased(c: char) -> bool {
    c.is_ascii_alphabetic()
        || (!c.is_ascii() && (CASED.has(c) || c.is_lowercase() || c.is_uppercase()))
}

pub(super) fn is_upper_or_title(c: char) -> bool {
    c.is_uppercase() || (!c.is_ascii() && TITLE.has(c))
}

/// How a word begins that has one capital letter.
pub(super) fn title_case(c: char, out: &mut String) {
    let same = match c {
        'Ǆ' | 'ǅ' | 'ǆ' => Some('ǅ'),
        'Ǉ' | 'ǈ' | 'ǉ' => Some('ǈ'),
        'Ǌ' | 'ǋ' | 'ǌ' => Some('ǋ'),
        'Ǳ' | 'ǲ' | 'ǳ' => Some('ǲ'),
        // Georgian letters have no title case; others have it already.
        '\u{10d0}'..='\u{10ff}' | '\u{1fbc}' | '\u{1fcc}' | '\u{1ffc}' => Some(c),
        // Greek letters with an iota below, which is a letter of its own in capitals alone.
        '\u{1f80}'..='\u{1faf}' => char::from_u32(u32::from(c) | 8),
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => char::from_u32(u32::from(c) + 9),
        _ => None,
    };
    if let Some(same) = same {
        out.push(same);
        return;
    }
    let mut upper = c.to_uppercase();
    out.extend(upper.next());
    for rest in upper {
        match (c, rest) {
            ('\u{149}', _) => out.push(rest),
            ('\u{1fb0}'..='\u{1fff}', '\u{399}') => out.push('\u{345}'),
            _ => out.extend(rest.to_lowercase()),
        }
    }
}

/// `str.casefold`.
pub(super) fn casefold(text: &str) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let lower: String = c.to_lowercase().collect();
        let folded: String = c.to_uppercase().flat_map(char::to_lowercase).collect();
        if c == 'ß' {
            out.push_str("ss");
        } else if lower == folded {
            out.push_str(&lower);
        } else {
            return Err(Error::unsupported(format!("casefold of {c:?}")));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::title_case;

    #[test]
    fn words_begin_as_in_python() {
        // As `str.title` has them.
        for (c, title) in [
            ('\u{149}', "\u{2bc}N"),
            ('ß', "Ss"),
            ('ﬁ', "Fi"),
            ('\u{1f80}', "\u{1f88}"),
            ('\u{1fa8}', "\u{1fa8}"),
            ('\u{1fb2}', "\u{1fba}\u{345}"),
            ('\u{1fb3}', "\u{1fbc}"),
            ('\u{1fb7}', "\u{391}\u{342}\u{345}"),
            ('\u{1ffc}', "\u{1ffc}"),
            ('\u{390}', "\u{399}\u{308}\u{301}"),
        ] {
            let mut out = String::new();
            title_case(c, &mut out);
            assert_eq!(out, title, "{c:?}");
        }
    }
}
