//! What a record says: a conversation, an instruction and its answer, a text, or tokens.

mod fields;
mod format;
mod pairs;
mod reader;
mod turns;
mod unread;

pub use format::{FieldMap, Format};
pub use reader::Reader;
pub use unread::Unread;

use serde_json::Value;

use crate::chat::Conversation;

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
