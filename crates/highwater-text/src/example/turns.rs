//! Conversations of a record: lists of messages, what is beside them, and what of each is learnt.

use serde_json::{Map, Value, json};

use crate::chat::Conversation;
use crate::error::TextError;
use crate::example::Example;
use crate::example::fields::{Fields, kind, says_something};
use crate::example::format::found;

/// What says of a message whether the loss counts it: 0 or 1, or a truth value.
const COUNTED: [&str; 4] = ["weight", "train", "training", "loss"];
/// What says so of parts of a message, or in parts, which is not read.
const COUNTED_OTHERWISE: [&str; 4] = [
    "train_detail",
    "training_detail",
    "loss_scale",
    "loss_weight",
];
/// What a message may have that is no text.
pub(crate) const MEDIA: [&str; 6] = ["image", "images", "video", "videos", "audio", "audios"];

impl Fields<'_> {
    pub(crate) fn conversation(&self, name: &str) -> Result<Example, TextError> {
        let turns = self.required(name)?;
        self.conversation_of(name, turns).map(Example::Chat)
    }

    /// Messages, with the system's text of the record before them.
    pub(crate) fn conversation_of(
        &self,
        name: &str,
        turns: &Value,
    ) -> Result<Conversation, TextError> {
        let mut conversation = self.messages(name, turns)?;
        if let Some(system) = self.optional("system")? {
            let has_one = conversation.messages[0]["role"] == "system";
            if has_one && conversation.messages[0]["content"] != system {
                let problem =
                    format!("system and the first message of {name} both are of the system");
                return Err(self.bad(problem).hinted("remove one of them"));
            }
            if !has_one {
                let message = json!({"role": "system", "content": system});
                conversation.messages.insert(0, message);
                conversation.left_out.insert(0, false);
            }
        }
        Ok(conversation)
    }

    /// A conversation with an answer, of which the answer alone is learnt.
    pub(crate) fn answered(
        &self,
        (asks, mut asked): (&str, Conversation),
        name: &str,
        answer: &Value,
    ) -> Result<Conversation, TextError> {
        let answer = self.messages(name, answer)?;
        if answer.messages.starts_with(&asked.messages) {
            let problem = format!("{name} begins with all messages of the field {asks}");
            let hint = format!(
                "remove the field {asks}, or remove its messages from the beginning of {name}"
            );
            return Err(self.bad(problem).hinted(hint));
        }
        // Of a prompt nothing is learnt.
        asked.left_out.fill(true);
        asked.asked = Some(asked.messages.len());
        asked.messages.extend(answer.messages);
        asked.left_out.extend(answer.left_out);
        Ok(asked)
    }

    /// Messages, and what is beside them for the template.
    pub(crate) fn messages(&self, name: &str, turns: &Value) -> Result<Conversation, TextError> {
        let turns = self.list(name, turns)?;
        let turns = match &*turns {
            Value::Array(turns) => turns.as_slice(),
            // As LLaMA-Factory has the two answers of a pair.
            one @ Value::Object(_) if matches!(name, "chosen" | "rejected" | "completion") => {
                std::slice::from_ref(one)
            }
            other => {
                let problem = format!("{name} is {}; expected a list of messages", kind(other));
                return Err(self.bad(problem));
            }
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
            if let Some(value) = self.said(name) {
                let list = self.list(name, value)?.into_owned();
                conversation.variables.insert(name.to_owned(), list);
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
                "the role of {name} is {}; expected a string",
                kind(role)
            )));
        };
        let Some(role) = role_of(role) else {
            let problem =
                format!("the role of {name} is {role:?}; expected system, user or assistant");
            return Err(self.bad(problem));
        };
        let left_out = self.left_out(name, role, turn)?;
        let mut message = turn.clone();
        for name in ["from", "value"].into_iter().chain(COUNTED) {
            message.shift_remove(name);
        }
        // As `apply_chat_template` of transformers does it: templates write what is null, and handle what is missing.
        message.retain(|_, value| !value.is_null());
        message.insert("role".to_owned(), role.into());
        let calls = message.contains_key("tool_calls");
        match self.content(name, content, calls)? {
            Some(content) => drop(message.insert("content".to_owned(), content)),
            None => drop(message.shift_remove("content")),
        }
        Ok((Value::Object(message), left_out))
    }

    /// Whether a message asks that nothing of it is learnt.
    fn left_out(
        &self,
        name: &str,
        role: &str,
        turn: &Map<String, Value>,
    ) -> Result<bool, TextError> {
        let mut left_out = false;
        for counted in COUNTED {
            let Some(value) = turn.get(counted).filter(|value| !value.is_null()) else {
                continue;
            };
            let number = value.as_f64();
            let counts = match value {
                Value::Bool(counts) => *counts,
                _ if number == Some(1.0) => true,
                _ if number == Some(0.0) => false,
                other => {
                    let problem = format!("{counted} of {name} is {other}; expected 0 or 1");
                    let hint = "the loss is computed on a message or not: weights between 0 and 1 are not supported";
                    return Err(self.bad(problem).hinted(hint));
                }
            };
            if counts && role != "assistant" {
                let problem = format!(
                    "{counted} of {name} is {value}, and its role is {role}: the loss is computed on assistant turns \
                    only"
                );
                let hint =
                    format!("remove {counted} from messages of other roles, or use --loss-on all");
                return Err(self.bad(problem).hinted(hint));
            }
            left_out |= !counts;
        }
        let is_said = |field: &&str| turn.get(*field).is_some_and(says_something);
        if let Some(field) = COUNTED_OTHERWISE.iter().find(|field| is_said(field)) {
            let problem = format!("{field} of {name} is not read");
            let hint = "weight must be 0 or 1: whether the loss is computed on a message";
            return Err(self.bad(problem).hinted(hint));
        }
        if let Some(field) = MEDIA.iter().find(|field| is_said(field)) {
            return Err(self.bad(format!("{name} has {field}; this program reads text only")));
        }
        Ok(left_out)
    }

    /// What a message says: a text, or a list of parts, which are texts here.
    fn content(
        &self,
        name: &str,
        content: Option<&Value>,
        calls: bool,
    ) -> Result<Option<Value>, TextError> {
        match content {
            Some(Value::String(text)) => Ok(Some(text.clone().into())),
            None | Some(Value::Null) if calls => Ok(None),
            None | Some(Value::Null) => Err(self.bad(format!("{name} has no content"))),
            Some(Value::Array(parts)) => {
                let mut texts = parts
                    .iter()
                    .map(|part| match (&part["type"], &part["text"]) {
                        (Value::String(kind), Value::String(_)) if kind == "text" => Ok(()),
                        (Value::String(kind), _) => Err(self.bad(format!(
                            "{name} has a part of type {kind:?}; this program reads text only"
                        ))),
                        _ => Err(self.bad(format!("a part of {name} has no type and text"))),
                    });
                texts.try_for_each(|checked| checked)?;
                Ok(Some(parts.clone().into()))
            }
            Some(other) => Err(self.bad(format!(
                "the content of {name} is {}; expected a string",
                kind(other)
            ))),
        }
    }
}

/// The names of a message's fields that are read here, and need not be in a template.
pub(crate) fn is_read_of_messages(name: &str) -> bool {
    let own = ["role", "content", "from", "value"];
    own.contains(&name) || COUNTED.contains(&name)
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
