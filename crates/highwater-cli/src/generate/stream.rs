//! Text as it comes, a token at a time.

use std::ops::ControlFlow;
use std::time::Instant;

use highwater_models::{Tokenizer, TokenizerError, generate};

use super::loaded::Loaded;
use crate::data::prompt::stop_at;
use crate::error::Failure;
use crate::terminal::figures::per_second;
use crate::terminal::output;

/// How many tokens were drawn, and how long that took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Speed {
    tokens: usize,
    seconds: f64,
}

impl Speed {
    /// That of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            tokens: self.tokens + other.tokens,
            seconds: self.seconds + other.seconds,
        }
    }

    /// How many tokens were drawn.
    pub(crate) fn tokens(self) -> usize {
        self.tokens
    }

    /// Tells it beside the text.
    pub(crate) fn tell(self) {
        if self.tokens > 0 {
            let rate = per_second(self.tokens as f64 / self.seconds.max(1e-9));
            output::news(&format!("{} tokens, {rate} tokens/s", self.tokens));
        }
    }
}

/// Draws at most `most` tokens behind a prompt and shows them as they come, up to one of `ends` or of the strings to
/// stop at. Returns the text.
///
/// # Errors
/// [`Failure`] of the engine, or for a prompt that the model does not read.
pub(crate) fn continue_text(
    loaded: &Loaded,
    prompt: &[u32],
    (most, ends, stops): (usize, &[u32], &[String]),
) -> Result<(String, Speed), Failure> {
    let mut stream = Stream::after(&loaded.tokenizer, prompt, stops);
    let (mut failed, mut speed, started) = (None, Speed::default(), Instant::now());
    generate(&*loaded.model, prompt, most, loaded.sampling, |token| {
        speed.tokens += 1;
        let flow = stop_at(ends, token);
        if flow.is_break() {
            return flow;
        }
        match stream.push(token) {
            Ok(text) if text.is_empty() => {}
            Ok(text) => output::piece(&text),
            Err(error) => failed = Some(error),
        }
        if stream.is_stopped() || failed.is_some() {
            ControlFlow::Break(())
        } else {
            flow
        }
    })
    .map_err(|error| loaded.failed(error))?;
    speed.seconds = started.elapsed().as_secs_f64();
    match failed {
        Some(error) => return Err(error.into()),
        None => output::piece(&stream.finish()?),
    }
    output::result("");
    Ok((stream.into_text(), speed))
}

/// Turns tokens into text as they come, up to the first of some strings.
#[derive(Debug)]
pub(crate) struct Stream<'a> {
    tokenizer: &'a Tokenizer,
    stops: &'a [String],
    tokens: Vec<u32>,
    /// The text of the tokens before `read` is shown, or held back; that of those from `from` on is looked at again,
    /// as how a token is written may depend on the one before.
    from: usize,
    read: usize,
    /// What may be the beginning of a string to stop at.
    held: String,
    stopped: bool,
    text: String,
}

impl<'a> Stream<'a> {
    /// After a text of these tokens, which is shown already.
    ///
    /// # Errors
    /// [`TokenizerError`] for tokens that the tokenizer does not have.
    pub(crate) fn after(tokenizer: &'a Tokenizer, prompt: &[u32], stops: &'a [String]) -> Self {
        // As many tokens as a letter may have are enough to tell how the next is written.
        let from = prompt.len().saturating_sub(8);
        Self {
            tokenizer,
            stops,
            tokens: prompt[from..].to_vec(),
            from: 0,
            read: prompt.len() - from,
            held: String::new(),
            stopped: false,
            text: String::new(),
        }
    }

