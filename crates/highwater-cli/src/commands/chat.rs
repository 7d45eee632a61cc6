//! `chat`: a conversation with a trained model, a line of the standard input for each turn. The line `/reset` begins
//! anew.

use std::io::{BufRead, IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use highwater_memory::{Bytes, DiskFiles};
use highwater_text::{ChatTemplate, Conversation};

use crate::data::prompt::end_of_turns;
use crate::data::records::template;
use crate::error::{Code, Failure};
use crate::generate::{Loaded, SampleArgs, Speed, continue_text, load};
use crate::terminal::output;

/// The longest line that is read, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// `chat`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub struct ChatArgs {
    /// The model.
    #[command(flatten)]
    pub sample: SampleArgs,

    /// System prompt
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,

    /// Chat template: a Jinja file, or chatml [default: the template of the model's folder]
    #[arg(long, value_name = "FILE|chatml")]
    pub chat_template: Option<String>,

    /// Maximum number of tokens of an answer
    #[arg(long, alias = "max-tokens", value_name = "N", default_value_t = 512)]
    pub tokens: usize,
}

/// Talks until the standard input ends.
///
/// # Errors
/// [`Failure`], with the exit code to end with.
pub fn chat(args: &ChatArgs) -> Result<ExitCode, Failure> {
    let files = DiskFiles;
    // How long it becomes nobody knows.
    let loaded = load(&args.sample, |_| Ok(1))?;
    let folder = loaded.tokenizer_path.as_deref().and_then(Path::parent);
    let named = args.chat_template.as_deref().or(loaded.template.as_deref());
    let template = template(&files, named, folder)?.ok_or_else(|| {
        let message = match folder {
            Some(_) => "this model's folder has no chat template",
            None => "this model's folder has no tokenizer.json and no chat template",
        };
        Failure::usage(message).hint("use --chat-template FILE, or --chat-template chatml")
    })?;
    let mut ends = loaded.ends.clone();
    ends.extend(end_of_turns(&template, &loaded.tokenizer)?);
    let mut talk = Talk::new(&loaded, &template, args);
    while let Some(said) = line()? {
        match said.trim() {
            "" => {}
            "/reset" => {
                let speed = talk.speed;
                talk = Talk::new(&loaded, &template, args);
                talk.speed = speed;
                output::news("the conversation starts over");
            }
            _ => match talk.take_turn(said, (args.tokens, &ends, &loaded.stop)) {
                Err(failure) if failure.is_out_of_memory() => {
                    let why = failure.message();
                    output::news(&format!(
                        "not answered: {why}. Use /reset, a shorter text, or more --memory"
                    ));
                }
                taken => taken?,
            },
        }
    }
    talk.speed.tell();
    Ok(ExitCode::SUCCESS)
}

/// A conversation.
struct Talk<'a> {
    loaded: &'a Loaded,
    template: &'a ChatTemplate,
    turns: Vec<(String, String)>,
    /// Turns that stay, whatever is forgotten.
    first: usize,
    /// Whether some were forgotten.
    forgets: bool,
    speed: Speed,
}

impl<'a> Talk<'a> {
    fn new(loaded: &'a Loaded, template: &'a ChatTemplate, args: &ChatArgs) -> Self {
        let system = args.system.iter();
        let turns: Vec<_> = system
            .map(|text| ("system".to_owned(), text.clone()))
            .collect();
        Self {
            loaded,
            template,
            first: turns.len(),
            turns,
            forgets: false,
            speed: Speed::default(),
        }
    }

    /// Answers a message. One that is not answered is no part of the conversation.
    fn take_turn(
        &mut self,
        said: String,
        until: (usize, &[u32], &[String]),
    ) -> Result<(), Failure> {
        self.turns.push(("user".to_owned(), said));
        match self.answer(until) {
            Ok(Some(answer)) => self.turns.push(("assistant".to_owned(), answer)),
            unanswered => {
                self.turns.pop();
                unanswered?;
            }
        }
        Ok(())
    }

    /// The answer to what was said last; none where that is too long.
    fn answer(&mut self, until: (usize, &[u32], &[String])) -> Result<Option<String>, Failure> {
        let Some(prompt) = self.prompt()? else {
            return Ok(None);
        };
        let (answer, speed) = continue_text(self.loaded, &prompt, until)?;
        self.speed = self.speed.and(speed);
        Ok(Some(answer))
    }

    /// The conversation as the model reads it; none where what was said last alone is too long.
    fn prompt(&mut self) -> Result<Option<Vec<u32>>, Failure> {
        let loaded = self.loaded;
        let longest = loaded.model.architecture().max_length();
        let longest = longest.min(loaded.sampling.context);
        loop {
            let turns = self.turns.iter();
            let spoken = turns.map(|(role, text)| (role.as_str(), text.as_str()));
            let text = self.template.render(&Conversation::of(spoken), true)?;
            let prompt = loaded.tokenizer.encode(&text)?;
            if prompt.len() < longest {
                return Ok(Some(prompt));
            }
            if self.turns.len() <= self.first + 1 {
                output::news(&format!(
                    "not answered: this is longer than the {longest} tokens that the model reads"
                ));
                return Ok(None);
            }
            // What was said first is forgotten: a question and its answer.
            let end = (self.first + 2).min(self.turns.len() - 1);
            self.turns.drain(self.first..end);
            if !std::mem::replace(&mut self.forgets, true) {
                output::news(&format!(
                    "note: the conversation is longer than the model's {longest} tokens: its beginning is dropped \
                    from now on"
                ));
            }
        }
    }
}

/// A line that someone said; none at the end. What is too long is no line, and said to be.
fn line() -> Result<Option<String>, Failure> {
    let mut input = std::io::stdin().lock();
    loop {
        if input.is_terminal() {
            output::prompt("> ");
        }
        let mut bytes = Vec::new();
        let failed = |error| Failure::new(Code::Files, error);
        let most = LINE_BYTES_MAX + 1;
        let read = (&mut input).take(most).read_until(b'\n', &mut bytes);
        if read.map_err(failed)? == 0 {
            return Ok(None);
        }
        if bytes.len() as u64 == most && bytes.last() != Some(&b'\n') {
            skip_line(&mut input).map_err(failed)?;
            output::news(&format!(
                "not answered: a line of more than {}",
                Bytes(LINE_BYTES_MAX)
            ));
            continue;
        }
        let text = String::from_utf8(bytes).unwrap_or_else(|error| {
            output::news("note: this line is not valid UTF-8: invalid bytes are read as \u{FFFD}");
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        });
        return Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()));
    }
}

/// Reads to the end of a line.
fn skip_line(input: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let there = input.fill_buf()?;
        let end = there.iter().position(|&byte| byte == b'\n');
        let (len, is_end) = match end {
            Some(at) => (at + 1, true),
            None => (there.len(), there.is_empty()),
        };
        input.consume(len);
        if is_end {
            return Ok(());
        }
    }
}
