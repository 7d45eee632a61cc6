//! Chat templates: how a model wants a conversation written, in Jinja, as `apply_chat_template` of Hugging Face's
//! tokenizers has it. Templates are programs of strangers: they run with fuel, and see nothing but what they are
//! given.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use highwater_memory::Files;
use highwater_models::Tokenizer;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, Error, ErrorKind, State};
use serde_json::{Map, Value as Json};

use crate::files::read_text;
use crate::{Conversation, TextError, python_json};

/// What a rendering may take: so many instructions, or so many times 64 bytes.
const FUEL: u64 = 1 << 20;
/// How deep macros may call each other.
const DEPTH: usize = 100;
/// Today, to templates: the day that Llama's take where nobody says which it is.
const TODAY: (i32, u32, u32) = (2024, 7, 26);
/// The longest template, in bytes.
const SOURCE_MAX: usize = 256 << 10;
/// The longest tag of one, without the texts in it.
const TAG_MAX: usize = 4 << 10;
/// The most spaces of a level of JSON.
const INDENT_MAX: usize = 16;
/// The template's name within its environment.
const NAME: &str = "chat";

/// What is written where an assistant's turn begins, and where it ends: characters for private use, that no text has.
pub(crate) const MARKS: [char; 2] = ['\u{10FFFC}', '\u{10FFFD}'];

