//! Text to learn from: the records of files, what they say of conversations and instructions, chat templates, and
//! the tokens of all that, each with whether it is learnt.

mod encode;
mod error;
mod example;
mod fields;
mod files;
mod jinja;
mod mask;
mod pairs;
pub mod prepare;
pub mod records;
mod template;
mod turns;
mod unread;

pub use encode::{Document, Encoder, Learn, endless_turns};
pub use error::{Place, Position, TextError};
pub use example::{Conversation, Example, FieldMap, Format, Reader};
pub use files::read_text;
pub use mask::{Marked, Turn, turns};
pub use template::{ChatTemplate, SpecialTokens, ends_of_texts};
pub use unread::Unread;
