//! `data show`: the first examples of data as a model reads them, with what is learnt of each.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use highwater_memory::{DiskFiles, Files};
use highwater_models::Tokenizer;
use highwater_models::data::Reads;
use highwater_text::prepare::Examples;
use highwater_text::records::record_parts;
use highwater_text::{ChatTemplate, Document, Place};

use crate::args::{Flags, Format};
use crate::data::Source;
use crate::data::records::endless_note;
use crate::data::tokenizer::{Limit, read_within};
use crate::error::Failure;
use crate::model::Blueprint;
use crate::terminal::output;

/// Of so many records that are not shown, fields that are not read are counted.
const COUNTED: usize = 10_000;

/// What can be done with data alone.
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Show the first examples as the model sees them, and the tokens that the loss is computed on.
    Show(ShowArgs),
}

/// `data show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// File or folder of examples
    #[arg(value_name = "PATH")]
    pub data: PathBuf,

    /// Model folder with a tokenizer and a chat template [default: none; each byte is a token]
    #[arg(long, value_name = "FOLDER")]
    pub model: Option<PathBuf>,

    /// The tokenizer.json [default: the one in the model's folder]
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,

    /// Number of examples
    #[arg(short, long, value_name = "N", default_value_t = 3)]
    pub n: usize,

    /// Tokens per example. Longer examples are cut
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub seq: usize,

    /// Read pairs of chosen and rejected answers, as --preference does
    #[arg(long)]
    pub pairs: bool,

    /// How examples are read.
    #[command(flatten)]
    pub records: Flags<Format>,
}

/// Shows the first examples of data.
///
/// # Errors
/// [`Failure`] for data, a template or a tokenizer that cannot be read or used.
pub fn show(args: &ShowArgs) -> Result<(), Failure> {
    let files: Arc<dyn Files> = Arc::new(DiskFiles);
    let source = source(&*files, args)?;
    let tokenizer = source.tokenizer_within(&*files, &Limit::of_process())?;
    let encoder = source.encoder(&*files, &tokenizer)?;
    let preparation = source.preparation();
    let mut examples = Examples::open(&files, &encoder, &preparation)?;
    let parts = record_parts(&*files, &args.data, (None, Reads::default()))?;
    if let Some(told) = parts.describe(&args.data, Reads::default()) {
        output::result(&told);
    }
    let template = encoder.template().map(ChatTemplate::source_name);
    output::result(&format!(
        "format: {}; template: {}; {}",
        examples.format().name(),
        template.unwrap_or("none"),
        if coloured() {
            "the loss is computed on the green part"
        } else {
            "the loss is computed between \u{27E6} and \u{27E7}"
        }
    ));
    let first: Vec<_> = examples.by_ref().take(args.n).collect();
    let mut endless = 0;
    for example in first {
        let (place, example) = example?;
        for document in examples.encode(&place, &example)? {
            endless += document.endless as u64;
            output::result(&text(&place, &document, &tokenizer, args.seq)?);
        }
    }
    let further: Result<Vec<()>, _> = (examples.by_ref().take(COUNTED))
        .map(|example| example.map(drop))
        .collect();
    let of_some = examples.next().is_some();
    if let Some(unread) = examples.unread().describe() {
        let among = match &further {
            Err(_) => "\n(in the examples before the one below)".to_owned(),
            Ok(_) if of_some => format!("\n(in the first {} examples)", args.n + COUNTED),
            Ok(_) => String::new(),
        };
        output::result(&format!("\n{unread}{among}"));
    }
    if let Err(error) = further {
        output::result(&format!("\nin a later example: {error}"));
    }
    if let Some(note) = endless_note(endless, &encoder) {
        output::news(&note);
    }
    Ok(())
}

fn source(files: &dyn Files, args: &ShowArgs) -> Result<Source, Failure> {
    if files.metadata(&args.data)?.is_none() {
        let path = args.data.clone();
        return Err(highwater_models::DataError::Missing { path }.into());
    }
    let records = args
        .records
        .records_config(files, Some(&args.data))?
        .ok_or_else(|| {
            let message = format!(
                "{}: not a file of examples: in plain text, the loss is computed on all tokens",
                args.data.display()
            );
            Failure::usage(message)
                .hint("files of examples end in .jsonl, .json, .csv, .tsv or .parquet")
        })?;
    let beside = args
        .model
        .as_deref()
        .map(|folder| folder.join("tokenizer.json"));
    let tokenizer = match (&args.tokenizer, beside) {
        (Some(named), _) => Some(named.clone()),
        (None, Some(beside)) => files.metadata(&beside)?.map(|_| beside),
        (None, None) => None,
    };
    let vocab_size = match &args.model {
        Some(folder) => {
            let model = Blueprint::read(files, &folder.join("config.json"))?;
            model.text()?.vocab_size()
        }
        None => match &tokenizer {
            Some(path) => read_within(files, path, &Limit::of_process())?.vocab_size(),
            None => 256,
        },
    };
    Ok(Source {
        pairs: args.pairs,
        records,
        data: args.data.clone(),
        eval_data: None,
        reads: Reads::default(),
        tokenizer,
        vocab_size: vocab_size as u32,
        seq: args.seq,
        threads: 1,
    })
}

fn coloured() -> bool {
    std::io::stdout().is_terminal()
}

/// A text whose control characters, which a terminal would obey, are escaped as in Rust.
fn visible(text: &str) -> String {
    let is_obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_obeyed(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// An example for people: each stretch of tokens that is learnt, or not.
fn text(
    place: &Place,
    document: &Document,
    tokenizer: &Tokenizer,
    seq: usize,
) -> Result<String, Failure> {
    let (tokens, learned) = (&document.tokens, &document.learned);
    let kept = tokens.len().min(seq);
    let counted = learned[..kept]
        .iter()
        .skip(1)
        .filter(|&&learned| learned)
        .count();
    let length = tokens.len();
    let rest = match (kept < length, document.is_text) {
        (false, _) => String::new(),
        (true, true) => format!(", in {} parts", length.div_ceil(seq.max(2) - 1)),
        (true, false) => format!(", cut after {seq}"),
    };
    let mut text = format!("\n--- {place}: {length} tokens, loss on {counted}{rest}\n");
    let [begin, end] = if coloured() {
        ["\u{1b}[32m", "\u{1b}[0m"]
    } else {
        ["\u{27E6}", "\u{27E7}"]
    };
    let mut at = 0;
    while at < kept {
        // Nothing comes before the first token: it cannot be learnt.
        let is_learned = |i: usize| learned[i] && i > 0;
        let stretch = (at..kept)
            .take_while(|&i| is_learned(i) == is_learned(at))
            .count();
        let decoded = visible(&tokenizer.decode(&tokens[at..at + stretch])?);
        let around = if is_learned(at) {
            [begin, end]
        } else {
            [""; 2]
        };
        text.extend([around[0], decoded.as_str(), around[1]]);
        at += stretch;
    }
    Ok(text)
}