const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}<|im_end|>\n\
     {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A compiled template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source_name: String,
    /// The special tokens, as a template sees them: `bos_token` and so on.
    special: Map<String, Json>,
    marks_turns: bool,
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
        let mut environment = Environment::new();
        let mut syntax = SyntaxConfig::builder();
        let syntax = syntax.trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| failed(&source_name, &error))?);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(DEPTH);
        environment.set_unknown_method_callback(method);
        environment.add_function("raise_exception", |message: String| {
            Err::<Value, _>(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", now);
        environment.add_filter("tojson", to_json);
        if let Some(problem) = too_much(source) {
            return Err(TextError::Template {
                source_name,
                problem: format!("the chat template: {problem}"),
                hint: None,
            });
        }
        let (source, marks_turns) = mark_turns(source);
        let added = environment.add_template_owned(NAME, source);
        added.map_err(|error| failed(&source_name, &error))?;
        Ok(Self {
            environment,
            source_name,
            special: special.0.clone(),
            marks_turns,
        })
    }

    /// Where it is from.
    pub fn source_name(&self) -> &str {
        &self.source_name
    }

    /// Whether the template itself says what the assistant's turns are, by `{% generation %}`.
    pub(crate) fn marks_turns(&self) -> bool {
        self.marks_turns
    }

    /// A conversation as the model is to read it; with `prompt`, up to where its next turn begins.
    ///
    /// # Errors
    /// [`TextError::Template`] with what the template says against it.
    pub fn render(&self, conversation: &Conversation, prompt: bool) -> Result<String, TextError> {
        let mut text = self.render_marked(conversation, &conversation.messages, prompt)?;
        if self.marks_turns {
            text.retain(|c| !MARKS.contains(&c));
        }
        Ok(text)
    }

    /// The same of other messages, with marks where turns begin and end if the template says so.
    pub(crate) fn render_marked(
        &self,
        conversation: &Conversation,
        messages: &[Json],
        prompt: bool,
    ) -> Result<String, TextError> {
        // As where transformers is given none: there, and nothing.
        let none = [("tools", &Json::Null), ("documents", &Json::Null)];
        let given = self.special.iter().chain(&conversation.variables);
        let given = given.map(|(name, value)| (name.as_str(), value));
        let given = none.into_iter().chain(given);
        let mut context: BTreeMap<&str, Value> = given
            .map(|(name, value)| (name, Serde(value).into()))
            .collect();
        context.insert("messages", Serde(messages).into());
        context.insert("add_generation_prompt", prompt.into());
        let template = self.environment.get_template(NAME);
        let rendered = template.and_then(|it| it.render(context));
        rendered.map_err(|error| failed(&self.source_name, &error))
    }
}

/// Why a template is not even compiled: what is nested by thousands takes the stack of a thread.
fn too_much(source: &str) -> Option<String> {
    if source.len() > SOURCE_MAX {
        return Some(format!(
            "{} bytes; at most {SOURCE_MAX} are read",
            source.len()
        ));
    }
    // Bytes of the tag that is open, and the quote of the text in it; one pass, whoever wrote it.
    let (mut code, mut quote): (Option<usize>, Option<u8>) = (None, None);
    let mut pairs = source.as_bytes().windows(2);
    while let Some(pair) = pairs.next() {
        match (code, quote, pair) {
            (None, _, [b'{', b'{' | b'%']) => code = Some(0),
            (None, ..) => {}
            // Texts within it are as long as they like.
            (_, Some(_), [b'\\', _]) => drop(pairs.next()),
            (_, Some(open), [byte, _]) if open == *byte => quote = None,
            (_, Some(_), _) => {}
            (_, None, [byte @ (b'"' | b'\''), _]) => quote = Some(*byte),
            (_, None, [b'}' | b'%', b'}']) => code = None,
            (Some(bytes), None, _) if bytes == TAG_MAX => {
                return Some(format!(
                    "a tag has more than {TAG_MAX} bytes; at most so many are read"
                ));
            }
            (Some(bytes), None, _) => code = Some(bytes + 1),
        }
    }
    None
}

fn failed(source_name: &str, error: &Error) -> TextError {
    let line = error.line().map(|line| format!("line {line}: "));
    let detail = error.detail().map(str::to_owned);
    let problem = detail.unwrap_or_else(|| error.kind().to_string());
    let hint = (error.kind() == ErrorKind::OutOfFuel)
        .then(|| "the template does more than writing such a conversation takes".to_owned());
    TextError::Template {
        source_name: source_name.to_owned(),
        problem: format!("the chat template: {}{problem}", line.unwrap_or_default()),
        hint,
    }
}

/// A template whose `{% generation %}` blocks write marks. White space around tags is treated as before.
fn mark_turns(source: &str) -> (String, bool) {
    let (mut out, mut rest, mut found) = (String::with_capacity(source.len()), source, false);
    while let Some(start) = rest.find("{%") {
        let Some(end) = rest[start..].find("%}").map(|end| start + end + 2) else {
            break;
        };
        let inner = &rest[start + 2..end - 2];
        let before = inner.starts_with(['-', '+']).then(|| &inner[..1]);
        let after = inner[before.map_or(0, str::len)..].ends_with(['-', '+']);
        let after = after.then(|| &inner[inner.len() - 1..]);
        let word = inner.trim_matches(['-', '+']).trim();
        let mark = match word {
            "generation" => Some(MARKS[0]),
            "endgeneration" => Some(MARKS[1]),
            _ => None,
        };
        out.push_str(&rest[..start]);
        if let Some(mark) = mark {
            found = true;
            let [before, after] = [before, after].map(Option::unwrap_or_default);
            let block = format!("{{%{before} if true +%}}{mark}{{%+ endif {after}%}}");
            out.push_str(&block);
        } else {
            out.push_str(&rest[start..end]);
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    (out, found)
}

/// `tojson` as Hugging Face has it: what Python's `json.dumps` writes, with letters of all scripts as they are.
#[allow(
    clippy::needless_pass_by_value,
    reason = "arguments of filters are taken so"
)]
fn to_json(state: &State<'_, '_>, value: Serde<Json>, options: Kwargs) -> Result<String, Error> {
    let indent = options.get::<Option<usize>>("indent")?;
    let indent = indent.map(|spaces| spaces.min(INDENT_MAX));
    let sorted = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let ascii = options
        .get::<Option<bool>>("ensure_ascii")?
        .unwrap_or(false);
    options.assert_all_used()?;
    let text = python_json::to_string(
        &value.0,
        &python_json::Style {
            indent,
            sorted,
            separators: separators.and_then(|both| both.try_into().ok()),
            ascii,
        },
    );
    state.consume_fuel(text.len() as u64 / 64)?;
    Ok(text)
}

/// Python's methods; a text may be filled in, but not up to thousands of places.
fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let is_wide = |text: &str| {
        let digits = text.split(|c: char| !c.is_ascii_digit());
        digits.map(str::len).max().unwrap_or(0) > 3
    };
    if name == "format" && value.as_str().is_some_and(is_wide) {
        let message = "format() with widths of thousands";
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

/// `strftime_now`: what templates say of today, which is always the same day, as a run must not depend on when it
/// is started.
fn now(format: &str) -> Result<String, Error> {
    let mut text = String::new();
    let day = chrono::NaiveDate::from_ymd_opt(TODAY.0, TODAY.1, TODAY.2);
    let time = day.unwrap_or_default().and_time(chrono::NaiveTime::MIN);
    let written = time.format(format).write_to(&mut text);
    written.map_err(|_| {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("strftime_now knows nothing of {format:?}"),
        )
    })?;
    Ok(text)
}

fn read_json(files: &dyn Files, path: &PathBuf) -> Result<Option<Json>, TextError> {
    if files.metadata(path)?.is_none() {
        return Ok(None);
    }
    let text = read_text(files, path)?;
    let parsed = serde_json::from_str(&text);
    parsed
        .map(Some)
        .map_err(|error| TextError::bad(crate::Place::of(path), format!("not JSON: {error}")))
}
