//! What a record says: a conversation, an instruction and its answer, a text, or tokens.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::fields::Fields;
use crate::records::Record;
use crate::{ChatTemplate, Place, TextError, Unread};

/// What a record is for.
#[derive(Clone, Debug, PartialEq)]
pub enum Example {
    /// Turns of a conversation.
    Chat(Conversation),
    /// What is given, and what is to follow it.
    Completion {
        /// What is given.
        prompt: String,
        /// What follows.
        completion: String,
    },
    /// An answer that is preferred to another one, each with what is asked: two of the others.
    Pair(Box<[Example; 2]>),
    /// A text.
    Text(String),
    /// Tokens, and which of them are learnt; all of them where nothing says which.
    Tokens {
        /// The tokens.
        ids: Vec<u32>,
        /// Whether each is learnt.
        learned: Option<Vec<bool>>,
    },
}

/// The most bytes of an example that is no text: each is held several times while it is written and made tokens.
const BYTES_MAX: usize = 4 << 20;
/// What a value takes beside its letters, about.
const VALUE_BYTES: usize = 64;

/// Bytes that a value takes in memory, about.
fn weight(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(weight).sum(),
            Value::Object(fields) => fields.iter().map(|(k, v)| k.len() + weight(v)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

impl Example {
    /// Bytes that it takes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Chat(conversation) => {
                let all = conversation
                    .messages
                    .iter()
                    .chain(conversation.variables.values());
                all.map(weight).sum()
            }
            Self::Completion { prompt, completion } => prompt.len() + completion.len(),
            Self::Pair(both) => both.iter().map(Self::bytes).sum(),
            Self::Text(text) => text.len(),
            Self::Tokens { ids, .. } => 4 * ids.len(),
        }
    }
}

/// A conversation, as a chat template sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// The turns: objects with a `role` and a `content`.
    pub messages: Vec<Value>,
    /// What a template is given besides: `tools`, and the like.
    pub variables: Map<String, Value>,
    /// For each turn whether the record asks to learn nothing of it.
    pub(crate) left_out: Vec<bool>,
    /// How many turns are what is asked, where a record says so: all that is written behind them is its answer.
    pub(crate) asked: Option<usize>,
}

impl Conversation {
    /// A conversation of roles and texts.
    pub fn of<'a>(turns: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let turns = turns.into_iter();
        let messages: Vec<_> = turns
            .map(|(role, content)| json!({"role": role, "content": content}))
            .collect();
        Self {
            left_out: vec![false; messages.len()],
            messages,
            variables: Map::new(),
            asked: None,
        }
    }
}

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
    const ALL: [Self; 7] = [
        Self::Pairs,
        Self::Messages,
        Self::ShareGpt,
        Self::Tokens,
        Self::Completion,
        Self::Instruction,
        Self::Text,
    ];

    /// The fields that it must have.
    fn required(self) -> &'static [&'static str] {
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
    fn optional(self) -> &'static [&'static str] {
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

/// Reads examples of records.
#[derive(Clone, Debug)]
pub struct Reader {
    format: Format,
    map: FieldMap,
    /// Whether instructions become conversations, or text as Alpaca's.
    has_template: bool,
}

/// What a field of an expected name is called here; none where there is none.
fn called<'a>(fields: &Map<String, Value>, map: &'a FieldMap, name: &'a str) -> Option<&'a str> {
    if let Some(called) = map.0.get(name) {
        return fields.contains_key(called).then_some(called);
    }
    let aliases = ALIASES.iter().filter(|alias| alias.1 == name);
    let mut names = std::iter::once(name).chain(aliases.map(|alias| alias.0));
    names.find(|name| fields.contains_key(*name))
}

/// A field by its expected name.
pub(crate) fn field<'a>(
    fields: &'a Map<String, Value>,
    map: &FieldMap,
    name: &str,
) -> Option<&'a Value> {
    fields.get(called(fields, map, name)?)
}

