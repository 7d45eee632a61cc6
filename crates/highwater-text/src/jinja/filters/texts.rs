//! Filters of texts.

use std::fmt::Write;
use std::sync::Arc;

use crate::jinja::args::{self, Args};
use crate::jinja::error::{Error, Result};
use crate::jinja::letters::capitalized;
use crate::jinja::percent;
use crate::jinja::run::Run;
use crate::jinja::strings::{lines, strip};
use crate::jinja::unicode::{is_space, is_word};
use crate::jinja::value::{Dict, Value, View};

#[allow(clippy::too_many_lines, reason = "an arm of each filter")]
pub(super) fn apply(run: &mut Run, name: &str, value: Value, args: Args) -> Result<Value> {
    match name {
        "escape" | "e" | "forceescape" => {
            args.none(name)?;
            if matches!(value, Value::Markup(_)) && name != "forceescape" {
                return Ok(value);
            }
            let text = run.text(&value)?;
            Ok(Value::Markup(escaped(run, &text)?.into()))
        }
        "safe" => {
            args.none(name)?;
            Ok(Value::Markup(run.text(&value)?))
        }
        "striptags" => {
            args.none(name)?;
            let text = run.text(&value)?;
            strip_tags(run, &text).map(Value::str)
        }
        "upper" | "lower" | "capitalize" | "title" | "trim" | "center" | "wordcount" => {
            letters(run, name, &value, args)
        }
        "replace" => {
            let [old, new, count] = args.bind(name, ["old", "new", "count"], 2)?;
            let [text, old, new] = [
                value,
                old.unwrap_or(Value::None),
                new.unwrap_or(Value::None),
            ]
            .map(|value| run.text(&value));
            let count = match &count {
                None | Some(Value::None) => -1,
                Some(count) => args::count(count)?.into(),
            };
            run.replaced(&text?, &old?, &new?, count).map(Value::str)
        }
        "format" => {
            if !args.positional.is_empty() && !args.named.is_empty() {
                return Err(Error::raised(
                    "can't handle positional and keyword arguments at the same time",
                ));
            }
            if matches!(value, Value::Markup(_)) {
                return Err(Error::unsupported("format of escaped text"));
            }
            let text = run.text(&value)?;
            let values = if args.named.is_empty() {
                Value::tuple(args.positional)?
            } else {
                let items = args
                    .named
                    .into_iter()
                    .map(|(name, value)| (Value::Str(name), value));
                Value::Dict(Dict::new(items)?.into())
            };
            percent::format(run, &text, &values).map(Value::str)
        }
        "join" => {
            let [separator, attribute] = args.bind(name, ["d", "attribute"], 0)?;
            let separator = separator.map_or(Ok("".into()), |it| run.text(&it))?;
            let values = match attribute.filter(|it| !matches!(it, Value::None)) {
                Some(attribute) => {
                    let args = Args {
                        positional: Vec::new(),
                        named: vec![("attribute".into(), attribute)],
                    };
                    // What is empty has no attributes to look for.
                    let stream = run.filter("map", Value::list(run.values(&value)?)?, args)?;
                    run.values(&stream)?
                }
                None => run.values(&value)?,
            };
            let mut out = String::new();
            for (at, value) in values.iter().enumerate() {
                let text = run.text(value)?;
                run.spend_bytes(separator.len() + text.len())?;
                if at > 0 {
                    out.push_str(&separator);
                }
                out.push_str(&text);
            }
            Ok(Value::str(out))
        }
        "indent" => indent(run, &value, args),
        "truncate" => truncate(run, value, args),
        "wordwrap" => word_wrap(run, &value, args),
        "urlencode" => {
            args.none(name)?;
            url_encode(run, &value)
        }
        _ => xml_attributes(run, &value, args),
    }
}

/// A result that is escaped if what it was made of is.
fn like(value: &Value, text: impl Into<Arc<str>>) -> Value {
    match value {
        Value::Markup(_) => Value::Markup(text.into()),
        _ => Value::str(text),
    }
}

fn letters(run: &mut Run, name: &str, value: &Value, args: Args) -> Result<Value> {
    let text = run.text(value)?;
    run.spend_bytes(text.len())?;
    match name {
        "trim" => {
            let [chars] = args.bind(name, ["chars"], 0)?;
            Ok(like(value, strip(&text, "strip", chars.as_ref())?))
        }
        "center" => {
            let [width] = args.bind(name, ["width"], 0)?;
            let width = width.as_ref().map_or(Ok(80), args::size)?;
            Ok(like(value, run.padded(&text, "center", width, ' ')?))
        }
        _ => {
            args.none(name)?;
            Ok(match name {
                "upper" => like(value, text.to_uppercase()),
                "lower" => like(value, text.to_lowercase()),
                "capitalize" => like(value, capitalized(&text)),
                "title" => Value::str(titled(&text)),
                _ => {
                    let words = text.split(|c| !is_word(c)).filter(|word| !word.is_empty());
                    Value::Int(words.count() as i128)
                }
            })
        }
    }
}

