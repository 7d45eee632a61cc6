//! Failures as users see them, and the program's exit codes.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | a mistake in the program itself |
//! | 2 | wrong usage, or a model or setting that is not possible |
//! | 3 | the memory budget is below the least that would do |
//! | 4 | a file or data cannot be read or written, or is damaged |
//! | 5 | the loss became infinite or not a number |
//! | 129, 130, 143 | stopped by SIGHUP, SIGINT or SIGTERM; the state was saved |

mod data;
mod engine;
mod failure;
mod files;
mod models;
mod source_lines;

pub use failure::{Code, EXIT_CODES, Failure};
pub(crate) use models::OTHER_TOKENIZER;
pub(crate) use source_lines::{shortened, without_lines, without_places};
