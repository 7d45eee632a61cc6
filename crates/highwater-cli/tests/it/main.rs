//! The program as people call it: one after the other what commands promise. In one binary, so that tests of all files
//! share the processors.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../byte_tokenizer/mod.rs"]
mod byte_tokenizer;
#[path = "../cache/mod.rs"]
mod cache;
#[path = "../outcome/mod.rs"]
mod outcome;
#[path = "../program/mod.rs"]
mod program;
#[path = "../../../highwater/tests/share/mod.rs"]
mod share;
#[path = "../started/mod.rs"]
mod started;

mod adapters;
mod best;
mod cli;
mod commands;
mod given;
mod halves;
mod host_memory;
mod images;
mod keeps;
mod kill;
mod large_tokenizer;
mod layouts;
mod messages;
mod origin;
mod pictures;
mod pieces;
mod plan_text;
mod promises;
mod records;
mod resume;
mod sampling;
mod scratch;
mod shards;
mod smoothing;
mod weights;
