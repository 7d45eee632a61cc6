//! What of a record is not read: fields of known conventions are refused by name where they change what is learnt, and
//! all others are counted.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::chat::ChatTemplate;
use crate::error::TextError;
use crate::example::fields::{Fields, says_something};
use crate::example::format::Format;
use crate::example::turns::{MEDIA, is_read_of_messages};

/// Fields that say whether an answer is a good one.
const VERDICTS: [&str; 2] = ["label", "kto_tag"];
/// The most names that are kept apart.
const NAMES_MAX: usize = 256;
/// The most names that are told.
const TOLD: usize = 12;

impl Fields<'_> {
    /// Refuses fields that a format has no place for, though they change what a record says.
    pub(crate) fn refuse(&self, format: Format) -> Result<(), TextError> {
        if matches!(format, Format::Text | Format::Tokens) {
            return Ok(());
        }
        if let Some(name) = MEDIA.iter().find(|name| self.is_unmapped(name)) {
            let problem = format!("{name} next to the text; this program reads text only");
            return Err(self
                .bad(problem)
                .hinted("remove the field to train on the text only"));
        }
        let verdict = VERDICTS.iter().find(|name| self.is_verdict(name));
        if let Some(name) = verdict.filter(|_| format != Format::Pairs) {
            let value = &self.values[*name];
            let problem =
                format!("{name} is {value}: a label for KTO, which this program does not support");
            let hint = format!(
                "keep the examples with good answers and remove {name}, or make pairs of chosen and rejected answers"
            );
            return Err(self.bad(problem).hinted(hint));
        }
        let foreign: &[&str] = match format {
            Format::Messages | Format::ShareGpt | Format::Completion => &["history"],
            Format::Pairs if self.said("instruction").is_none() => &["history"],
            Format::Instruction | Format::Pairs => &["tools", "documents"],
            Format::Text | Format::Tokens => &[],
        };
        self.refuse_named(foreign, format.name())
    }

    /// Refuses what stands beside texts and could only be written by a template.
    pub(crate) fn refuse_beside_texts(&self, what: &str) -> Result<(), TextError> {
        self.refuse_named(&["system", "tools", "documents", "history"], what)
    }

    fn refuse_named(&self, names: &[&str], what: &str) -> Result<(), TextError> {
        let Some(name) = names.iter().find(|name| self.said(name).is_some()) else {
            return Ok(());
        };
        let problem = format!("{name} next to {what} is not supported");
        let hint = format!(
            "give lists of messages, which a chat template writes with {name}, or leave it out"
        );
        Err(self.bad(problem).hinted(hint))
    }

    /// Whether a field of the name says something, and no other one was named for it.
    fn is_unmapped(&self, name: &str) -> bool {
        let is_mapped = self.map.0.values().any(|called| called == name);
        !is_mapped && self.values.get(name).is_some_and(says_something)
    }

    fn is_verdict(&self, name: &str) -> bool {
        let is_so = match self.values.get(name) {
            Some(Value::Bool(_)) => true,
            Some(Value::Number(number)) => matches!(number.as_f64(), Some(0.0 | 1.0)),
            Some(Value::String(text)) => {
                let text = text.trim().to_ascii_lowercase();
                matches!(&*text, "true" | "false" | "0" | "1")
            }
            _ => false,
        };
        is_so && self.is_unmapped(name)
    }
}

/// Counts fields that are not read.
#[derive(Clone, Debug, Default)]
pub struct Unread {
    fields: BTreeMap<String, u64>,
}

impl Unread {
    /// Counts a record's fields, but for those that are read.
    pub(crate) fn count(
        &mut self,
        fields: &Map<String, Value>,
        is_read: impl Fn(&str) -> bool,
        template: Option<&ChatTemplate>,
    ) {
        let mut found: Vec<String> = Vec::new();
        for (name, value) in fields {
            if !is_read(name) {
                if says_something(value) {
                    found.push(name.clone());
                }
                continue;
            }
            let (Value::Array(turns), Some(template)) = (value, template) else {
                continue;
            };
            // A template may read any field of a message.
            let turns = turns.iter().filter_map(Value::as_object);
            let named = turns.flat_map(|turn| turn.iter());
            for (inner, _) in named.filter(|(_, value)| says_something(value)) {
                if !is_read_of_messages(inner) && !template.mentions(inner) {
                    let name = format!("{name}[].{inner}");
                    if !found.contains(&name) {
                        found.push(name);
                    }
                }
            }
        }
        for name in found {
            if self.fields.len() < NAMES_MAX || self.fields.contains_key(&name) {
                *self.fields.entry(name).or_default() += 1;
            }
        }
    }

    /// What is not read, for people; none where everything is.
    pub fn describe(&self) -> Option<String> {
        let mut fields: Vec<_> = self.fields.iter().collect();
        fields.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let named = fields.iter().take(TOLD).map(|(name, count)| {
            let records = if **count == 1 { "example" } else { "examples" };
            format!("field `{name}` in {count} {records} is not read")
        });
        let mut lines: Vec<_> = named.collect();
        if fields.len() > TOLD {
            let more = fields.len() - TOLD;
            let least = if fields.len() < NAMES_MAX {
                ""
            } else {
                "at least "
            };
            lines.push(format!("{least}{more} more fields are not read"));
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}
