//! Records, conversations and chat templates, beside transformers.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails, and says why"
)]

mod chat;
mod examples;
mod fields;
mod layouts;
