//! `generate`: continues a text with a trained model.

use std::process::ExitCode;

use clap::Args;

use crate::data::prompt::prompt_tokens;
use crate::error::Failure;
use crate::generate::{SampleArgs, continue_text, load};
use crate::terminal::output;

/// `generate`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub struct GenerateArgs {
    /// The model.
    #[command(flatten)]
    pub sample: SampleArgs,

    /// Text to continue
    #[arg(long, value_name = "TEXT")]
    pub prompt: String,

    /// Maximum number of tokens to generate
    #[arg(long, alias = "max-tokens", value_name = "N", default_value_t = 100)]
    pub tokens: usize,
}

/// Continues a text.
///
/// # Errors
/// [`Failure`], with the exit code to end with.
pub fn generate(args: &GenerateArgs) -> Result<ExitCode, Failure> {
    if args.prompt.is_empty() {
        return Err(Failure::usage("--prompt must have at least one character"));
    }
    let mut prompt = Vec::new();
    let loaded = load(&args.sample, |tokenizer| {
        prompt = prompt_tokens(tokenizer, &args.prompt)?;
        Ok(prompt.len() + args.tokens)
    })?;
    if let Some(unread) = prompt.len().checked_sub(loaded.window).filter(|&n| n > 0) {
        output::news(&format!(
            "note: the prompt has {} tokens, and the model reads {}: the first {unread} are left out",
            prompt.len(),
            loaded.window
        ));
    }
    output::piece(&loaded.tokenizer.decode(&prompt)?);
    let until = (args.tokens, &*loaded.ends, &*loaded.stop);
    let (_, speed) = continue_text(&loaded, &prompt, until)?;
    speed.tell();
    let (all, window) = (prompt.len() + speed.tokens(), loaded.window);
    // The last token is drawn from those before it.
    if all > window + 1 && prompt.len() <= window {
        output::news(&format!(
            "note: the text has {all} tokens, and the model reads {window}: its end was generated without its beginning"
        ));
    }
    Ok(ExitCode::SUCCESS)
}