impl Reader {
    /// A reader of records like the first one.
    ///
    /// # Errors
    /// [`TextError`] where its fields say nothing that is known.
    pub fn detect(first: &Record, map: FieldMap, has_template: bool) -> Result<Self, TextError> {
        let known: Vec<_> = Format::ALL.iter().flat_map(|f| f.required()).collect();
        for (name, called) in &map.0 {
            let optional = Format::ALL.iter().flat_map(|format| format.optional());
            let is_optional = optional.clone().any(|optional| optional == name);
            if !known.iter().any(|known| *known == name) && !is_optional {
                let problem = format!("--map {name}={called}: no field is called {name}");
                let names = known.iter().copied().chain(optional).copied();
                let nearest =
                    names.max_by(|a, b| strsim::jaro(a, name).total_cmp(&strsim::jaro(b, name)));
                let error = TextError::bad(first.place.clone(), problem);
                return Err(error.hinted(format!("perhaps {}", nearest.unwrap_or("text"))));
            }
            if !first.fields.contains_key(called) && known.iter().any(|known| *known == name) {
                let problem = format!("--map {name}={called}: there is no field {called}");
                return Err(
                    TextError::bad(first.place.clone(), problem).hinted(found(&first.fields))
                );
            }
        }
        let fits = |format: &&Format| {
            let mut required = format.required().iter();
            required.all(|name| field(&first.fields, &map, name).is_some())
        };
        let format = Format::ALL.iter().find(fits).ok_or_else(|| {
            let problem = "nothing that is known: expected messages, conversations, instruction and output, prompt \
                           and completion, chosen and rejected, text, or input_ids";
            let hint = format!("{}; say which is which, as --map text=FIELD", found(&first.fields));
            TextError::bad(first.place.clone(), problem).hinted(hint)
        })?;
        Ok(Self {
            format: *format,
            map,
            has_template,
        })
    }

    /// What records look like.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether examples need a chat template.
    pub fn needs_template(&self) -> bool {
        matches!(self.format, Format::Messages | Format::ShareGpt)
    }

    /// Counts the fields of a record that are not read.
    pub(crate) fn count_unread(
        &self,
        record: &Record,
        unread: &mut Unread,
        template: Option<&ChatTemplate>,
    ) {
        let names = self.format.required().iter().chain(self.format.optional());
        let read = names.filter_map(|name| called(&record.fields, &self.map, name));
        let read: Vec<&str> = read.collect();
        unread.count(&record.fields, |name| read.contains(&name), template);
    }

    /// What a record says.
    ///
    /// # Errors
    /// [`TextError`], naming the record and the field.
    pub fn read(&self, record: Record) -> Result<Example, TextError> {
        let Record { place, mut fields } = record;
        if self.format == Format::Text {
            return take_text(&place, &mut fields, &self.map);
        }
        let of = Fields {
            place: &place,
            values: &fields,
            map: &self.map,
        };
        of.refuse(self.format)?;
        let example = match self.format {
            Format::Messages => of.conversation("messages"),
            Format::ShareGpt => of.conversation("conversations"),
            Format::Instruction => of.instruction(self.has_template, "output"),
            Format::Completion => of.completion("completion"),
            Format::Pairs => of.pair(self.has_template),
            Format::Text => of.text("text").map(Example::Text),
            Format::Tokens => of.tokens(),
        }?;
        let bytes = example.bytes();
        if bytes > BYTES_MAX && !matches!(example, Example::Tokens { .. }) {
            let problem = format!(
                "it takes {} MiB; a record that is no text may take {}",
                bytes >> 20,
                BYTES_MAX >> 20
            );
            return Err(TextError::bad(place, problem)
                .hinted("leave out what is longer than any model reads, or cut it"));
        }
        Ok(example)
    }
}

/// The text of a record, which is not copied, as it may be long.
fn take_text(
    place: &Place,
    fields: &mut Map<String, Value>,
    map: &FieldMap,
) -> Result<Example, TextError> {
    let name = called(fields, map, "text").map(str::to_owned);
    if let Some(Value::String(text)) = name.and_then(|name| fields.get_mut(&name)) {
        return Ok(Example::Text(std::mem::take(text)));
    }
    let values = &*fields;
    let text = Fields { place, values, map }.text("text");
    text.map(Example::Text)
}

pub(crate) fn found(fields: &Map<String, Value>) -> String {
    let names: Vec<_> = fields.keys().take(20).map(String::as_str).collect();
    format!("its fields are {}", names.join(", "))
}
