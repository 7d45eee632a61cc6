//! Tokens of text, where a `tokenizer.json` makes them: in a process of its own, whose memory is all given
//! back when it ends. A tokenizer takes many times its file, and heap that was used once is seldom given
//! back whole.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater_memory::{DiskFiles, Files};
use highwater_models::Tokenizer;
use highwater_models::data::{DataOptions, Progress, Reads, Tokens};
use serde::{Deserialize, Serialize};

use super::records::Source;
use super::tokenizer::{text_to_tokenize, tokenizer_bytes};
use crate::config::RunConfig;
use crate::error::{Code, Failure};
use crate::model::Blueprint;
use crate::terminal::meter::Meter;

/// What making tokens takes at most, in bytes: so much, and so many times the tokenizer's file.
const LEAST_BYTES: u64 = 16 << 20;
/// What records take besides: those that are in memory at once, and the rows that are being filled.
const RECORDS_BYTES: u64 = 48 << 20;

/// What tokens are to be made of.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// A text.
    Text {
        /// The `tokenizer.json`.
        tokenizer: PathBuf,
        /// A file, or a folder of them.
        text: PathBuf,
        /// What is held out, where that is named.
        held_out: Option<PathBuf>,
        /// What the text is read for.
        reads: Reads,
        /// How many tokens the model has.
        vocab_size: u32,
    },
    /// Records.
    Records(Source),
}

/// Bytes that making the tokens of these settings takes; 0 where no tokenizer has to.
///
/// # Errors
/// [`Failure`] for files that cannot be looked at.
pub fn needed_bytes(files: &dyn Files, config: &RunConfig) -> Result<u64, Failure> {
    if text_to_tokenize(files, config)?.is_none() {
        return Ok(0);
    }
    let records = config.data.records.as_ref().map_or(0, |_| RECORDS_BYTES);
    Ok(LEAST_BYTES + tokenizer_bytes(files, config)? + records)
}

/// What the process that makes tokens says on stdout, a line each.
#[derive(Debug, Serialize, Deserialize)]
enum Report {
    /// So many bytes are done, of so many.
    Progress(u64, u64),
    /// What people should know of the data.
    Note(String),
}

/// The process says how far it is no more often than this.
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// Makes the tokens of the settings' text, if a tokenizer makes them and they are not in `spool` yet. Answers what is
/// to be said of them then.
///
/// # Errors
/// [`Failure`] of the process that makes them: text or a tokenizer that cannot be read or used.
pub fn spool(
    files: &dyn Files,
    config: &RunConfig,
    model: &Blueprint,
    spool: &Path,
) -> Result<Option<Vec<String>>, Failure> {
    let Some(text) = text_to_tokenize(files, config)? else {
        return Ok(None);
    };
    if files.metadata(spool)?.is_some() {
        return Ok(None);
    }
    let vocab_size = model.text()?.vocab_size();
    let request = match (Source::of(config, vocab_size), &config.model.tokenizer) {
        (Some(source), _) => Request::Records(source),
        (None, Some(tokenizer)) => Request::Text {
            tokenizer: tokenizer.clone(),
            text: text.to_owned(),
            held_out: config.data.eval_data.clone(),
            reads: config.data.reads,
            vocab_size: vocab_size as u32,
        },
        (None, None) => return Ok(None),
    };
    let program =
        std::env::current_exe().map_err(|error| Failure::system("find its own file", &error))?;
    let mut child = Command::new(program)
        .args(["tokenise", "--"])
        .arg(spool)
        .arg(serde_json::to_string(&request).map_err(|error| failed_json(&error))?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::system("start a process", &error))?;
    let (notes, said) = follow(&mut child);
    let status = child
        .wait()
        .map_err(|error| Failure::system("wait for a process", &error))?;
    if status.success() {
        return Ok(Some(notes));
    }
    if let Some(signal) = status.signal() {
        let message = format!("the process that tokenizes the data was killed (signal {signal})");
        return Err(Failure::new(Code::Budget, message).id("HW0306").hint(
            "a system that is out of memory kills processes: close other programs, or use fewer --threads",
        ));
    }
    Err(Failure::of_process(status.code(), said.trim()))
}

/// Shows how far the process is until it ends; what is to be said of the data, and what it wrote to stderr.
fn follow(child: &mut Child) -> (Vec<String>, String) {
    let errors = child.stderr.take().map(|mut stderr| {
        #[expect(
            clippy::disallowed_methods,
            reason = "it waits for another process, whose pipes would fill up"
        )]
        std::thread::spawn(move || {
            let mut said = Vec::new();
            // What can be read of it is what can be told.
            let _ = stderr.read_to_end(&mut said);
            said
        })
    });
    let (meter, mut notes) = (Meter::new("tokenizing"), Vec::new());
    let lines = child
        .stdout
        .take()
        .map(|stdout| BufReader::new(stdout).lines());
    for line in lines.into_iter().flatten().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Report::Progress(done, of)) => meter.tell(done, of),
            Ok(Report::Note(note)) => notes.push(note),
            // Only this program writes there.
            Err(_) => {}
        }
    }
    let said = errors.and_then(|thread| thread.join().ok());
    let said = String::from_utf8_lossy(&said.unwrap_or_default()).into_owned();
    (notes, said)
}

fn report(report: &Report) {
    let mut stdout = std::io::stdout();
    if let Ok(line) = serde_json::to_string(report) {
        // Without somebody who reads it, the tokens are wanted still.
        let _ = writeln!(stdout, "{line}");
    }
}

/// Only paths can be what JSON does not have.
fn failed_json(error: &serde_json::Error) -> Failure {
    Failure::usage(format!(
        "the path of the data, the tokenizer or the template: {error}"
    ))
    .hint("give it a name in UTF-8")
}

/// What that process does.
///
/// # Errors
/// [`Failure`] for text or a tokenizer that cannot be read or used.
pub(crate) fn tokenize(request: &str, spool: &Path) -> Result<(), Failure> {
    let files: Arc<dyn Files> = Arc::new(DiskFiles);
    let request = serde_json::from_str(request).map_err(|error| failed_json(&error))?;
    let last = Cell::new(Instant::now());
    let tell = |done, of| {
        if last.get().elapsed() >= REPORT_EVERY {
            last.set(Instant::now());
            report(&Report::Progress(done, of));
        }
    };
    let progress = Progress::to(&tell);
    match request {
        Request::Records(source) => {
            let notes = source.make(&files, spool, progress)?;
            notes
                .into_iter()
                .map(Report::Note)
                .for_each(|note| report(&note));
            Ok(())
        }
        Request::Text {
            tokenizer,
            text,
            held_out,
            reads,
            vocab_size,
        } => {
            let options = DataOptions {
                tokenizer: &Tokenizer::load(&*files, &tokenizer)?,
                vocab_size,
                width: None,
                held_out: held_out.as_deref(),
                reads,
                progress,
                spool,
            };
            Tokens::open(&files, &text, &options)?;
            Ok(())
        }
    }
}
