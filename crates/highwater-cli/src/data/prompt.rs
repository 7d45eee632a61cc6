//! Texts to go on from, as tokens, and the tokens that end an answer.

use std::ops::ControlFlow;

use highwater_models::Tokenizer;
use highwater_text::{ChatTemplate, Conversation};

use crate::error::Failure;

/// A text to go on from, as texts begin that a model learnt from.
pub(crate) fn prompt_tokens(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, Failure> {
    let mut tokens = tokenizer.before_texts()?;
    tokens.extend(tokenizer.encode(text)?);
    Ok(tokens)
}

/// Whether a token ends what is said.
pub(crate) fn stop_at(ends: &[u32], token: u32) -> ControlFlow<()> {
    if ends.contains(&token) {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
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
