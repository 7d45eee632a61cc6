//! Models beside Hugging Face's, torchvision's, PEFT's and TRL's numbers, and their files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../../highwater-plan/tests/common/mod.rs"]
mod common;
#[path = "../families/mod.rs"]
mod families;

mod adamw;
mod decoders;
mod generate;
mod image_folder;
mod lora;
mod merge;
mod oracle;
mod packed;
mod preference;
mod smoothing;
mod vision;
