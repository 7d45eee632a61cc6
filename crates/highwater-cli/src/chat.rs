//! `chat`: a conversation with a trained model, a line of the standard input for each turn.

use std::io::{BufRead, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use highwater_memory::DiskFiles;
use highwater_models::{Tokenizer, generate as sample};
use highwater_text::{ChatTemplate, Conversation};

use crate::error::{Code, Failure};
use crate::generate::{Loaded, SampleArgs, load, stop_at};
use crate::output;
use crate::records::template;

/// The longest line that is read, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// `chat`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub struct ChatArgs {
    /// The model.
    #[command(flatten)]
    pub sample: SampleArgs,

    /// What the model is told before all else
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,

    /// How conversations are written: a file with a Jinja template, or chatml [default: the model folder's template]
    #[arg(long, value_name = "FILE|chatml")]
    pub chat_template: Option<String>,

    /// Tokens of an answer, at most
    #[arg(long, alias = "max-tokens", value_name = "N", default_value_t = 512)]
    pub tokens: usize,
}

/// Talks until the standard input ends.
///
/// # Errors
/// [`Failure`], with the exit code to end with.
pub fn chat(args: &ChatArgs) -> Result<ExitCode, Failure> {
    let files = DiskFiles;
    let loaded = load(&args.sample)?;
    let folder = loaded.tokenizer_path.as_deref().and_then(Path::parent);
    let named = args.chat_template.as_deref().or(loaded.template.as_deref());
    let template = template(&files, named, folder)?.ok_or_else(|| {
        Failure::usage("there is no chat template beside this model")
            .hint("give one by --chat-template FILE, or say --chat-template chatml")
    })?;
    let mut ends = loaded.ends.clone();
    ends.extend(end_of_turns(&template, &loaded.tokenizer)?);
    let mut turns: Vec<(String, String)> = Vec::new();
    turns.extend(
        args.system
            .iter()
            .map(|text| ("system".to_owned(), text.clone())),
    );
    let first = turns.len();
    while let Some(said) = line()? {
        if said.trim().is_empty() {
            continue;
        }
        turns.push(("user".to_owned(), said));
        let prompt = loop {
            let spoken = turns
                .iter()
                .map(|(role, text)| (role.as_str(), text.as_str()));
            let text = template.render(&Conversation::of(spoken), true)?;
            let prompt = loaded.tokenizer.encode(&text)?;
            let longest = loaded.model.architecture().max_length();
            let longest = longest.min(loaded.sampling.context);
            if prompt.len() < longest {
                break prompt;
            }
            if turns.len() <= first + 1 {
                let message =
                    format!("this is longer than the {longest} tokens that the model reads");
                return Err(Failure::usage(message));
            }
            // What was said first is forgotten: a question and its answer.
            turns.drain(first..(first + 2).min(turns.len() - 1));
        };
        let answer = answer(&loaded, &prompt, args.tokens, &ends)?;
        turns.push(("assistant".to_owned(), answer));
    }
    Ok(ExitCode::SUCCESS)
}

/// A line that someone said; none at the end.
fn line() -> Result<Option<String>, Failure> {
    let input = std::io::stdin();
    if input.is_terminal() {
        output::prompt("> ");
    }
    let mut line = String::new();
    let read = std::io::Read::take(input.lock(), LINE_BYTES_MAX).read_line(&mut line);
    let read = read.map_err(|error| Failure::new(Code::Files, error))?;
    Ok((read > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned()))
}

/// Says what the model answers, as it comes.
fn answer(loaded: &Loaded, prompt: &[u32], most: usize, ends: &[u32]) -> Result<String, Failure> {
    let (mut said, mut tokens) = (0, Vec::new());
    let mut failed = None;
    sample(&*loaded.model, prompt, most, loaded.sampling, |token| {
        let flow = stop_at(ends, token);
        if flow.is_break() {
            return flow;
        }
        tokens.push(token);
        match loaded.tokenizer.decode(&tokens) {
            // Of a letter of several tokens the first ones are no letter yet.
            Ok(text) if !text.ends_with('\u{FFFD}') && text.is_char_boundary(said) => {
                output::piece(&text[said.min(text.len())..]);
                said = text.len();
            }
            Ok(_) => {}
            Err(error) => failed = Some(error),
        }
        flow
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    output::result("");
    Ok(loaded.tokenizer.decode(&tokens)?)
}

/// The token that a template writes after what the assistant said.
pub(crate) fn end_of_turns(
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
) -> Result<Option<u32>, Failure> {
    let said = "said";
    let turns = Conversation::of([("user", "asked"), ("assistant", said)]);
    let text = template.render(&turns, false)?;
    let Some((_, behind)) = text.rsplit_once(said) else {
        return Ok(None);
    };
    let first = tokenizer.encode(behind.trim())?.first().copied();
    Ok(first.filter(|&token| tokenizer.is_special(token)))
}
