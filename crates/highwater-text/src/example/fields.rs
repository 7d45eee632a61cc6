//! The fields of a record, read as one of the known formats says.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::chat::Conversation;
use crate::error::{Place, TextError};
use crate::example::Example;
use crate::example::format::{FieldMap, field, found};
use crate::records::embedded;

/// A list that is given as text is read up to so many bytes.
const LIST_BYTES_MAX: usize = 1 << 20;
/// The same of lists that a template is given, and of which it makes text.
const TOOLS_BYTES_MAX: usize = 128 << 10;

/// The fields of a record.
pub(crate) struct Fields<'a> {
    /// Where the record is.
    pub(crate) place: &'a Place,
    /// What it has.
    pub(crate) values: &'a Map<String, Value>,
    /// What fields are called.
    pub(crate) map: &'a FieldMap,
}

impl Fields<'_> {
    pub(crate) fn bad(&self, problem: impl Into<String>) -> TextError {
        TextError::bad(self.place.clone(), problem)
    }

    /// A field; tables give each record the fields of all, so that null is none.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        field(self.values, self.map, name)
    }

    /// A field that says something: no null, and nothing empty.
    pub(crate) fn said(&self, name: &str) -> Option<&Value> {
        self.get(name).filter(|value| says_something(value))
    }

    pub(crate) fn required(&self, name: &str) -> Result<&Value, TextError> {
        self.get(name).ok_or_else(|| {
            let error = self.bad(format!("there is no {name}, which the first example has"));
            error.hinted(found(self.values))
        })
    }

    pub(crate) fn text(&self, name: &str) -> Result<String, TextError> {
        match self.required(name)? {
            Value::String(text) => Ok(text.clone()),
            other => Err(self.bad(format!("{name} is {}; expected a string", kind(other)))),
        }
    }

    /// A text that may be missing, null or empty.
    pub(crate) fn optional(&self, name: &str) -> Result<Option<&str>, TextError> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(&**text).filter(|text| !text.is_empty())),
            Some(other) => Err(self.bad(format!("{name} is {}; expected a string", kind(other)))),
        }
    }

    /// A list that a table may have as a text of JSON.
    pub(crate) fn list<'v>(
        &self,
        name: &str,
        value: &'v Value,
    ) -> Result<Cow<'v, Value>, TextError> {
        let Value::String(text) = value else {
            return Ok(Cow::Borrowed(value));
        };
        let most = match name {
            "tools" | "documents" => TOOLS_BYTES_MAX,
            _ => LIST_BYTES_MAX,
        };
        if text.len() > most {
            let problem = format!("{name} is a text of {} bytes", text.len());
            let hint = format!("at most {most} are read as a list");
            return Err(self.bad(problem).hinted(hint));
        }
        let parsed = embedded(text).map_err(|error| {
            let error = self.bad(format!("{name} is a string that is not JSON: {error}"));
            if text.contains('\'') {
                error.hinted("write lists with json.dumps(..), not with str(..)")
            } else {
                error
            }
        });
        parsed.map(Cow::Owned)
    }

    /// The same of a field that may be a text as well: only what holds objects is taken for a list.
    pub(crate) fn list_or_text<'v>(
        &self,
        name: &str,
        value: &'v Value,
    ) -> Result<Cow<'v, Value>, TextError> {
        let is_list = |text: &String| {
            let rest = text.trim_start().strip_prefix('[');
            let object = rest.is_some_and(|rest| rest.trim_start().starts_with('{'));
            object && (text.contains("\"role\"") || text.contains("\"from\""))
        };
        match value {
            Value::String(text) if is_list(text) => self.list(name, value),
            other => Ok(Cow::Borrowed(other)),
        }
    }

    /// As Stanford's Alpaca puts it, where there is no template.
    pub(crate) fn instruction(
        &self,
        has_template: bool,
        answer: &str,
    ) -> Result<Example, TextError> {
        let [instruction, output] = [self.text("instruction")?, self.text(answer)?];
        let [input, system] = [self.optional("input")?, self.optional("system")?];
        let history = self.history()?;
        if has_template {
            let asked = match input {
                Some(input) => format!("{instruction}\n\n{input}"),
                None => instruction,
            };
            let system = system.map(|system| ("system", system));
            let before = history
                .iter()
                .flat_map(|[asked, said]| [("user", asked.as_str()), ("assistant", said.as_str())]);
            let turns = [("user", &*asked), ("assistant", &*output)];
            let all = system.into_iter().chain(before).chain(turns);
            return Ok(Example::Chat(Conversation::of(all)));
        }
        if !history.is_empty() {
            let error =
                self.bad("history has turns before the instruction, which needs a chat template");
            return Err(error.hinted("give one: --chat-template FILE, or --chat-template chatml"));
        }
        let context = match input {
            Some(_) => ", paired with an input that provides further context",
            None => "",
        };
        let start = match system {
            Some(system) => system.to_owned(),
            None => format!(
                "Below is an instruction that describes a task{context}. Write a response that appropriately \
                 completes the request."
            ),
        };
        let input = input.map(|input| format!("### Input:\n{input}\n\n"));
        let input = input.unwrap_or_default();
        Ok(Example::Completion {
            prompt: format!("{start}\n\n### Instruction:\n{instruction}\n\n{input}### Response:\n"),
            completion: output,
        })
    }

    /// Turns before an instruction, as LLaMA-Factory has them: a list of what was asked and what was said.
    fn history(&self) -> Result<Vec<[String; 2]>, TextError> {
        let Some(value) = self.said("history") else {
            return Ok(Vec::new());
        };
        let expected = "expected a list of pairs of strings: a question and an answer";
        let bad = |what: String| Err(self.bad(format!("{what}; {expected}")));
        let list = self.list("history", value)?;
        let Value::Array(turns) = &*list else {
            return bad(format!("history is {}", kind(&list)));
        };
        let mut history = Vec::new();
        for (i, turn) in turns.iter().enumerate() {
            let both = turn.as_array().map(Vec::as_slice);
            let Some([Value::String(asked), Value::String(said)]) = both else {
                return bad(format!("history[{i}] is not such a pair"));
            };
            history.push([asked.clone(), said.clone()]);
        }
        Ok(history)
    }

    /// What is asked, and the answer that a field has.
    pub(crate) fn completion(&self, answer: &str) -> Result<Example, TextError> {
        let (prompt, said) = (self.required("prompt")?, self.required(answer)?);
        let prompt = self.list_or_text("prompt", prompt)?;
        let said = self.list_or_text(answer, said)?;
        if let (Value::String(prompt), Value::String(completion)) = (&*prompt, &*said) {
            self.refuse_beside_texts("prompt and completion")?;
            return Ok(Example::Completion {
                prompt: prompt.clone(),
                completion: completion.clone(),
            });
        }
        let prompt = self.conversation_of("prompt", &prompt)?;
        self.answered(("prompt", prompt), answer, &said)
            .map(Example::Chat)
    }

    pub(crate) fn tokens(&self) -> Result<Example, TextError> {
        let ids: Vec<u32> = self.numbers("input_ids", |number| {
            number
                .as_u64()
                .and_then(|number| u32::try_from(number).ok())
        })?;
        let marked = |name: &str, learns: fn(i64) -> bool| {
            if matches!(self.get(name), None | Some(Value::Null)) {
                return Ok(None);
            }
            let marks =
                self.numbers(name, |mark| mark.as_i64().or(mark.as_bool().map(i64::from)))?;
            if marks.len() != ids.len() {
                let (found, expected) = (marks.len(), ids.len());
                return Err(self.bad(format!(
                    "{name} has {found} numbers for {expected} input_ids"
                )));
            }
            Ok(Some(marks.into_iter().map(learns).collect::<Vec<_>>()))
        };
        let mut learned = marked("labels", |label| label != -100)?;
        if learned.is_some() {
            let labels = self.numbers("labels", Value::as_i64)?;
            let mut pairs = ids.iter().zip(&labels).enumerate();
            let other = pairs.find(|&(_, (&id, &label))| label != -100 && label != i64::from(id));
            if let Some((i, (id, label))) = other {
                let problem = format!("labels[{i}] is {label}, and input_ids[{i}] is {id}");
                let hint = "labels are the tokens themselves, or -100 where the loss is not computed; what follows is \
                            found here";
                return Err(self.bad(problem).hinted(hint));
            }
        }
        // All that there are, as in TRL.
        for name in ["completion_mask", "assistant_masks", "loss_mask"] {
            let Some(mask) = marked(name, |mask| mask != 0)? else {
                continue;
            };
            learned = Some(match learned {
                None => mask,
                Some(before) => before.into_iter().zip(mask).map(|(a, b)| a && b).collect(),
            });
        }
        // What is padded is taken off.
        let Some(kept) = marked("attention_mask", |mask| mask != 0)? else {
            return Ok(Example::Tokens { ids, learned });
        };
        let keep = |at: usize| kept[at];
        let learned = learned.map(|all| {
            let each = all.into_iter().enumerate();
            each.filter_map(|(at, it)| keep(at).then_some(it)).collect()
        });
        let ids = ids.into_iter().enumerate();
        let ids = ids.filter_map(|(at, id)| keep(at).then_some(id)).collect();
        Ok(Example::Tokens { ids, learned })
    }

    fn numbers<T>(
        &self,
        name: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, TextError> {
        let list = self.list(name, self.required(name)?)?;
        let Value::Array(values) = &*list else {
            return Err(self.bad(format!("{name} is not a list of numbers")));
        };
        let numbers = values.iter().enumerate().map(|(i, value)| {
            read(value)
                .ok_or_else(|| self.bad(format!("{name}[{i}] is {value}; expected a whole number")))
        });
        numbers.collect()
    }
}

/// Whether a value is more than null, or an empty text or list.
pub(crate) fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => fields.values().any(|value| !value.is_null()),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
