//! The methods of texts.

use std::sync::Arc;

use super::args::{self, Args};
use super::error::{Error, Result};
use super::run::Run;
use super::unicode::{self, is_space};
use super::value::Value;
use super::{fields, letters};

pub(super) const METHODS: &[&str] = &[
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];

pub(super) const UNSUPPORTED: &[&str] = &["encode", "isidentifier", "maketrans", "translate"];

impl Run {
    /// A method of a text.
    #[allow(clippy::too_many_lines, reason = "an arm of each method")]
    pub(super) fn call_str(
        &mut self,
        text: &Arc<str>,
        name: &'static str,
        args: Args,
    ) -> Result<Value> {
        self.spend_bytes(text.len())?;
        match name {
            "format" => {
                let Args { positional, named } = args;
                return fields::format(self, text, &positional, &named).map(Value::str);
            }
            "format_map" => {
                let [map] = args.bind(name, ["/mapping"], 1)?;
                let Some(Value::Dict(dict)) = &map else {
                    return Err(Error::unsupported("format_map of what is no dictionary"));
                };
                let items = dict.items.iter();
                let named = items.filter_map(|(k, v)| Some((k.as_str()?.clone(), v.clone())));
                let named: Vec<_> = named.collect();
                return fields::format(self, text, &[], &named).map(Value::str);
            }
            "join" => {
                let [items] = args.bind(name, ["/iterable"], 1)?;
                let items = self.values(items.as_ref().unwrap_or(&Value::None))?;
                return self.join_texts(text, &items);
            }
            "strip" | "lstrip" | "rstrip" => {
                let [chars] = args.bind(name, ["/chars"], 0)?;
                return Ok(Value::str(strip(text, name, chars.as_ref())?));
            }
            "split" | "rsplit" => {
                let [separator, most] = args.bind(name, ["sep", "maxsplit"], 0)?;
                return self.split(text, name == "rsplit", separator.as_ref(), most.as_ref());
            }
            "splitlines" => {
                let [ends] = args.bind(name, ["keepends"], 0)?;
                let keep = match &ends {
                    Some(ends) => args::int(ends)? != 0,
                    None => false,
                };
                let lines = lines(text, keep).into_iter().map(Value::str);
                return Value::list(lines.collect());
            }
            "expandtabs" => {
                let [size] = args.bind(name, ["tabsize"], 0)?;
                let size = size.as_ref().map_or(Ok(8), args::size)?;
                self.spend_bytes(text.matches('\t').count().saturating_mul(size))?;
                return Ok(Value::str(expand_tabs(text, size)));
            }
            "replace" => return self.replace_text(text, args),
            "count" | "find" | "rfind" | "index" | "rindex" | "startswith" | "endswith" => {
                return Self::search(text, name, args);
            }
            "center" | "ljust" | "rjust" => return self.pad(text, name, args),
            "zfill" => {
                let [width] = args.bind(name, ["/width"], 1)?;
                let width = args::size(&width.unwrap_or(Value::None))?;
                let zeros = width.saturating_sub(text.chars().count());
                self.spend_bytes(zeros)?;
                let sign = text.len() - text.trim_start_matches(['+', '-']).len();
                let (sign, digits) = text.split_at(sign.min(1));
                return Ok(Value::str(format!("{sign}{}{digits}", "0".repeat(zeros))));
            }
            "partition" | "rpartition" => {
                let [separator] = args.bind(name, ["/sep"], 1)?;
                let separator = separator.unwrap_or(Value::None);
                let separator = non_empty(args::text(&separator, name)?)?;
                let parts = if name == "partition" {
                    text.split_once(&**separator)
                } else {
                    text.rsplit_once(&**separator)
                };
                let parts = match (parts, name) {
                    (Some((before, after)), _) => [before, separator, after],
                    (None, "partition") => [text, "", ""],
                    (None, _) => ["", "", text],
                };
                return Value::tuple(parts.map(Value::str).to_vec());
            }
            "removeprefix" | "removesuffix" => {
                let [affix] = args.bind(name, ["/affix"], 1)?;
                let affix = affix.unwrap_or(Value::None);
                let affix = &**args::text(&affix, name)?;
                let rest = if name == "removeprefix" {
                    text.strip_prefix(affix)
                } else {
                    text.strip_suffix(affix)
                };
                return Ok(Value::str(rest.unwrap_or(text)));
            }
            _ => args.none(name)?,
        }
        letters::call(text, name)
    }

