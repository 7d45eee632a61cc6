//! Text to train on: tokenizers and files of tokens; and, with the feature `records`, the records of files, what they
//! say of conversations and instructions, chat templates, and the tokens of all that, each with whether it is learnt.

#[cfg(feature = "records")]
mod chat;
pub mod data;
#[cfg(feature = "records")]
mod error;
#[cfg(feature = "records")]
mod example;
#[cfg(feature = "records")]
mod files;
#[cfg(feature = "records")]
mod jinja;
#[cfg(feature = "records")]
pub mod prepare;
#[cfg(feature = "records")]
pub mod records;
pub mod tokenizer;

#[cfg(feature = "records")]
pub use chat::{ChatTemplate, Conversation, Marked, SpecialTokens, Turn, ends_of_texts, turns};
pub use data::{BatchShape, Batches, Cursor, DataError, DataOptions, Order, TokenWidth, Tokens};
#[cfg(feature = "records")]
pub use error::{Place, Position, TextError};
#[cfg(feature = "records")]
pub use example::{Example, FieldMap, Format, Reader, Unread};
#[cfg(feature = "records")]
pub use files::read_text;
#[cfg(feature = "records")]
pub use prepare::{Document, Encoder, Learn, endless_turns};
pub use tokenizer::{Tokenizer, TokenizerError, guarded};
