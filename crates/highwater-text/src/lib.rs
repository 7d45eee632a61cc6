//! Text to learn from: the records of files, what they say of conversations and instructions, chat templates, and
//! the tokens of all that, each with whether it is learnt.

mod encode;
mod error;
mod example;
mod fields;
mod files;
mod mask;
pub mod prepare;
mod python_json;
pub mod records;
mod template;

pub use encode::{Document, Encoder, Learn};
pub use error::{Place, Position, TextError};
pub use example::{Conversation, Example, FieldMap, Format, Reader};
pub use files::read_text;
pub use mask::{Marked, turns};
pub use template::{ChatTemplate, SpecialTokens, ends_of_texts};