    /// `separator.join(items)`, of texts alone.
    fn join_texts(&self, separator: &str, items: &[Value]) -> Result<Value> {
        let mut out = String::new();
        for (at, item) in items.iter().enumerate() {
            let Value::Str(item) = item else {
                if matches!(item, Value::Markup(_)) {
                    return Err(Error::unsupported("join of escaped text"));
                }
                let name = item.type_name();
                let problem = format!("sequence item {at}: expected str instance, {name} found");
                return Err(Error::raised(problem));
            };
            if at > 0 {
                out.push_str(separator);
            }
            out.push_str(item);
            self.spend_bytes(separator.len() + item.len())?;
        }
        Ok(Value::str(out))
    }

    fn split(
        &self,
        text: &str,
        from_end: bool,
        separator: Option<&Value>,
        most: Option<&Value>,
    ) -> Result<Value> {
        let most = most.map_or(Ok(-1), args::count)?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let parts: Vec<&str> = match separator {
            None | Some(Value::None) => split_space(text, most, from_end),
            Some(separator) => {
                let separator = &**non_empty(args::text(separator, "split")?)?;
                if from_end {
                    let mut parts: Vec<_> =
                        text.rsplitn(most.saturating_add(1), separator).collect();
                    parts.reverse();
                    parts
                } else {
                    text.splitn(most.saturating_add(1), separator).collect()
                }
            }
        };
        self.spend(parts.len() as u64)?;
        Value::list(parts.into_iter().map(Value::str).collect())
    }

    fn replace_text(&self, text: &str, args: Args) -> Result<Value> {
        let [old, new, count] = args.bind("replace", ["/old", "/new", "/count"], 2)?;
        let (old, new) = (old.unwrap_or(Value::None), new.unwrap_or(Value::None));
        let (old, new) = (args::text(&old, "replace")?, args::text(&new, "replace")?);
        let count = count.as_ref().map_or(Ok(-1), args::count)?.into();
        self.replaced(text, old, new, count).map(Value::str)
    }

    /// A text with some occurrences of another one replaced; with all of them where the number is negative.
    pub(super) fn replaced(&self, text: &str, old: &str, new: &str, count: i128) -> Result<String> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let most = (text.len() / old.len().max(1) + 1).min(count);
        self.spend_bytes(text.len() + most.saturating_mul(new.len().saturating_sub(old.len())))?;
        Ok(text.replacen(old, new, count))
    }

    /// Searches for a text within bounds that count characters.
    fn search(text: &str, name: &'static str, args: Args) -> Result<Value> {
        let [sub, start, stop] = args.bind(name, ["/sub", "/start", "/end"], 1)?;
        let bound = |value: Option<Value>| match value {
            None | Some(Value::None) => Ok(None),
            Some(value) => args::int(&value).map(Some),
        };
        let (start, stop) = (bound(start)?, bound(stop)?);
        let plain = start.is_none() && stop.is_none();
        let length = if plain {
            0
        } else {
            text.chars().count() as i128
        };
        let clamp = |at: i128| {
            (if at < 0 {
                at.saturating_add(length)
            } else {
                at
            })
            .max(0)
        };
        let first = start.map_or(0, clamp);
        let last = stop.map_or(length, clamp).min(length);
        let beyond = !plain && (first > length || first > last);
        let byte = |at: i128| {
            let at = text
                .char_indices()
                .nth(usize::try_from(at).unwrap_or(usize::MAX));
            at.map_or(text.len(), |(at, _)| at)
        };
        let part = if plain || beyond {
            text
        } else {
            &text[byte(first)..byte(last)]
        };
        let sub = sub.unwrap_or(Value::None);
        if matches!(name, "startswith" | "endswith") {
            let fits = |affix: &str| {
                !beyond
                    && if name == "startswith" {
                        part.starts_with(affix)
                    } else {
                        part.ends_with(affix)
                    }
            };
            if let Value::Tuple(items) = &sub {
                for item in &items.values {
                    if fits(args::text(item, name)?) {
                        return Ok(Value::Bool(true));
                    }
                }
                return Ok(Value::Bool(false));
            }
            return Ok(Value::Bool(fits(args::text(&sub, name)?)));
        }
        let sub = &**args::text(&sub, name)?;
        if name == "count" {
            let count = if beyond { 0 } else { part.matches(sub).count() };
            return Ok(Value::Int(count as i128));
        }
        let at = match name {
            _ if beyond => None,
            "find" | "index" => part.find(sub),
            _ => part.rfind(sub),
        };
        match at {
            Some(at) => Ok(Value::Int(first + part[..at].chars().count() as i128)),
            None if name.ends_with("find") => Ok(Value::Int(-1)),
            None => Err(Error::raised("substring not found")),
        }
    }

    fn pad(&self, text: &str, name: &'static str, args: Args) -> Result<Value> {
        let [width, fill] = args.bind(name, ["/width", "/fillchar"], 1)?;
        let width = args::size(&width.unwrap_or(Value::None))?;
        let fill = match &fill {
            None => ' ',
            Some(fill) => {
                let fill = args::text(fill, name)?;
                let mut chars = fill.chars();
                match (chars.next(), chars.next()) {
                    (Some(fill), None) => fill,
                    _ => {
                        return Err(Error::raised(
                            "The fill character must be exactly one character long",
                        ));
                    }
                }
            }
        };
        self.padded(text, name, width, fill).map(Value::str)
    }

    /// A text padded to a width.
    pub(super) fn padded(&self, text: &str, how: &str, width: usize, fill: char) -> Result<String> {
        let length = text.chars().count();
        let missing = width.saturating_sub(length);
        self.spend_bytes(
            text.len()
                .saturating_add(missing.saturating_mul(fill.len_utf8())),
        )?;
        let left = match how {
            "ljust" => 0,
            "rjust" => missing,
            // As CPython rounds it.
            _ => missing / 2 + (missing & width & 1),
        };
        let fill = |count: usize| std::iter::repeat_n(fill, count).collect::<String>();
        Ok(format!("{}{text}{}", fill(left), fill(missing - left)))
    }
}

