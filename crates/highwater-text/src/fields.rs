//! The fields of a record, read as one of the known formats says.

use serde_json::{Map, Value, json};

use crate::example::{field, found};
use crate::{Conversation, Example, FieldMap, Place, TextError};

/// A list that is given as text is read up to so many bytes.
const LIST_BYTES_MAX: usize = 128 << 10;

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
    fn bad(&self, problem: impl Into<String>) -> TextError {
        TextError::bad(self.place.clone(), problem)
    }

    fn get(&self, name: &str) -> Option<&Value> {
        field(self.values, self.map, name)
    }

    fn required(&self, name: &str) -> Result<&Value, TextError> {
        self.get(name).ok_or_else(|| {
            let error = self.bad(format!("there is no {name}, which the first record has"));
            error.hinted(found(self.values))
        })
    }

    pub(crate) fn text(&self, name: &str) -> Result<String, TextError> {
        match self.required(name)? {
            Value::String(text) => Ok(text.clone()),
            other => Err(self.bad(format!("{name} is {}; expected a text", kind(other)))),
        }
    }

    /// A text that may be missing, null or empty.
    fn optional(&self, name: &str) -> Result<Option<&str>, TextError> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(&**text).filter(|text| !text.is_empty())),
            Some(other) => Err(self.bad(format!("{name} is {}; expected a text", kind(other)))),
        }
    }

    pub(crate) fn conversation(&self, name: &str) -> Result<Example, TextError> {
        let turns = self.required(name)?;
        let mut conversation = self.messages(name, turns)?;
        if let Some(system) = self.optional("system")? {
            let message = json!({"role": "system", "content": system});
            conversation.messages.insert(0, message);
            conversation.left_out.insert(0, false);
        }
        Ok(Example::Chat(conversation))
    }

    /// Messages, and what is beside them for the template.
    fn messages(&self, name: &str, turns: &Value) -> Result<Conversation, TextError> {
        let Value::Array(turns) = turns else {
            let problem = format!("{name} is {}; expected a list of messages", kind(turns));
            return Err(self.bad(problem));
        };
        if turns.is_empty() {
            return Err(self.bad(format!("{name} is empty; expected at least one message")));
        }
        let mut conversation = Conversation::default();
        for (i, turn) in turns.iter().enumerate() {
            let name = format!("{name}[{i}]");
            let (message, left_out) = self.message(&name, turn)?;
            conversation.messages.push(message);
            conversation.left_out.push(left_out);
        }
        for name in ["tools", "documents"] {
            match self.get(name) {
                None | Some(Value::Null) => {}
                // Tables of one type have lists as text.
                Some(Value::String(text)) if text.len() > LIST_BYTES_MAX => {
                    let problem = format!("{name} is a text of {} bytes", text.len());
                    let hint = format!("at most {LIST_BYTES_MAX} are read as a list");
                    return Err(self.bad(problem).hinted(hint));
                }
                Some(Value::String(text)) => {
                    let list = serde_json::from_str(text).map_err(|error| {
                        self.bad(format!("{name} is a text that is no JSON: {error}"))
                    })?;
                    conversation.variables.insert(name.to_owned(), list);
                }
                Some(list) => {
                    conversation.variables.insert(name.to_owned(), list.clone());
                }
            }
        }
        if let Some(Value::Object(more)) = self.get("chat_template_kwargs") {
            conversation.variables.extend(more.clone());
        }
        Ok(conversation)
    }

    /// A message as templates expect it, and whether nothing of it is to be learnt.
    fn message(&self, name: &str, turn: &Value) -> Result<(Value, bool), TextError> {
        let Value::Object(turn) = turn else {
            let problem = format!(
                "{name} is {}; expected {{\"role\": .., \"content\": ..}}",
                kind(turn)
            );
            return Err(self.bad(problem));
        };
        let (role, content) = match (turn.get("role"), turn.get("from")) {
            (Some(role), _) => (role, turn.get("content")),
            (None, Some(role)) => (role, turn.get("value")),
            (None, None) => {
                return Err(self.bad(format!("{name} has no role")).hinted(found(turn)));
            }
        };
        let Value::String(role) = role else {
            return Err(self.bad(format!(
                "the role of {name} is {}; expected a text",
                kind(role)
            )));
        };
        let Some(role) = role_of(role) else {
            let problem =
                format!("the role of {name} is {role:?}; expected system, user or assistant");
            return Err(self.bad(problem));
        };
        let mut message = turn.clone();
        for name in ["from", "value", "weight", "train", "training"] {
            message.shift_remove(name);
        }
        // Tables give each message the fields of all.
        message.retain(|_, value| !value.is_null());
        message.insert("role".to_owned(), role.into());
        let calls = message.contains_key("tool_calls");
        let content = self.content(name, content, calls)?;
        message.insert("content".to_owned(), content);
        let asks = |name: &str| {
            turn.get(name)
                .is_some_and(|value| *value == Value::Bool(false) || value.as_f64() == Some(0.0))
        };
        let left_out = ["weight", "train", "training"].into_iter().any(asks);
        Ok((Value::Object(message), left_out))
    }

    /// What a message says: parts of text are put together.
    fn content(
        &self,
        name: &str,
        content: Option<&Value>,
        calls: bool,
    ) -> Result<Value, TextError> {
        match content {
            Some(Value::String(text)) => Ok(text.clone().into()),
            // Templates ask whether there is any.
            None | Some(Value::Null) if calls => Ok(Value::Null),
            None | Some(Value::Null) => Err(self.bad(format!("{name} has no content"))),
            Some(Value::Array(parts)) => {
                let texts = parts
                    .iter()
                    .map(|part| match (&part["type"], &part["text"]) {
                        (Value::String(kind), Value::String(text)) if kind == "text" => Ok(&**text),
                        (Value::String(kind), _) => Err(self.bad(format!(
                            "{name} has a part of type {kind:?}; this model reads text alone"
                        ))),
                        _ => Err(self.bad(format!("a part of {name} has no type and text"))),
                    });
                Ok(texts.collect::<Result<String, _>>()?.into())
            }
            Some(other) => Err(self.bad(format!(
                "the content of {name} is {}; expected a text",
                kind(other)
            ))),
        }
    }

    /// As Stanford's Alpaca puts it, where there is no template.
    pub(crate) fn instruction(&self, has_template: bool) -> Result<Example, TextError> {
        let [instruction, output] = [self.text("instruction")?, self.text("output")?];
        let [input, system] = [self.optional("input")?, self.optional("system")?];
        if has_template {
            let asked = match input {
                Some(input) => format!("{instruction}\n\n{input}"),
                None => instruction,
            };
            let system = system.map(|system| ("system", system));
            let turns = [("user", &*asked), ("assistant", &*output)];
            return Ok(Example::Chat(Conversation::of(
                system.into_iter().chain(turns),
            )));
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

    /// Two answers, with what is asked: a field of its own, or what both begin with.
    pub(crate) fn pair(&self) -> Result<Example, TextError> {
        let is_list = |name: &str| self.get(name).is_some_and(Value::is_array);
        // A text beside lists says what is asked once more.
        let is_told = is_list("chosen") && !is_list("prompt");
        if self.get("prompt").is_some() && !is_told {
            let both = [self.completion("chosen")?, self.completion("rejected")?];
            return Ok(Example::Pair(Box::new(both)));
        }
        let (chosen, rejected) = (self.required("chosen")?, self.required("rejected")?);
        if let (Value::String(chosen), Value::String(rejected)) = (chosen, rejected) {
            let same = chosen.char_indices().zip(rejected.chars());
            let same = same.take_while(|((_, a), b)| a == b).last();
            let mut asked = same.map_or(0, |((at, c), _)| at + c.len_utf8());
            // A space before a word belongs to it.
            if chosen[..asked].ends_with(' ') {
                asked -= 1;
            }
            let both = [chosen, rejected].map(|text| Example::Completion {
                prompt: text[..asked].to_owned(),
                completion: text[asked..].to_owned(),
            });
            return Ok(Example::Pair(Box::new(both)));
        }
        let mut both = [
            self.messages("chosen", chosen)?,
            self.messages("rejected", rejected)?,
        ];
        let pairs = both[0].messages.iter().zip(&both[1].messages);
        let asked = pairs.take_while(|(a, b)| a == b).count();
        for conversation in &mut both {
            conversation.left_out[..asked].fill(true);
        }
        Ok(Example::Pair(Box::new(both.map(Example::Chat))))
    }

    /// What is asked, and the answer that a field has.
    pub(crate) fn completion(&self, answer: &str) -> Result<Example, TextError> {
        let (prompt, completion) = (self.required("prompt")?, self.required(answer)?);
        if let (Value::String(prompt), Value::String(completion)) = (prompt, completion) {
            return Ok(Example::Completion {
                prompt: prompt.clone(),
                completion: completion.clone(),
            });
        }
        let mut conversation = self.messages("prompt", prompt)?;
        let answer = self.messages(answer, completion)?;
        // Of a prompt nothing is learnt.
        conversation.left_out.fill(true);
        conversation.messages.extend(answer.messages);
        conversation.left_out.extend(answer.left_out);
        Ok(Example::Chat(conversation))
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
                let hint = "labels are the tokens themselves, or -100 where nothing is learnt; what follows is \
                            found here";
                return Err(self.bad(problem).hinted(hint));
            }
        }
        for name in ["completion_mask", "assistant_masks"] {
            if learned.is_none() {
                learned = marked(name, |mask| mask != 0)?;
            }
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
        let Value::Array(values) = self.required(name)? else {
            return Err(self.bad(format!("{name} is no list of numbers")));
        };
        let numbers = values.iter().enumerate().map(|(i, value)| {
            read(value)
                .ok_or_else(|| self.bad(format!("{name}[{i}] is {value}; expected a whole number")))
        });
        numbers.collect()
    }
}

/// What a role is called in templates.
fn role_of(role: &str) -> Option<&'static str> {
    Some(match role.trim().to_ascii_lowercase().as_str() {
        "system" => "system",
        "developer" => "developer",
        "user" | "human" | "prompter" => "user",
        "assistant" | "gpt" | "model" | "bot" | "chatgpt" | "bing" | "bard" | "function_call" => {
            "assistant"
        }
        "tool" | "function" | "observation" | "function_response" | "ipython" => "tool",
        _ => return None,
    })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
