//! Chat templates: how a model wants a conversation written, as `apply_chat_template` of Hugging Face's tokenizers
//! writes it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use chrono::{Local, NaiveDateTime};
use highwater_memory::Files;
use serde_json::{Map, Value as Json, json};

use crate::chat::conversation::Conversation;
use crate::error::{Place, TextError};
use crate::files::read_text;
use crate::jinja::{self, ErrorKind, Rendered};
use crate::tokenizer::Tokenizer;

/// The longest template, in bytes.
const SOURCE_MAX: usize = 256 << 10;

const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}<|im_end|>\n\
     {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A compiled template.
#[derive(Debug)]
pub struct ChatTemplate {
    template: jinja::Template,
    source: String,
    source_name: String,
    /// The special tokens, as a template sees them: `bos_token` and so on.
    special: Map<String, Json>,
    /// What the template is told of today. It is read once, so that all rows of a run have the same day.
    now: NaiveDateTime,
    /// How the template reads what a message says.
    contents: OnceLock<Contents>,
}

/// What a template takes for what a message says, where it takes one form alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    /// A text or a list of parts, or nothing tells.
    Any,
    /// A text.
    Text,
    /// A list of parts.
    Parts,
}

/// What a model's folder says of special tokens: `bos_token`, `eos_token` and so on, by name.
#[derive(Clone, Debug, Default)]
pub struct SpecialTokens(Map<String, Json>);

impl SpecialTokens {
    /// Those of a `tokenizer_config.json`, or of the older `special_tokens_map.json` beside it.
    ///
    /// # Errors
    /// [`TextError`] for a file that is not JSON.
    pub fn load(files: &dyn Files, folder: &Path) -> Result<Self, TextError> {
        let mut found = Map::new();
        for file in ["special_tokens_map.json", "tokenizer_config.json"] {
            let Some(Json::Object(fields)) = read_json(files, &folder.join(file))? else {
                continue;
            };
            for (name, value) in fields {
                let content = match value {
                    Json::String(content) => content,
                    Json::Object(token) => match token.get("content") {
                        Some(Json::String(content)) => content.clone(),
                        _ => continue,
                    },
                    _ => continue,
                };
                if name.ends_with("_token") {
                    found.insert(name, Json::String(content));
                }
            }
        }
        Ok(Self(found))
    }

    /// One of them, such as `eos_token`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Json::as_str)
    }
}

/// The tokens that end a text of a model: those that `generation_config.json` or `config.json` number as
/// `eos_token_id`, and `eos_token`.
///
/// # Errors
/// [`TextError`] for a file that is not JSON.
pub fn ends_of_texts(
    files: &dyn Files,
    folder: &Path,
    tokenizer: &Tokenizer,
) -> Result<Vec<u32>, TextError> {
    let special = SpecialTokens::load(files, folder)?;
    let named = special
        .get("eos_token")
        .and_then(|token| tokenizer.token_id(token));
    let mut ends: Vec<u32> = named.into_iter().collect();
    for file in ["generation_config.json", "config.json"] {
        let fields = read_json(files, &folder.join(file))?.unwrap_or_default();
        let numbers = match &fields["eos_token_id"] {
            Json::Array(numbers) => numbers.iter().filter_map(Json::as_u64).collect(),
            number => number.as_u64().into_iter().collect::<Vec<_>>(),
        };
        let numbers = numbers
            .into_iter()
            .filter_map(|number| u32::try_from(number).ok());
        ends.extend(numbers.filter(|&number| (number as usize) < tokenizer.vocab_size()));
    }
    ends.dedup();
    Ok(ends)
}

impl ChatTemplate {
    /// The template of OpenAI's ChatML, which many models were trained with.
    pub const CHATML: &str = CHATML;

