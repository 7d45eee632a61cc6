//! Templates to tokens, as Jinja2's lexer with `trim_blocks` and `lstrip_blocks`.

use std::fmt::Write;
use std::sync::Arc;

use super::error::{Error, Result};
use super::unicode::{is_space, trim_end};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Data(Arc<str>),
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name(Arc<str>),
    Str(Arc<str>),
    Int(i128),
    Float(f64),
    Operator(&'static str),
    End,
}

/// Longest first, as far as one begins another.
const OPERATORS: [&str; 26] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",", ";",
];

/// The tokens of a template, each with its line, and one that ends them.
pub(super) fn tokens(source: &str) -> Result<Vec<(Token, u32)>> {
    let unified = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = unified.strip_suffix('\n').unwrap_or(&unified);
    let mut lexer = Lexer {
        rest: source,
        line: 1,
        line_starting: true,
        out: Vec::new(),
    };
    let read = lexer.root();
    let line = lexer.line;
    read.map_err(|error| error.at(line))?;
    lexer.push(Token::End);
    Ok(lexer.out)
}

struct Lexer<'a> {
    rest: &'a str,
    line: u32,
    /// Whether the text so far ends a line, or is empty.
    line_starting: bool,
    out: Vec<(Token, u32)>,
}

impl<'a> Lexer<'a> {
    fn push(&mut self, token: Token) {
        self.out.push((token, self.line));
    }

