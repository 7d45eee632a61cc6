//! JSON as Python's `json.dumps` writes it: templates were written for that.

use std::fmt::Write;

use serde_json::Value;

/// How it is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Style {
    /// Spaces of each level; all on one line without.
    pub(crate) indent: Option<usize>,
    /// Whether keys are in the order of the alphabet.
    pub(crate) sorted: bool,
    /// What is between items, and between a key and its value.
    pub(crate) separators: Option<[String; 2]>,
    /// Whether letters beyond ASCII are escaped.
    pub(crate) ascii: bool,
}

/// The text of a value.
pub(crate) fn to_string(value: &Value, style: &Style) -> String {
    let between = match (&style.separators, style.indent) {
        (Some(both), _) => both.clone(),
        (None, Some(_)) => [",", ": "].map(str::to_owned),
        (None, None) => [", ", ": "].map(str::to_owned),
    };
    let mut writer = Writer {
        out: String::new(),
        style,
        between,
    };
    writer.value(value, 0);
    writer.out
}

struct Writer<'a> {
    out: String,
    style: &'a Style,
    between: [String; 2],
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) {
        match value {
            Value::String(text) => self.string(text),
            Value::Array(items) => {
                let items = items.iter().map(|item| (None, item));
                self.items(['[', ']'], items.collect(), depth);
            }
            Value::Object(fields) => {
                let mut items: Vec<_> = fields.iter().map(|(k, v)| (Some(k), v)).collect();
                if self.style.sorted {
                    items.sort_by_key(|&(key, _)| key);
                }
                self.items(['{', '}'], items, depth);
            }
            // Rust's exponents have neither a sign nor two digits.
            Value::Number(number) => self.out.push_str(&number.to_string()),
            Value::Null | Value::Bool(_) => self.out.push_str(&value.to_string()),
        }
    }

    fn items(&mut self, around: [char; 2], items: Vec<(Option<&String>, &Value)>, depth: usize) {
        self.out.push(around[0]);
        let empty = items.is_empty();
        for (i, (key, value)) in items.into_iter().enumerate() {
            if i > 0 {
                self.out.push_str(&self.between[0]);
            }
            self.line(depth + 1);
            if let Some(key) = key {
                self.string(key);
                self.out.push_str(&self.between[1]);
            }
            self.value(value, depth + 1);
        }
        if !empty {
            self.line(depth);
        }
        self.out.push(around[1]);
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.style.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.style.ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // A string takes all that is written to it.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_is_what_python_writes() {
        let value = json!({"b": [1, 2.5, true, null], "a": "ü\n\u{1}\"", "c": {}, "d": []});
        let text = to_string(&value, &Style::default());
        assert_eq!(
            text,
            r#"{"b": [1, 2.5, true, null], "a": "ü\n\u0001\"", "c": {}, "d": []}"#
        );
        let style = Style {
            indent: Some(2),
            sorted: true,
            ascii: true,
            separators: None,
        };
        let text = to_string(&value, &style);
        let expected = "{\n  \"a\": \"\\u00fc\\n\\u0001\\\"\",\n  \"b\": [\n    1,\n    2.5,\n    true,\n    null\n  ],\n  \"c\": {},\n  \"d\": []\n}";
        assert_eq!(text, expected);
    }
}