    /// Takes a token; returns what there is to show since.
    ///
    /// # Errors
    /// [`TokenizerError`] for a token that the tokenizer does not have.
    pub(crate) fn push(&mut self, token: u32) -> Result<String, TokenizerError> {
        self.tokens.push(token);
        let before = self.tokenizer.decode(&self.tokens[self.from..self.read])?;
        let now = self.tokenizer.decode(&self.tokens[self.from..])?;
        // Of a letter of several tokens the first ones are no letter yet.
        let new = match now.strip_prefix(&before) {
            Some(new) if !now.ends_with('\u{FFFD}') => new,
            _ => return Ok(String::new()),
        };
        (self.from, self.read) = (self.read, self.tokens.len());
        Ok(self.show(new))
    }

    /// What is still held back, when no token follows.
    ///
    /// # Errors
    /// As [`Stream::push`].
    pub(crate) fn finish(&mut self) -> Result<String, TokenizerError> {
        if self.stopped {
            return Ok(String::new());
        }
        let before = self.tokenizer.decode(&self.tokens[self.from..self.read])?;
        let now = self.tokenizer.decode(&self.tokens[self.from..])?;
        let new = now.strip_prefix(&before).unwrap_or_default().to_owned();
        let mut shown = self.show(&new);
        let rest = std::mem::take(&mut self.held);
        self.text.push_str(&rest);
        shown.push_str(&rest);
        Ok(shown)
    }

    /// Whether a string to stop at has come.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// All that was shown.
    pub(crate) fn into_text(self) -> String {
        self.text
    }

    fn show(&mut self, new: &str) -> String {
        self.held.push_str(new);
        let stop = self
            .stops
            .iter()
            .filter_map(|stop| self.held.find(stop.as_str()))
            .min();
        let shown = if let Some(at) = stop {
            self.stopped = true;
            self.held.truncate(at);
            std::mem::take(&mut self.held)
        } else {
            let begun = self.stops.iter().map(|stop| begun(&self.held, stop)).max();
            let rest = self.held.split_off(self.held.len() - begun.unwrap_or(0));
            std::mem::replace(&mut self.held, rest)
        };
        self.text.push_str(&shown);
        shown
    }
}

/// How many bytes at a text's end are the beginning of a string.
fn begun(text: &str, stop: &str) -> usize {
    let ends = text.char_indices().map(|(at, _)| &text[at..]);
    let mut ends = ends.filter(|end| end.len() < stop.len() && stop.starts_with(end));
    ends.next().map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[u32], stops: &[&str]) -> (Vec<String>, bool, String) {
        let stops: Vec<_> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut stream = Stream::after(&Tokenizer::Bytes, b"a ".map(u32::from).as_slice(), &stops);
        let mut shown = Vec::new();
        for &token in pieces {
            if !stream.is_stopped() {
                shown.push(stream.push(token).unwrap());
            }
        }
        shown.push(stream.finish().unwrap());
        assert_eq!(shown.concat(), stream.text);
        (shown, stream.is_stopped(), stream.into_text())
    }

    fn bytes(text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    #[test]
    fn letters_come_whole_and_nothing_is_lost() {
        let (pieces, stopped, text) = shown(&bytes("häh 🎉!"), &[]);
        assert_eq!(text, "häh 🎉!");
        assert!(!stopped && pieces.iter().all(|piece| piece.chars().count() <= 1));
        // A letter that does not become whole is shown as what it is.
        let (_, _, text) = shown(&[104, 0xF0, 0x9F], &[]);
        assert!(
            text.starts_with('h') && text.contains('\u{FFFD}'),
            "{text:?}"
        );
    }

    #[test]
    fn a_text_ends_before_the_first_string_to_stop_at() {
        for (text, stops, expected) in [
            ("one two three", &["two"][..], "one "),
            ("one two three", &["three", "two"], "one "),
            ("ab aab aac", &["aac"], "ab aab "),
            ("aaab", &["aab"], "a"),
            ("no end", &["ends", "x"], "no end"),
            ("half en", &["end"], "half en"),
            ("ä–ö", &["–"], "ä"),
        ] {
            let (_, stopped, found) = shown(&bytes(text), stops);
            assert_eq!(found, expected);
            assert_eq!(stopped, found != text, "{text}");
        }
    }
}