    /// Takes so many bytes.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        self.line += taken.matches('\n').count() as u32;
        if !taken.is_empty() {
            self.line_starting = taken.ends_with('\n');
        }
        taken
    }

    fn take_space(&mut self) {
        let rest = self.rest.trim_start_matches(is_space);
        self.take(self.rest.len() - rest.len());
    }

    /// Text, and tags in it.
    fn root(&mut self) -> Result<()> {
        loop {
            let begins = |pair: &[u8]| matches!(pair, b"{{" | b"{%" | b"{#");
            let Some(at) = self.rest.as_bytes().windows(2).position(begins) else {
                let data = self.take(self.rest.len());
                self.data(data);
                return Ok(());
            };
            let tag = self.rest.as_bytes()[at + 1];
            let sign = self.rest.as_bytes().get(at + 2).copied();
            let sign = sign.filter(|sign| matches!(sign, b'-' | b'+'));
            let text = &self.rest[..at];
            let text = match sign {
                Some(b'-') => trim_end(text),
                None if tag != b'{' => lstrip(text, self.line_starting),
                _ => text,
            };
            let (data, line) = (text, self.line);
            self.take(at);
            if !data.is_empty() {
                self.out.push((Token::Data(data.into()), line));
            }
            let head = 2 + usize::from(sign.is_some());
            match tag {
                b'#' => {
                    self.take(head);
                    self.comment()?;
                }
                b'%' => {
                    if let Some(length) = raw(&self.rest[head..]) {
                        self.take(head + length);
                        self.raw()?;
                    } else {
                        self.take(head);
                        self.push(Token::BlockBegin);
                        self.inside(false)?;
                    }
                }
                _ => {
                    self.take(head);
                    self.push(Token::VariableBegin);
                    self.inside(true)?;
                }
            }
        }
    }

    fn data(&mut self, data: &str) {
        if !data.is_empty() {
            let lines = data.matches('\n').count() as u32;
            self.out.push((Token::Data(data.into()), self.line - lines));
        }
    }

    fn comment(&mut self) -> Result<()> {
        let end = self.rest.find("#}");
        let end = end.ok_or_else(|| Error::raised("Missing end of comment tag"))?;
        let sign = self.rest[..end].bytes().last();
        self.take(end + 2);
        self.after_tag(sign);
        Ok(())
    }

    /// What goes with the end of a block or a comment.
    fn after_tag(&mut self, sign: Option<u8>) {
        match sign {
            Some(b'-') => self.take_space(),
            Some(b'+') => {}
            _ => drop(self.take(usize::from(self.rest.starts_with('\n')))),
        }
    }

    /// Text up to `{% endraw %}`.
    fn raw(&mut self) -> Result<()> {
        let mut from = 0;
        loop {
            let begin = self.rest[from..].find("{%");
            let begin = begin.ok_or_else(|| Error::raised("Missing end of raw directive"))?;
            let at = from + begin;
            let tail = &self.rest[at + 2..];
            let sign = tail.bytes().next().filter(|it| matches!(it, b'-' | b'+'));
            let inner = &tail[usize::from(sign.is_some())..];
            let word = inner.trim_start_matches(is_space).strip_prefix("endraw");
            let after = word.map(|word| word.trim_start_matches(is_space));
            let end = after.and_then(|after| {
                let (end, after) = match after.bytes().next() {
                    Some(end @ (b'-' | b'+')) => (Some(end), &after[1..]),
                    _ => (None, after),
                };
                after.strip_prefix("%}").map(|rest| (end, rest))
            });
            let Some((end, rest)) = end else {
                from = at + 2;
                continue;
            };
            let text = &self.rest[..at];
            let text = match sign {
                Some(b'-') => trim_end(text),
                None => lstrip(text, self.line_starting),
                _ => text,
            };
            if !text.is_empty() {
                self.push(Token::Data(text.into()));
            }
            self.take(self.rest.len() - rest.len());
            self.after_tag(end);
            return Ok(());
        }
    }

    /// The tokens of a tag, up to its end.
    fn inside(&mut self, variable: bool) -> Result<()> {
        let mut open: Vec<&str> = Vec::new();
        loop {
            if open.is_empty() {
                let (ends, signs) = if variable {
                    ("}}", &b"-"[..])
                } else {
                    ("%}", &b"-+"[..])
                };
                let sign = self.rest.bytes().next().filter(|it| signs.contains(it));
                let tail = self.rest.get(usize::from(sign.is_some())..);
                if tail.is_some_and(|tail| tail.starts_with(ends)) {
                    let line = self.line;
                    self.take(2 + usize::from(sign.is_some()));
                    match (variable, sign) {
                        (true, Some(_)) => self.take_space(),
                        (true, None) => {}
                        (false, sign) => self.after_tag(sign),
                    }
                    let token = if variable {
                        Token::VariableEnd
                    } else {
                        Token::BlockEnd
                    };
                    self.out.push((token, line));
                    return Ok(());
                }
            }
            let Some(first) = self.rest.chars().next() else {
                // The parser says what is missing.
                return Ok(());
            };
            if is_space(first) {
                self.take_space();
            } else if first.is_ascii_digit() {
                self.number()?;
            } else if is_word(first) {
                let length = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
                let name = self.take(length);
                self.push(Token::Name(name.into()));
            } else if matches!(first, '"' | '\'') {
                self.text(first)?;
            } else {
                self.operator(&mut open)?;
            }
        }
    }

    fn operator(&mut self, open: &mut Vec<&'static str>) -> Result<()> {
        let found = OPERATORS.iter().find(|it| self.rest.starts_with(**it));
        let Some(operator) = found else {
            let first = self.rest.chars().next().unwrap_or(' ');
            return Err(Error::raised(format!("unexpected char {first:?}")));
        };
        match *operator {
            "(" => open.push(")"),
            "[" => open.push("]"),
            "{" => open.push("}"),
            ")" | "]" | "}" if open.pop() != Some(operator) => {
                return Err(Error::raised(format!("unexpected '{operator}'")));
            }
            _ => {}
        }
        self.take(operator.len());
        self.push(Token::Operator(operator));
        Ok(())
    }

    fn number(&mut self) -> Result<()> {
        // A number behind a dot is an index.
        let behind_dot = self
            .out
            .last()
            .is_some_and(|(it, _)| *it == Token::Operator("."));
        if let Some(length) = float_length(self.rest).filter(|_| !behind_dot) {
            let text = self.take(length).replace('_', "");
            let number = text.parse();
            let number = number.map_err(|_| Error::raised(format!("bad number {text}")))?;
            self.push(Token::Float(number));
            return Ok(());
        }
        let (length, radix) = integer_length(self.rest);
        let text = self.take(length).replace('_', "");
        let digits = if radix == 10 { &text[..] } else { &text[2..] };
        let number = i128::from_str_radix(digits, radix);
        let number = number.map_err(|_| Error::unsupported(format!("the number {text}")))?;
        self.push(Token::Int(number));
        Ok(())
    }

    fn text(&mut self, quote: char) -> Result<()> {
        let mut escaped = false;
        let end = self.rest.char_indices().skip(1).find(|&(_, c)| {
            let ends = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let end = end
            .ok_or_else(|| Error::raised(format!("unexpected char {quote:?}")))?
            .0;
        let line = self.line;
        let inner = &self.take(end + 1)[1..end];
        self.out.push((Token::Str(unescaped(inner)?.into()), line));
        Ok(())
    }
}

/// Without the space between the beginning of a line and a block tag.
fn lstrip(text: &str, line_starting: bool) -> &str {
    let from = text.rfind('\n').map_or(0, |at| at + 1);
    if (from > 0 || line_starting) && text[from..].chars().all(is_space) {
        return &text[..from];
    }
    text
}

/// The length of the rest of `{% raw %}`, behind its sign.
fn raw(rest: &str) -> Option<usize> {
    let word = rest.trim_start_matches(is_space).strip_prefix("raw")?;
    let after = word.trim_start_matches(is_space);
    let end = match after.strip_prefix("-%}") {
        Some(end) => end.trim_start_matches(is_space),
        None => after.strip_prefix("%}")?,
    };
    Some(rest.len() - end.len())
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// The length of digits with single underscores between them.
fn digits_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        let digits = bytes[at..].iter().take_while(|it| it.is_ascii_digit());
        let digits = digits.count();
        if digits == 0 {
            return at.saturating_sub(1);
        }
        at += digits;
        if bytes.get(at) != Some(&b'_') {
            return at;
        }
        at += 1;
    }
}

