//! `tokenise`: what other commands start to tokenize text or records, in a process whose memory is all given back when
//! it ends.

use std::path::PathBuf;

use clap::Args;

use crate::data::tokenize;
use crate::error::Failure;
use crate::terminal::signals;

/// `tokenise`.
#[derive(Args, Debug)]
pub struct TokenizeArgs {
    /// Where the tokens go
    pub spool: PathBuf,
    /// What they are made of, as JSON
    pub request: String,
}

/// Writes the tokens, and prints how far it is and what people should know of the data.
///
/// # Errors
/// [`Failure`] for text or a tokenizer that cannot be read or used.
pub(crate) fn tokenize(args: &TokenizeArgs) -> Result<(), Failure> {
    highwater_memory::heap::keep_small();
    signals::end_with_parent();
    tokenize::tokenize(&args.request, &args.spool)
}