fn titled(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let begins = |c: char| is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let same = begins(first);
        let end = rest.find(|c| begins(c) != same).unwrap_or(rest.len());
        let (item, after) = rest.split_at(end);
        out.extend(first.to_uppercase());
        out.push_str(&item[first.len_utf8()..].to_lowercase());
        rest = after;
    }
    out
}

/// A text without characters that HTML reads otherwise.
fn escaped(run: &Run, text: &str) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '>' => out.push_str("&gt;"),
            '<' => out.push_str("&lt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    run.spend_bytes(out.len())?;
    Ok(out)
}

fn strip_tags(run: &Run, text: &str) -> Result<String> {
    let mut text = text.to_owned();
    for [begin, end] in [["<!--", "-->"], ["<", ">"]] {
        while let Some(start) = text.find(begin) {
            run.spend_bytes(64 + text.len())?;
            let Some(length) = text[start..].find(end) else {
                break;
            };
            text.replace_range(start..start + length + end.len(), "");
        }
    }
    if text.contains('&') {
        return Err(Error::unsupported("striptags of a text with entities"));
    }
    let words: Vec<_> = text
        .split(is_space)
        .filter(|word| !word.is_empty())
        .collect();
    Ok(words.join(" "))
}

fn indent(run: &mut Run, value: &Value, args: Args) -> Result<Value> {
    let [width, first, blank] = args.bind("indent", ["width", "first", "blank"], 0)?;
    let indention = match width.unwrap_or(Value::Int(4)) {
        Value::Str(text) => text.to_string(),
        other => {
            let width = args::size(&other)?;
            run.spend_bytes(width)?;
            " ".repeat(width)
        }
    };
    let text = args::text(value, "indent")?;
    let (first, blank) = (
        args::flag(first.as_ref(), false),
        args::flag(blank.as_ref(), false),
    );
    let ended = format!("{text}\n");
    let mut out = String::new();
    for (at, line) in lines(&ended, false).into_iter().enumerate() {
        run.spend_bytes(64 + indention.len() + line.len())?;
        if at > 0 {
            out.push('\n');
        }
        let indents = if at == 0 {
            first
        } else {
            blank || !line.is_empty()
        };
        if indents {
            out.push_str(&indention);
        }
        out.push_str(line);
    }
    Ok(Value::str(out))
}

fn truncate(run: &mut Run, value: Value, args: Args) -> Result<Value> {
    let [length, kill, end, leeway] =
        args.bind("truncate", ["length", "killwords", "end", "leeway"], 0)?;
    let length = args::int_or(length.as_ref(), 255)?;
    let end = end.unwrap_or_else(|| Value::str("..."));
    let end = args::text(&end, "truncate")?;
    let leeway = match &leeway {
        None | Some(Value::None) => 5,
        Some(leeway) => args::int(leeway)?,
    };
    let end_length = end.chars().count() as i128;
    if length < end_length || leeway < 0 {
        return Err(Error::raised(format!(
            "expected length >= {end_length}, got {length}"
        )));
    }
    if run.length_of(&value)? as i128 <= length.saturating_add(leeway) {
        return Ok(value);
    }
    let text = args::text(&value, "truncate")?;
    let kept = usize::try_from(length - end_length).unwrap_or(usize::MAX);
    let kept: String = text.chars().take(kept).collect();
    if args::flag(kill.as_ref(), false) {
        return Ok(Value::str(kept + end));
    }
    let words = kept.rsplit_once(' ').map_or(&kept[..], |(words, _)| words);
    Ok(Value::str(format!("{words}{end}")))
}

/// As Python's `textwrap` without `expand_tabs` and `replace_whitespace`.
fn word_wrap(run: &mut Run, value: &Value, args: Args) -> Result<Value> {
    let parameters = [
        "width",
        "break_long_words",
        "wrapstring",
        "break_on_hyphens",
    ];
    let [width, breaks, between, hyphens] = args.bind("wordwrap", parameters, 0)?;
    let width = args::int_or(width.as_ref(), 79)?;
    let breaks = args::flag(breaks.as_ref(), true);
    let between = between
        .filter(|it| !matches!(it, Value::None))
        .unwrap_or_else(|| Value::str("\n"));
    let between = args::text(&between, "wordwrap")?;
    let text = args::text(value, "wordwrap")?;
    if text.contains('-') && args::flag(hyphens.as_ref(), true) {
        return Err(Error::unsupported("wordwrap of a text with hyphens"));
    }
    let mut out = Vec::new();
    for line in lines(text, false) {
        let chunks = chunks(line);
        if width <= 0 && !chunks.is_empty() {
            return Err(Error::raised(format!(
                "invalid width {width} (must be > 0)"
            )));
        }
        run.spend(chunks.len() as u64)?;
        let wrapped = wrapped(chunks, width as usize, breaks);
        out.push(wrapped.join(&**between));
    }
    let text = out.join(&**between);
    run.spend_bytes(text.len())?;
    Ok(Value::str(text))
}