fn float_length(text: &str) -> Option<usize> {
    let whole = digits_length(text);
    if whole == 0 {
        return None;
    }
    let mut end = whole;
    let fraction = text[end..].strip_prefix('.').map_or(0, digits_length);
    if fraction > 0 {
        end += 1 + fraction;
    }
    if let Some(power) = text[end..].strip_prefix(['e', 'E']) {
        let digits = power.strip_prefix(['+', '-']).unwrap_or(power);
        let length = digits_length(digits);
        if length > 0 {
            return Some(end + 1 + (power.len() - digits.len()) + length);
        }
    }
    (fraction > 0).then_some(end)
}

fn integer_length(text: &str) -> (usize, u32) {
    let bytes = text.as_bytes();
    let radix = match bytes.get(..2) {
        Some(b"0b" | b"0B") => 2,
        Some(b"0o" | b"0O") => 8,
        Some(b"0x" | b"0X") => 16,
        _ => 10,
    };
    if radix != 10 {
        let mut at = 2;
        loop {
            let skip = usize::from(bytes.get(at) == Some(&b'_'));
            let digit = bytes
                .get(at + skip)
                .is_some_and(|it| (*it as char).is_digit(radix));
            if !digit {
                break;
            }
            at += skip + 1;
        }
        if at > 2 {
            return (at, radix);
        }
    }
    if bytes[0] == b'0' {
        let mut at = 1;
        while bytes.get(at) == Some(&b'0') || bytes.get(at..at + 2) == Some(b"_0") {
            at += 1 + usize::from(bytes[at] == b'_');
        }
        return (at, 10);
    }
    (digits_length(text), 10)
}

/// A text without escapes, as Python's `unicode-escape` reads it.
#[allow(clippy::too_many_lines, reason = "an arm of each escape")]
fn unescaped(text: &str) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let Some(kind) = rest.next() else {
            return Err(Error::raised("\\ at end of string"));
        };
        let digits = match kind {
            '\n' => continue,
            '\\' | '\'' | '"' => {
                out.push(kind);
                continue;
            }
            'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' => {
                out.push(match kind {
                    'a' => '\u{7}',
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    _ => '\u{b}',
                });
                continue;
            }
            '0'..='7' => {
                let more = rest.as_str().bytes().take(2);
                let more = more.take_while(|it| (b'0'..=b'7').contains(it)).count();
                let digits = format!("{kind}{}", &rest.as_str()[..more]);
                rest = rest.as_str()[more..].chars();
                let code = u32::from_str_radix(&digits, 8)
                    .ok()
                    .and_then(char::from_u32);
                out.extend(code);
                continue;
            }
            'x' => 2,
            'u' => 4,
            'U' => 8,
            'N' => return Err(Error::unsupported("the escape \\N")),
            // Letters beyond ASCII become escapes before escapes are read.
            kind if !kind.is_ascii() => {
                let code = kind as u32;
                // A string takes all that is written to it.
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
                continue;
            }
            kind => {
                out.extend(['\\', kind]);
                continue;
            }
        };
        let hex = rest.as_str().get(..digits);
        let hex = hex.filter(|hex| hex.bytes().all(|it| it.is_ascii_hexdigit()));
        let hex = hex.ok_or_else(|| Error::raised(format!("truncated \\{kind} escape")))?;
        let code = u32::from_str_radix(hex, 16).unwrap_or(u32::MAX);
        rest = rest.as_str()[digits..].chars();
        match char::from_u32(code) {
            Some(c) => out.push(c),
            None if (0xd800..0xe000).contains(&code) => {
                return Err(Error::unsupported(format!("half a letter, \\{kind}{hex},")));
            }
            None => return Err(Error::raised("illegal Unicode character")),
        }
    }
    Ok(out)
}
