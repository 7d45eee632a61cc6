//! How fast records become rows: read alone, written by the template with what is learnt of them, and with tokens,
//! beside the tokenizer library on the same texts. One thread.
//!
//! `cargo run --release -p highwater-text --example speed -- FILE FOLDER`, where the folder has `tokenizer.json` and a
//! chat template.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement says what it found, and stops where it cannot go on"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use highwater_memory::{DiskFiles, Files};
use highwater_text::Tokenizer;
use highwater_text::data::{Progress, Reads};
use highwater_text::prepare::{Preparation, prepare};
use highwater_text::records::Records;
use highwater_text::{
    ChatTemplate, Encoder, Example, FieldMap, Learn, Reader, SpecialTokens, ends_of_texts, turns,
};

fn main() {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (data, folder) = (args.next().unwrap(), args.next().unwrap());
    let files: Arc<dyn Files> = Arc::new(DiskFiles);
    let special = SpecialTokens::load(&*files, &folder).unwrap();
    let tokenizer = Tokenizer::load(&*files, &folder.join("tokenizer.json")).unwrap();
    let template = || ChatTemplate::load(&*files, &folder, &special).unwrap();
    let megabytes = std::fs::metadata(&data).unwrap().len() as f64 / 1e6;
    let told = |what: &str, started: Instant| {
        println!(
            "{what}: {:.1} MB/s",
            megabytes / started.elapsed().as_secs_f64()
        );
    };

    let started = Instant::now();
    let count = Records::open(files.clone(), &data)
        .unwrap()
        .map(Result::unwrap)
        .count();
    told(&format!("{count} records read"), started);

    let started = Instant::now();
    let chat = template().unwrap();
    let mut texts = Vec::new();
    let mut reader = None;
    for record in Records::open(files.clone(), &data).unwrap() {
        let record = record.unwrap();
        let detect = || Reader::detect(&record, FieldMap::default(), true).unwrap();
        let example = reader
            .get_or_insert_with(detect)
            .read(record.clone())
            .unwrap();
        if let Example::Chat(conversation) = example {
            texts.push(turns(&chat, &conversation).unwrap().text);
        }
    }
    told("written, and what is learnt found", started);

    library_alone(&tokenizer, &texts, &told);
    drop(texts);

    let end = ends_of_texts(&*files, &folder, &tokenizer)
        .unwrap()
        .first()
        .copied();
    let encoder = Encoder::new(&tokenizer, template(), end, Learn::Answers).unwrap();
    for threads in [1, 2] {
        let preparation = Preparation {
            data: &data,
            held_out: None,
            reads: Reads::Training,
            progress: Progress::default(),
            map: FieldMap::default(),
            vocab_size: tokenizer.vocab_size() as u32,
            length: 1024,
            packing: true,
            pairs: false,
            threads,
        };
        let out = std::env::temp_dir().join(format!("highwater-speed-{}", std::process::id()));
        let started = Instant::now();
        let made = prepare(&files, &encoder, &preparation, Path::new(&out)).unwrap();
        told(
            &format!("{} rows, {threads} threads", made.counts.rows),
            started,
        );
        std::fs::remove_file(out).unwrap();
    }
}

/// The library's own pace on texts.
fn library_alone(tokenizer: &Tokenizer, texts: &[String], told: &dyn Fn(&str, Instant)) {
    let Tokenizer::HuggingFace(library) = tokenizer else {
        return;
    };
    let started = Instant::now();
    let tokens: usize = texts
        .iter()
        .map(|text| library.encode_fast(&**text, false).unwrap().len())
        .sum();
    told(
        &format!("the tokenizer library alone, {tokens} tokens"),
        started,
    );
    let started = Instant::now();
    let with: usize = texts
        .iter()
        .map(|text| library.encode(&**text, false).unwrap().len())
        .sum();
    assert_eq!(with, tokens);
    told("the same with where tokens are", started);
}
