//! What opening data needs to know.

use std::path::Path;

use super::progress::Progress;
use super::splits::Reads;
use super::token_format::TokenWidth;
use crate::Tokenizer;

/// What opening data needs to know besides the path.
#[derive(Debug)]
pub struct DataOptions<'a> {
    /// How text becomes tokens.
    pub tokenizer: &'a Tokenizer,
    /// Number of tokens that the model has.
    pub vocab_size: u32,
    /// How wide the tokens of a headerless `.bin` are; found by the model and the file if none is said.
    pub width: Option<TokenWidth>,
    /// A file or folder that is held out, instead of what a folder of data has for that.
    pub held_out: Option<&'a Path>,
    /// What the data is read for.
    pub reads: Reads,
    /// Who is told how far it is.
    pub progress: Progress<'a>,
    /// Where the tokens of text go when a `tokenizer.json` makes them. What is there already is
    /// taken as it is, so that a resumed run has the tokens that it started with.
    pub spool: &'a Path,
}