/// Words, and white space between them.
fn chunks(line: &str) -> Vec<String> {
    let space = |c: char| matches!(c, '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' | ' ');
    let (mut chunks, mut rest) = (Vec::new(), line);
    while let Some(first) = rest.chars().next() {
        let same = space(first);
        let end = rest.find(|c| space(c) != same).unwrap_or(rest.len());
        chunks.push(rest[..end].to_owned());
        rest = &rest[end..];
    }
    chunks
}

fn wrapped(mut chunks: Vec<String>, width: usize, breaks: bool) -> Vec<String> {
    let blank = |chunk: &String| chunk.chars().all(is_space);
    let mut lines = Vec::new();
    chunks.reverse();
    while !chunks.is_empty() {
        let (mut line, mut length) = (Vec::new(), 0);
        if !lines.is_empty() {
            chunks.pop_if(|chunk| blank(chunk));
        }
        while let Some(chunk) = chunks.last() {
            let more = chunk.chars().count();
            if length + more > width {
                break;
            }
            length += more;
            line.extend(chunks.pop());
        }
        if let Some(chunk) = chunks
            .last_mut()
            .filter(|chunk| chunk.chars().count() > width)
        {
            if breaks {
                let space = width.saturating_sub(length).max(usize::from(width < 1));
                let at = chunk
                    .char_indices()
                    .nth(space)
                    .map_or(chunk.len(), |(at, _)| at);
                let rest = chunk.split_off(at);
                line.push(std::mem::replace(chunk, rest));
            } else if line.is_empty() {
                line.extend(chunks.pop());
            }
        }
        line.pop_if(|chunk| blank(chunk));
        if !line.is_empty() {
            lines.push(line.concat());
        }
    }
    lines
}

fn url_encode(run: &mut Run, value: &Value) -> Result<Value> {
    let pairs = match value {
        Value::Dict(dict) => run.values(&Value::View(View::Items, dict.clone()))?,
        Value::Str(_) | Value::Markup(_) => return Ok(Value::str(quote(&run.text(value)?, true))),
        Value::Loop(_) => return Err(Error::unsupported("urlencode of a loop")),
        other => match run.values(other) {
            Ok(pairs) => pairs,
            Err(_) => return Ok(Value::str(quote(&run.text(value)?, true))),
        },
    };
    let mut parts = Vec::new();
    for pair in pairs {
        let pair = run.values(&pair)?;
        let [key, value] = &pair[..] else {
            return Err(Error::raised("expected pairs of a key and a value"));
        };
        let both = [key, value].map(|it| Ok(quote(&run.text(it)?, false).replace("%20", "+")));
        let [key, value] = both;
        parts.push(format!("{}={}", key?, value?));
    }
    let text = parts.join("&");
    run.spend_bytes(text.len())?;
    Ok(Value::str(text))
}

fn quote(text: &str, slashes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'~');
        if plain || (slashes && byte == b'/') {
            out.push(byte.into());
        } else {
            // A string takes all that is written to it.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn xml_attributes(run: &mut Run, value: &Value, args: Args) -> Result<Value> {
    let [spaced] = args.bind("xmlattr", ["autospace"], 0)?;
    let Value::Dict(dict) = value.defined()? else {
        return Err(Error::raised("xmlattr of what has no items"));
    };
    let mut parts = Vec::new();
    for (key, value) in &dict.items {
        if matches!(value, Value::None | Value::Undefined(_)) {
            continue;
        }
        let key = key
            .as_str()
            .ok_or_else(|| Error::raised("expected string or bytes-like object"))?;
        let bad = |c: char| {
            matches!(
                c,
                ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}' | '/' | '>' | '='
            )
        };
        if key.contains(bad) {
            return Err(Error::raised("Invalid character in attribute name"));
        }
        let text = match value {
            Value::Markup(text) => text.to_string(),
            other => escaped(run, &run.text(other)?)?,
        };
        parts.push(format!("{}=\"{text}\"", escaped(run, key)?));
    }
    let mut text = parts.join(" ");
    if !text.is_empty() && args::flag(spaced.as_ref(), true) {
        text.insert(0, ' ');
    }
    Ok(Value::str(text))
}