    /// The template of a model's folder: `chat_template.jinja`, or what `chat_template.json` or
    /// `tokenizer_config.json` have under `chat_template`; of several by name the one called `default`.
    ///
    /// # Errors
    /// [`TextError`] for a template that cannot be read.
    pub fn load(
        files: &dyn Files,
        folder: &Path,
        special: &SpecialTokens,
    ) -> Result<Option<Self>, TextError> {
        let alone = folder.join("chat_template.jinja");
        if files.metadata(&alone)?.is_some() {
            return Self::read(files, &alone, special).map(Some);
        }
        for file in ["chat_template.json", "tokenizer_config.json"] {
            let path = folder.join(file);
            let Some(Json::Object(fields)) = read_json(files, &path)? else {
                continue;
            };
            let source = match fields.get("chat_template") {
                Some(Json::String(source)) => source,
                Some(Json::Array(named)) => {
                    let default = named.iter().find(|each| each["name"] == "default");
                    match default.map(|default| &default["template"]) {
                        Some(Json::String(source)) => source,
                        _ => continue,
                    }
                }
                _ => continue,
            };
            return Self::parse(path.display().to_string(), source, special).map(Some);
        }
        Ok(None)
    }

    /// The template of a file.
    ///
    /// # Errors
    /// [`TextError`] for one that cannot be read or is no template.
    pub fn read(
        files: &dyn Files,
        path: &Path,
        special: &SpecialTokens,
    ) -> Result<Self, TextError> {
        let source = read_text(files, path)?;
        Self::parse(path.display().to_string(), &source, special)
    }

    /// ChatML, for models without a template.
    ///
    /// # Errors
    /// None in fact: it is a template.
    pub fn chatml(special: &SpecialTokens) -> Result<Self, TextError> {
        Self::parse("chatml".to_owned(), CHATML, special)
    }

    /// Compiles a template.
    ///
    /// # Errors
    /// [`TextError::Template`] with the line that is at fault.
    pub fn parse(
        source_name: String,
        source: &str,
        special: &SpecialTokens,
    ) -> Result<Self, TextError> {
        let parsed = if source.len() > SOURCE_MAX {
            let bytes = source.len();
            Err(jinja::Error::too_much(format!(
                "{bytes} bytes; at most {SOURCE_MAX} are read"
            )))
        } else {
            jinja::with_stack(|| jinja::Template::parse(source)).and_then(|parsed| parsed)
        };
        let template = parsed.map_err(|error| failed(&source_name, &error))?;
        Ok(Self {
            template,
            source: source.to_owned(),
            source_name,
            special: special.0.clone(),
            now: local_time(),
            contents: OnceLock::new(),
        })
    }

    /// The same at another time, for templates that write the date.
    #[must_use]
    pub fn at(mut self, now: NaiveDateTime) -> Self {
        self.now = now;
        self
    }

    /// Where it is from.
    pub fn source_name(&self) -> &str {
        &self.source_name
    }

    /// Whether a name stands anywhere in the template: fields of others cannot be read by it.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        self.source.contains(name)
    }

    /// Whether the template itself says what the assistant's turns are, by `{% generation %}`.
    pub(crate) fn marks_turns(&self) -> bool {
        self.template.marks_turns()
    }

    /// A special token, as the template sees it.
    pub(crate) fn special(&self, name: &str) -> Option<&str> {
        self.special.get(name).and_then(Json::as_str)
    }

    /// A conversation as the model is to read it; with `prompt`, up to where its next turn begins.
    ///
    /// # Errors
    /// [`TextError::Template`] with what the template says against it.
    pub fn render(&self, conversation: &Conversation, prompt: bool) -> Result<String, TextError> {
        let rendered =
            self.on_its_stack(|| self.rendered(conversation, &conversation.messages, prompt));
        rendered.map(|rendered| rendered.text)
    }

    /// Does something that renders, on a thread whose stack is large enough.
    pub(crate) fn on_its_stack<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, TextError> + Send,
    ) -> Result<T, TextError> {
        let done = jinja::with_stack(work);
        done.map_err(|error| failed(&self.source_name, &error))?
    }

    /// Some messages of a conversation, with what is known of where each is in the text.
    pub(crate) fn rendered(
        &self,
        conversation: &Conversation,
        messages: &[Json],
        prompt: bool,
    ) -> Result<Rendered, TextError> {
        let contents = *self.contents.get_or_init(|| self.contents());
        let messages = messages
            .iter()
            .map(with_reasoning)
            .map(|message| contents.give(message));
        self.rendered_as_is(conversation, messages.collect(), prompt)
    }

    /// How the template reads what messages say: tried with a question in both forms. Many templates pass over one of
    /// them without a word, which would leave the text out.
    fn contents(&self) -> Contents {
        const ASKED: &str = "What is the time?";
        let reads = |content: Json| {
            let messages = vec![json!({"role": "user", "content": content})];
            let rendered = self.rendered_as_is(&Conversation::default(), messages, false);
            rendered.is_ok_and(|rendered| rendered.text.contains(ASKED))
        };
        // A list that is written as it is was not read.
        let parts = json!([{"type": "text", "text": ASKED}]);
        let written = self.rendered_as_is(
            &Conversation::default(),
            vec![json!({"role": "user", "content": parts})],
            false,
        );
        let reads_parts = written.is_ok_and(|rendered| {
            rendered.text.contains(ASKED)
                && !rendered.text.contains("'type'")
                && !rendered.text.contains("\"type\"")
        });
        match (reads(ASKED.into()), reads_parts) {
            (true, false) => Contents::Text,
            (false, true) => Contents::Parts,
            _ => Contents::Any,
        }
    }

    fn rendered_as_is(
        &self,
        conversation: &Conversation,
        messages: Vec<Json>,
        prompt: bool,
    ) -> Result<Rendered, TextError> {
        let messages = Json::Array(messages);
        let prompt = Json::Bool(prompt);
        // As where transformers is given none: there, and nothing.
        let none = [("tools", &Json::Null), ("documents", &Json::Null)];
        let given = self.special.iter().chain(&conversation.variables);
        let given = given.map(|(name, value)| (name.as_str(), value));
        let own = [("messages", &messages), ("add_generation_prompt", &prompt)];
        // What comes later replaces what has the same name.
        let names: Map<String, Json> = none
            .into_iter()
            .chain(given)
            .chain(own)
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect();
        let names = names.iter().map(|(name, value)| (name.as_str(), value));
        let rendered = self.template.render(names, self.now);
        rendered.map_err(|error| failed(&self.source_name, &error))
    }
}

