//! Conversations as a model reads them: chat templates, and which parts of a text the assistant says.

mod conversation;
mod mask;
mod template;

pub use conversation::Conversation;
pub use mask::{Marked, Turn, turns};
pub use template::{ChatTemplate, SpecialTokens, ends_of_texts};
