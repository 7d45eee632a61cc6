//! How numbers and texts are laid out: the conversions of `%`, and the mini-language of `str.format`.

use super::error::{Error, Result};
use super::numbers;

/// The most digits behind a point, and the widest field.
const WIDTH_MAX: usize = 999;

/// A number that a template gave as a width.
pub(super) fn width(number: usize) -> Result<usize> {
    if number > WIDTH_MAX {
        let problem = format!("a field with {number} places; at most {WIDTH_MAX} are written");
        return Err(Error::too_much(problem));
    }
    Ok(number)
}

/// `%e` of a number without sign.
pub(super) fn exponential(number: f64, digits: usize, upper: bool) -> String {
    let text = format!("{number:.digits$e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let sign = if power < 0 { '-' } else { '+' };
    let e = if upper { 'E' } else { 'e' };
    format!("{digits}{e}{sign}{:02}", power.abs())
}

/// `%g` of a number without sign.
pub(super) fn general(number: f64, digits: usize, upper: bool, all_digits: bool) -> String {
    let digits = digits.max(1);
    let text = format!("{number:.*e}", digits - 1);
    let power: i32 = text
        .split_once('e')
        .and_then(|(_, power)| power.parse().ok())
        .unwrap_or(0);
    let shorten = |text: &str| {
        if all_digits || !text.contains('.') {
            return text.to_owned();
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    if power < -4 || power >= digits as i32 {
        let text = exponential(number, digits - 1, upper);
        let at = text.find(['e', 'E']).unwrap_or(text.len());
        return shorten(&text[..at]) + &text[at..];
    }
    let behind = (digits as i32 - 1 - power).max(0) as usize;
    shorten(&format!("{number:.behind$}"))
}

/// A float without sign, as one of `e`, `f` and `g` has it.
pub(super) fn float(number: f64, kind: char, digits: usize, all_digits: bool) -> Result<String> {
    let number = number.abs();
    let upper = kind.is_ascii_uppercase();
    if !number.is_finite() {
        let text = if number.is_nan() { "nan" } else { "inf" };
        return Ok(if upper {
            text.to_uppercase()
        } else {
            text.to_owned()
        });
    }
    let mut text = match kind.to_ascii_lowercase() {
        'e' => exponential(number, digits, upper),
        'f' => format!("{number:.digits$}"),
        'g' => general(number, digits, upper, all_digits),
        _ => return Err(Error::raised(format!("Unknown format code '{kind}'"))),
    };
    if all_digits && !text.contains('.') {
        let at = text.find(['e', 'E']).unwrap_or(text.len());
        text.insert(at, '.');
    }
    Ok(text)
}

/// A whole number without sign in one of `d`, `x`, `X`, `o` and `b`.
pub(super) fn digits(number: u128, kind: char) -> String {
    match kind {
        'x' => format!("{number:x}"),
        'X' => format!("{number:X}"),
        'o' => format!("{number:o}"),
        'b' => format!("{number:b}"),
        _ => number.to_string(),
    }
}

/// A format specification: `[[fill]align][sign][#][0][width][grouping][.precision][type]`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

impl Spec {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut spec = Self::default();
        let mut rest = text;
        let is_align = |c: char| matches!(c, '<' | '>' | '=' | '^');
        let mut chars = rest.chars();
        match (chars.next(), chars.next()) {
            (Some(fill), Some(align)) if is_align(align) => {
                (spec.fill, spec.align) = (Some(fill), Some(align));
                rest = chars.as_str();
            }
            (Some(align), _) if is_align(align) => {
                spec.align = Some(align);
                rest = &rest[1..];
            }
            _ => {}
        }
        if let Some(sign) = rest.chars().next().filter(|c| matches!(c, '+' | '-' | ' ')) {
            spec.sign = Some(sign);
            rest = &rest[1..];
        }
        if rest.starts_with('z') {
            return Err(Error::unsupported("the format option z"));
        }
        if let Some(after) = rest.strip_prefix('#') {
            spec.alternate = true;
            rest = after;
        }
        if let Some(after) = rest.strip_prefix('0') {
            spec.zero = true;
            rest = after;
        }
        (spec.width, rest) = number(rest)?.unwrap_or((0, rest));
        if let Some(grouping) = rest.chars().next().filter(|c| matches!(c, ',' | '_')) {
            spec.grouping = Some(grouping);
            rest = &rest[1..];
        }
        if let Some(after) = rest.strip_prefix('.') {
            let (precision, after) = number(after)?
                .ok_or_else(|| Error::raised("Format specifier missing precision"))?;
            spec.precision = Some(precision);
            rest = after;
        }
        let mut chars = rest.chars();
        spec.kind = chars.next();
        if chars.next().is_some() {
            return Err(Error::raised("Invalid format specifier"));
        }
        Ok(spec)
    }

    /// A text.
    pub(super) fn text(&self, text: &str) -> Result<String> {
        if self.sign.is_some()
            || self.align == Some('=')
            || self.alternate
            || self.grouping.is_some()
        {
            return Err(Error::raised("a format specifier that texts do not have"));
        }
        if self.kind.is_some_and(|kind| kind != 's') {
            return Err(Error::raised(
                "Unknown format code for object of type 'str'",
            ));
        }
        let cut: String = match self.precision {
            Some(most) => text.chars().take(most).collect(),
            None => text.to_owned(),
        };
        let fill = self.fill.unwrap_or(if self.zero { '0' } else { ' ' });
        Ok(self.padded("", &cut, self.align.unwrap_or('<'), fill))
    }

    /// A whole number.
    pub(super) fn int(&self, number: i128) -> Result<String> {
        match self.kind {
            None | Some('d' | 'x' | 'X' | 'o' | 'b') => {}
            Some('c' | 'n') => return Err(Error::unsupported("the format codes c and n")),
            Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') => {
                return self.float(numbers::to_float(number)?);
            }
            Some(kind) => {
                let problem = format!("Unknown format code '{kind}' for object of type 'int'");
                return Err(Error::raised(problem));
            }
        }
        if self.precision.is_some() {
            return Err(Error::raised(
                "Precision not allowed in integer format specifier",
            ));
        }
        let kind = self.kind.unwrap_or('d');
        if self.grouping == Some(',') && kind != 'd' {
            return Err(Error::raised(format!("Cannot specify ',' with '{kind}'.")));
        }
        let digits = digits(number.unsigned_abs(), kind);
        let every = if kind == 'd' { 3 } else { 4 };
        let prefix = match kind {
            'x' | 'X' | 'o' | 'b' if self.alternate => format!("0{kind}"),
            _ => String::new(),
        };
        Ok(self.number(number < 0, &prefix, &digits, "", every))
    }

    /// A float.
    pub(super) fn float(&self, number: f64) -> Result<String> {
        let negative = number.is_sign_negative() && !number.is_nan();
        let text = match (self.kind, self.precision) {
            (None, None) if !self.alternate => numbers::repr(number.abs()),
            (None, precision) => {
                if self.alternate {
                    return Err(Error::unsupported("the format option # without a code"));
                }
                let digits = precision.unwrap_or(0).max(1);
                let text = general(number.abs(), digits, false, false);
                let finite = number.is_finite();
                // Without a code there is a digit behind the point, and an exponent a place earlier.
                let power = format!("{:.*e}", digits - 1, number.abs());
                let power: i32 = power
                    .split_once('e')
                    .and_then(|it| it.1.parse().ok())
                    .unwrap_or(0);
                if !finite {
                    float(number, 'f', 0, false)?
                } else if power == digits as i32 - 1 {
                    let text = exponential(number.abs(), digits - 1, false);
                    let at = text.find('e').unwrap_or(text.len());
                    let head = &text[..at];
                    let head = if head.contains('.') {
                        head.trim_end_matches('0').trim_end_matches('.')
                    } else {
                        head
                    };
                    format!("{head}{}", &text[at..])
                } else if text.contains(['.', 'e']) {
                    text
                } else {
                    text + ".0"
                }
            }
            (Some('%'), precision) => {
                let digits = precision.unwrap_or(6);
                float(number * 100.0, 'f', digits, self.alternate)? + "%"
            }
            (Some('n'), _) => return Err(Error::unsupported("the format code n")),
            (Some(kind), precision) => {
                let known = matches!(kind, 'e' | 'E' | 'f' | 'F' | 'g' | 'G');
                if !known {
                    let problem =
                        format!("Unknown format code '{kind}' for object of type 'float'");
                    return Err(Error::raised(problem));
                }
                float(number, kind, precision.unwrap_or(6), self.alternate)?
            }
        };
        let at = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (whole, rest) = text.split_at(at);
        if whole.is_empty() {
            // Neither a number nor grouped.
            return Ok(self.number(negative, "", rest, "", usize::MAX));
        }
        Ok(self.number(negative, "", whole, rest, 3))
    }

    fn number(
        &self,
        negative: bool,
        prefix: &str,
        digits: &str,
        rest: &str,
        every: usize,
    ) -> String {
        let sign = match (negative, self.sign) {
            (true, _) => "-",
            (false, Some('+')) => "+",
            (false, Some(' ')) => " ",
            _ => "",
        };
        let (align, fill) = match (self.align, self.zero) {
            (Some(align), zero) => (align, self.fill.unwrap_or(if zero { '0' } else { ' ' })),
            (None, true) => ('=', '0'),
            (None, false) => ('>', ' '),
        };
        let mut digits = digits.to_owned();
        if let Some(grouping) = self.grouping.filter(|_| every < usize::MAX) {
            let taken = sign.len() + prefix.len() + rest.len();
            let grouped = |digits: &str| {
                let mut out = String::new();
                for (at, c) in digits.chars().enumerate() {
                    if at > 0 && (digits.len() - at).is_multiple_of(every) {
                        out.push(grouping);
                    }
                    out.push(c);
                }
                out
            };
            // Zeros that fill are grouped, too.
            if align == '=' && fill == '0' {
                while taken + grouped(&digits).len() < self.width {
                    let more = format!("0{digits}");
                    digits = more;
                }
            }
            digits = grouped(&digits);
        }
        self.padded(
            &format!("{sign}{prefix}"),
            &format!("{digits}{rest}"),
            align,
            fill,
        )
    }

    fn padded(&self, head: &str, body: &str, align: char, fill: char) -> String {
        let length = head.chars().count() + body.chars().count();
        let missing = self.width.saturating_sub(length);
        let [before, between, after] = match align {
            '<' => [0, 0, missing],
            '^' => [missing / 2, 0, missing - missing / 2],
            '=' => [0, missing, 0],
            _ => [missing, 0, 0],
        };
        let fill = |count: usize| std::iter::repeat_n(fill, count).collect::<String>();
        [&fill(before), head, &fill(between), body, &fill(after)].concat()
    }
}

fn number(text: &str) -> Result<Option<(usize, &str)>> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    if end == 0 {
        return Ok(None);
    }
    let number = text[..end].parse().unwrap_or(usize::MAX);
    Ok(Some((width(number)?, &text[end..])))
}
