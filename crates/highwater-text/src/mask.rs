//! Which parts of a conversation are learnt: what the assistant says, with the end of its turns.

use std::ops::Range;

use serde_json::Value;

use crate::template::MARKS;
use crate::{ChatTemplate, Conversation, TextError};

/// A conversation as the model reads it, and the parts of it, in bytes, that are learnt.
pub type Marked = (String, Vec<Range<usize>>);

/// Writes a conversation and finds the assistant's turns in it: from where a template asks for an answer to the end
/// of the turn, white space after that left out. A template with `{% generation %}` says so itself.
///
/// # Errors
/// [`TextError::Template`] where the template refuses the conversation, or turns cannot be told apart.
pub fn turns(template: &ChatTemplate, conversation: &Conversation) -> Result<Marked, TextError> {
    let full = template.render_marked(conversation, &conversation.messages, false)?;
    if template.marks_turns() {
        return marked(template, conversation, &full);
    }
    if full.contains(MARKS) {
        return Err(unclear(
            template,
            0,
            "its text has characters for private use",
        ));
    }
    let mut spans = Vec::new();
    for i in assistants(conversation).filter(|&i| !conversation.left_out[i]) {
        let turn = Turn {
            template,
            conversation,
            full: &full,
            i,
        };
        let start = turn.start()?;
        let end = turn.end(start)?;
        if start < end {
            spans.push(start..end);
        }
    }
    Ok((full, spans))
}

fn assistants(conversation: &Conversation) -> impl Iterator<Item = usize> {
    let messages = conversation.messages.iter().enumerate();
    messages.filter_map(|(i, message)| (message["role"] == "assistant").then_some(i))
}

fn unclear(template: &ChatTemplate, message: usize, problem: &str) -> TextError {
    TextError::Template {
        source_name: template.source_name().to_owned(),
        problem: format!(
            "the chat template: where the assistant's turn (message {}) is in the conversation cannot be told: \
             {problem}",
            message + 1
        ),
        hint: Some(
            "mark it in the template by {% generation %} and {% endgeneration %}, or learn everything: \
             --loss-on all"
                .to_owned(),
        ),
    }
}

/// What lies between marks, without them.
fn marked(
    template: &ChatTemplate,
    conversation: &Conversation,
    text: &str,
) -> Result<Marked, TextError> {
    let (mut plain, mut spans) = (String::with_capacity(text.len()), Vec::new());
    let mut start = None;
    for c in text.chars() {
        if c == MARKS[0] {
            start = Some(plain.len());
        } else if c == MARKS[1] {
            let start = start.take();
            let start = start.ok_or_else(|| unclear(template, 0, "{% endgeneration %} alone"))?;
            spans.push(start..plain.len());
        } else {
            plain.push(c);
        }
    }
    let turns: Vec<_> = assistants(conversation).collect();
    let left_out = |i: &usize| conversation.left_out[*i];
    if turns.iter().any(left_out) {
        if spans.len() != turns.len() {
            return Err(unclear(template, 0, "it marks another number of turns"));
        }
        let mut kept = turns.iter().map(|i| !left_out(i));
        spans.retain(|_| kept.next().unwrap_or(false));
    }
    spans.retain(|span| !span.is_empty());
    Ok((plain, spans))
}

/// A turn of the assistant in a conversation.
struct Turn<'a> {
    template: &'a ChatTemplate,
    conversation: &'a Conversation,
    full: &'a str,
    i: usize,
}

impl Turn<'_> {
    fn render(&self, messages: &[Value], prompt: bool) -> Result<String, TextError> {
        let rendered = self
            .template
            .render_marked(self.conversation, messages, prompt);
        rendered.map_err(|error| unclear(self.template, self.i, &error.to_string()))
    }

    /// Where the template would have the model begin.
    fn start(&self) -> Result<usize, TextError> {
        let before = &self.conversation.messages[..self.i];
        let asked = self.render(before, true)?;
        if self.full.starts_with(&asked) {
            return Ok(asked.len());
        }
        // A template may ask for thoughts, which what was answered does not have.
        let plain = self.render(before, false)?;
        if !self.full.starts_with(&plain) || !asked.starts_with(&plain) {
            let problem = "what comes before it is written otherwise without it";
            return Err(unclear(self.template, self.i, problem));
        }
        let (asked, full) = (
            asked[plain.len()..].chars(),
            self.full[plain.len()..].chars(),
        );
        let same = asked.zip(full).take_while(|(a, b)| a == b);
        let same: String = same.map(|(c, _)| c).collect();
        // Not within a token such as `<think>`, whose first letters others have too.
        let whole = |c: char| c.is_whitespace() || matches!(c, '>' | ']');
        let start = same.rfind(whole).map_or(0, |at| at + 1);
        Ok(plain.len() + start)
    }

    fn end(&self, start: usize) -> Result<usize, TextError> {
        let messages = &self.conversation.messages;
        let end = if self.i + 1 == messages.len() {
            self.full.len()
        } else {
            let through = self.render(&messages[..=self.i], false)?;
            if self.full.starts_with(&through) {
                through.len()
            } else {
                self.end_by_mark()?
            }
        };
        Ok(self.without_space(start, end))
    }

    /// Where a turn ends that is written otherwise when it is the last one: by a mark behind what it says.
    fn end_by_mark(&self) -> Result<usize, TextError> {
        let mut messages = self.conversation.messages.clone();
        let content = messages[self.i]["content"].as_str().unwrap_or_default();
        let said = content.trim_end();
        let with_mark = format!("{said}{}{}", MARKS[1], &content[said.len()..]);
        messages[self.i]["content"] = with_mark.into();
        let full = self.render(&messages, false)?;
        let last = self.render(&messages[..=self.i], false)?;
        let (Some((before, after)), Some((_, rest))) =
            (full.split_once(MARKS[1]), last.split_once(MARKS[1]))
        else {
            return Err(unclear(
                self.template,
                self.i,
                "the template leaves out what it says",
            ));
        };
        let same = self.full.len() == before.len() + after.len()
            && self.full.starts_with(before)
            && self.full.ends_with(after);
        if !same || !after.starts_with(rest) {
            let problem = "it is written otherwise in the middle than at the end";
            return Err(unclear(self.template, self.i, problem));
        }
        Ok(before.len() + rest.len())
    }

    /// Where there is something between what is said and white space at the end, it is what ends a turn.
    fn without_space(&self, start: usize, end: usize) -> usize {
        let content = self.conversation.messages[self.i]["content"].as_str();
        let said = content.unwrap_or_default().trim();
        let turn = &self.full[start.min(end)..end];
        // A template may leave out or change what comes first.
        let line = said.rsplit('\n').next().unwrap_or_default().trim_start();
        let word = said.rsplit(char::is_whitespace).next().unwrap_or_default();
        let ends = [said, line, word].map(|said| Some(turn.rfind(said)? + said.len()));
        let behind = match said {
            "" => 0,
            _ => ends.into_iter().flatten().next().unwrap_or(turn.len()),
        };
        if turn[behind..].trim().is_empty() {
            return end;
        }
        start + turn.trim_end().len()
    }
}