fn non_empty(separator: &Arc<str>) -> Result<&Arc<str>> {
    if separator.is_empty() {
        return Err(Error::raised("empty separator"));
    }
    Ok(separator)
}

/// `strip` and its sides.
pub(super) fn strip<'a>(text: &'a str, name: &str, chars: Option<&Value>) -> Result<&'a str> {
    let chars = match chars {
        None | Some(Value::None) => None,
        Some(chars) => Some(args::text(chars, name)?),
    };
    let fits = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    Ok(match name {
        "lstrip" => text.trim_start_matches(fits),
        "rstrip" => text.trim_end_matches(fits),
        _ => text.trim_matches(fits),
    })
}

/// `split` at white space.
fn split_space(text: &str, most: usize, from_end: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = unicode::trim(text);
    while !rest.is_empty() && parts.len() < most {
        let at = if from_end {
            rest.rfind(is_space)
        } else {
            rest.find(is_space)
        };
        let Some(at) = at else {
            break;
        };
        let width = rest[at..].chars().next().map_or(1, char::len_utf8);
        if from_end {
            parts.push(&rest[at + width..]);
            rest = unicode::trim_end(&rest[..at]);
        } else {
            parts.push(&rest[..at]);
            rest = rest[at + width..].trim_start_matches(is_space);
        }
    }
    if !rest.is_empty() {
        // What is left keeps the white space at the other end.
        let kept = if parts.is_empty() && most == 0 {
            if from_end {
                unicode::trim_end(text)
            } else {
                text.trim_start_matches(is_space)
            }
        } else if parts.len() == most {
            let at = rest.as_ptr() as usize - text.as_ptr() as usize;
            if from_end {
                &text[..at + rest.len()]
            } else {
                &text[at..]
            }
        } else {
            rest
        };
        parts.push(kept);
    }
    if from_end {
        parts.reverse();
    }
    parts
}

/// `splitlines`.
pub(super) fn lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let mut lines = Vec::new();
    let (mut start, mut at) = (0, text.char_indices().peekable());
    while let Some((end, c)) = at.next() {
        let breaks = matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'
                ..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        );
        if !breaks {
            continue;
        }
        let mut next = end + c.len_utf8();
        if c == '\r' && at.next_if(|(_, c)| *c == '\n').is_some() {
            next += 1;
        }
        lines.push(&text[start..if keep_ends { next } else { end }]);
        start = next;
    }
    if start < text.len() {
        lines.push(&text[start..]);
    }
    lines
}

fn expand_tabs(text: &str, size: usize) -> String {
    let (mut out, mut column) = (String::with_capacity(text.len()), 0);
    for c in text.chars() {
        match c {
            '\t' if size > 0 => {
                let spaces = size - column % size;
                out.extend(std::iter::repeat_n(' ', spaces));
                column += spaces;
            }
            '\t' => {}
            '\n' | '\r' => {
                out.push(c);
                column = 0;
            }
            c => {
                out.push(c);
                column += 1;
            }
        }
    }
    out
}
