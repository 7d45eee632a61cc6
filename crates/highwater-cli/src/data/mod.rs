//! The data of a run: read, tokenized, divided, and given out in batches.

mod guide;
pub(crate) mod held_out;
mod images;
mod packed;
pub(crate) mod prompt;
pub(crate) mod records;
mod run_data;
mod text;
pub mod tokenize;
pub(crate) mod tokenizer;

pub use guide::GUIDE;
pub use images::ImageData;
pub use packed::PackedData;
pub use records::Source;
pub use run_data::{Feed, RunData};
pub use text::TextData;