impl Contents {
    /// A message whose content a template reads.
    fn give(self, mut message: Json) -> Json {
        let Some(content) = message.get_mut("content") else {
            return message;
        };
        match (self, &*content) {
            (Self::Text, Json::Array(parts)) => {
                let texts = parts.iter().map(|part| part["text"].as_str());
                if let Some(texts) = texts.collect::<Option<Vec<_>>>() {
                    *content = texts.concat().into();
                }
            }
            (Self::Parts, Json::String(text)) => {
                *content = json!([{"type": "text", "text": text}]);
            }
            _ => {}
        }
        message
    }
}

/// Names that a message's reasoning has in data. The first is the one that templates read.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// A message with its reasoning under the names that templates know, as transformers gives it to them.
fn with_reasoning(message: &Json) -> Json {
    let found = REASONING
        .iter()
        .find_map(|name| message.get(name).filter(|it| !it.is_null()));
    let (Some(reasoning), Json::Object(fields)) = (found.cloned(), message) else {
        return message.clone();
    };
    let mut all = Map::new();
    all.insert("thinking".to_owned(), reasoning.clone());
    all.extend(fields.clone());
    all.insert("reasoning_content".to_owned(), reasoning);
    Json::Object(all)
}

/// What a clock on the wall shows.
fn local_time() -> NaiveDateTime {
    Local::now().naive_local()
}

fn failed(source_name: &str, error: &jinja::Error) -> TextError {
    let line = error.line.map(|line| format!("line {line}: "));
    let hint = match error.kind {
        ErrorKind::Raised => None,
        ErrorKind::Unsupported => Some(
            "write the template without it; this program renders templates exactly as Jinja2 does, or not at all",
        ),
        ErrorKind::TooMuch => Some("the template does more than writing such a conversation takes"),
    };
    TextError::Template {
        source_name: source_name.to_owned(),
        problem: format!(
            "the chat template: {}{}",
            line.unwrap_or_default(),
            error.problem
        ),
        hint: hint.map(str::to_owned),
    }
}

fn read_json(files: &dyn Files, path: &PathBuf) -> Result<Option<Json>, TextError> {
    if files.metadata(path)?.is_none() {
        return Ok(None);
    }
    let text = read_text(files, path)?;
    let parsed = serde_json::from_str(&text);
    parsed
        .map(Some)
        .map_err(|error| TextError::bad(Place::of(path), format!("not JSON: {error}")))
}
