//! Conversations.

use serde_json::{Map, Value, json};

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
