//! What records look like: the fields of each format, and what they are called in the data.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// What records look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `messages`: a list of `role` and `content`, as OpenAI has it.
    Messages,
    /// `conversations`: a list of `from` and `value`, as ShareGPT has it.
    ShareGpt,
    /// `instruction`, perhaps `input`, and `output`, as Alpaca has it.
    Instruction,
    /// `prompt` and `completion`: texts or lists of messages.
    Completion,
    /// `chosen` and `rejected`, perhaps with `prompt`: texts or lists of messages.
    Pairs,
    /// `text`.
    Text,
    /// `input_ids`, perhaps `labels`.
    Tokens,
}

impl Format {
    pub(super) const ALL: [Self; 7] = [
        Self::Pairs,
        Self::Messages,
        Self::ShareGpt,
        Self::Tokens,
        Self::Completion,
        Self::Instruction,
        Self::Text,
    ];

    /// The fields that it must have.
    pub(super) fn required(self) -> &'static [&'static str] {
        match self {
            Self::Messages => &["messages"],
            Self::ShareGpt => &["conversations"],
            Self::Instruction => &["instruction", "output"],
            Self::Completion => &["prompt", "completion"],
            Self::Pairs => &["chosen", "rejected"],
            Self::Text => &["text"],
            Self::Tokens => &["input_ids"],
        }
    }

    /// Further fields that are read.
    pub(super) fn optional(self) -> &'static [&'static str] {
        match self {
            Self::Messages | Self::ShareGpt | Self::Completion => TEMPLATE,
            Self::Instruction => &["input", "system", "history"],
            Self::Pairs => &[
                "prompt",
                "system",
                "tools",
                "documents",
                "chat_template_kwargs",
                "messages",
                "conversations",
                "instruction",
                "input",
                "history",
            ],
            Self::Text => &[],
            Self::Tokens => &[
                "labels",
                "attention_mask",
                "completion_mask",
                "assistant_masks",
                "loss_mask",
            ],
        }
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Messages => "conversations (messages)",
            Self::ShareGpt => "conversations (ShareGPT)",
            Self::Instruction => "instructions (Alpaca)",
            Self::Completion => "prompts and completions",
            Self::Pairs => "pairs of answers (chosen and rejected)",
            Self::Text => "texts",
            Self::Tokens => "tokens",
        }
    }
}

/// What stands beside messages, for the template.
const TEMPLATE: &[&str] = &["system", "tools", "documents", "chat_template_kwargs"];

/// What fields are called in the data, where they are called otherwise than expected: by the expected name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldMap(pub BTreeMap<String, String>);

/// Names that are taken for another without being told.
const ALIASES: [(&str, &str); 9] = [
    ("conversation", "conversations"),
    ("dialog", "messages"),
    ("response", "output"),
    ("response", "completion"),
    // Dolly's.
    ("context", "input"),
    // OpenOrca's.
    ("system_prompt", "system"),
    ("question", "prompt"),
    ("answer", "completion"),
    ("content", "text"),
];

/// What a field of an expected name is called here; none where there is none.
pub(super) fn called<'a>(
    fields: &Map<String, Value>,
    map: &'a FieldMap,
    name: &'a str,
) -> Option<&'a str> {
    if let Some(called) = map.0.get(name) {
        return fields.contains_key(called).then_some(called);
    }
    let aliases = ALIASES.iter().filter(|alias| alias.1 == name);
    let mut names = std::iter::once(name).chain(aliases.map(|alias| alias.0));
    names.find(|name| fields.contains_key(*name))
}

/// A field by its expected name.
pub(super) fn field<'a>(
    fields: &'a Map<String, Value>,
    map: &FieldMap,
    name: &str,
) -> Option<&'a Value> {
    fields.get(called(fields, map, name)?)
}

/// Which fields there are, for a hint.
pub(super) fn found(fields: &Map<String, Value>) -> String {
    let names: Vec<_> = fields.keys().take(20).map(String::as_str).collect();
    format!("its fields are {}", names.join(", "))
}
