//! Which parts of a conversation loss is computed on: the assistant's turns, with what ends them.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;

use crate::chat::conversation::Conversation;
use crate::chat::template::ChatTemplate;
use crate::error::TextError;
use crate::jinja::Rendered;

/// A conversation as the model reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marked {
    /// The text.
    pub text: String,
    /// The assistant's turns in it, in order.
    pub turns: Vec<Turn>,
}

/// What the assistant says in one turn, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Where it is, in bytes.
    pub range: Range<usize>,
    /// Whether something may end it behind its range alone: within it nothing follows what is said.
    pub open: bool,
}

impl Turn {
    /// A turn with what ends it.
    pub(crate) fn closed(range: Range<usize>) -> Self {
        Self { range, open: false }
    }
}

/// Writes a conversation and finds the assistant's turns in it: from where a template asks for an answer to the end
/// of the turn, white space after that left out. A template with `{% generation %}` says so itself.
///
/// # Errors
/// [`TextError::Template`] where the template refuses the conversation, or turns cannot be told apart.
pub fn turns(template: &ChatTemplate, conversation: &Conversation) -> Result<Marked, TextError> {
    template.on_its_stack(|| {
        let full = template.rendered(conversation, &conversation.messages, false)?;
        let turns = if template.marks_turns() {
            generations(template, conversation, &full)?
        } else {
            Finder {
                template,
                conversation,
                full: &full,
                prompts: BTreeMap::new(),
            }
            .turns()?
        };
        Ok(Marked {
            text: full.text,
            turns,
        })
    })
}

fn is_assistant(message: &Value) -> bool {
    message["role"] == "assistant"
}

fn assistants(conversation: &Conversation) -> impl Iterator<Item = usize> {
    let messages = conversation.messages.iter().enumerate();
    messages.filter_map(|(i, message)| is_assistant(message).then_some(i))
}

fn unclear(template: &ChatTemplate, message: usize, problem: &str) -> TextError {
    TextError::Template {
        source_name: template.source_name().to_owned(),
        problem: format!(
            "the chat template: cannot find the assistant's turn (message {}) in the conversation: {problem}",
            message + 1
        ),
        hint: Some(
            "mark it in the template with {% generation %} and {% endgeneration %}, or compute the loss on \
            everything: --loss-on all"
                .to_owned(),
        ),
    }
}

/// What the template marks. A part of it belongs to the message that was at hand there, or else to the one before.
fn generations(
    template: &ChatTemplate,
    conversation: &Conversation,
    full: &Rendered,
) -> Result<Vec<Turn>, TextError> {
    let left_out = &conversation.left_out;
    let some_left_out = assistants(conversation).any(|i| left_out[i]);
    let (mut turns, mut last) = (Vec::new(), None);
    for (range, owner) in &full.generations {
        let owner = owner.filter(|&i| is_assistant(&conversation.messages[i]));
        last = owner.or(last);
        if some_left_out {
            let owner = last.ok_or_else(|| {
                unclear(template, 0, "what it marks lies outside of all messages")
            })?;
            if left_out[owner] {
                continue;
            }
        }
        if !range.is_empty() {
            turns.push(Turn::closed(range.clone()));
        }
    }
    Ok(turns)
}

/// Finds turns by the messages that the template had at hand when it wrote them.
struct Finder<'a> {
    template: &'a ChatTemplate,
    conversation: &'a Conversation,
    full: &'a Rendered,
    /// How a template asks for an answer behind a message of some role.
    prompts: BTreeMap<String, String>,
}

impl Finder<'_> {
    fn turns(&mut self) -> Result<Vec<Turn>, TextError> {
        let mut turns = Vec::new();
        for i in assistants(self.conversation) {
            let parts = self.parts(i);
            self.check(i, &parts)?;
            if self.conversation.left_out[i] {
                continue;
            }
            turns.extend(self.turn(i, parts));
        }
        turns.extend(self.end_of_text());
        turns.sort_by_key(|turn| turn.range.start);
        Ok(turns)
    }

    /// What ends a text, where a template writes it behind all messages: it ends the last turn, too.
    fn end_of_text(&self) -> Option<Turn> {
        let last = self.conversation.messages.len().checked_sub(1)?;
        let learned =
            is_assistant(&self.conversation.messages[last]) && !self.conversation.left_out[last];
        let (start, _) = self
            .full
            .owners
            .last()
            .filter(|(_, owner)| owner.is_none() && learned)?;
        let own = self
            .conversation
            .variables
            .get("eos_token")
            .and_then(Value::as_str);
        let end = own.or_else(|| self.template.special("eos_token"))?;
        let tail = &self.full.text[*start..];
        let at = start + (tail.len() - tail.trim_start().len());
        (tail.trim() == end).then(|| Turn::closed(at..at + end.len()))
    }

    /// Where a message was at hand.
    fn parts(&self, i: usize) -> Vec<Range<usize>> {
        let starts = self.full.owners.iter();
        let ends = self.full.owners.iter().skip(1).map(|(start, _)| *start);
        let ends = ends.chain([self.full.text.len()]);
        let parts = starts.zip(ends).filter(|((_, owner), _)| *owner == Some(i));
        parts.map(|((start, _), end)| *start..end).collect()
    }

    /// What a message says, as far as it is text.
    fn said(&self, i: usize) -> Vec<&str> {
        match &self.conversation.messages[i]["content"] {
            Value::String(text) => vec![text.trim()],
            Value::Array(parts) => {
                let texts = parts.iter().filter_map(|part| part["text"].as_str());
                texts.map(str::trim).collect()
            }
            _ => Vec::new(),
        }
    }

    /// An error if what the assistant says stands elsewhere than where its message was at hand.
    fn check(&self, i: usize, parts: &[Range<usize>]) -> Result<(), TextError> {
        let text = &self.full.text;
        for said in self.said(i).into_iter().filter(|said| !said.is_empty()) {
            // A template may leave out thoughts that come first.
            let said = said.rsplit("</think>").next().unwrap_or(said).trim();
            let here = parts.iter().any(|part| text[part.clone()].contains(said));
            if !here && text.contains(said) {
                let problem = "the template writes it where it does not go through the messages";
                return Err(unclear(self.template, i, problem));
            }
        }
        Ok(())
    }

    fn turn(&mut self, i: usize, mut parts: Vec<Range<usize>>) -> Vec<Turn> {
        let Some(first) = parts.first_mut() else {
            return Vec::new();
        };
        let prompts = self.prompts(i);
        first.start += answer_start(&self.full.text[first.clone()], &prompts, i == 0);
        let text = &self.full.text;
        let last = parts.len() - 1;
        let mut turns = Vec::new();
        for (at, part) in parts.into_iter().enumerate() {
            let written = &text[part.clone()];
            let (end, open) = if at == last {
                self.end(i, written)
            } else {
                // What comes between its parts is what the tools say.
                (written.len(), false)
            };
            let range = part.start..part.start + end;
            if !range.is_empty() {
                turns.push(Turn { range, open });
            }
        }
        turns
    }

    /// How the template asks for the answer that a message is, and how it asks for the answer to a question: behind
    /// what a tool says, a turn may go on or another one begin.
    fn prompts(&mut self, i: usize) -> [String; 2] {
        let messages = &self.conversation.messages;
        let is_asked = |i: &usize| *i > 0 && messages[i - 1]["role"] == "user";
        let asked = assistants(self.conversation).find(is_asked);
        [
            self.prompt(i),
            asked.map_or_else(String::new, |i| self.prompt(i)),
        ]
    }

    fn prompt(&mut self, i: usize) -> String {
        let messages = &self.conversation.messages;
        let before = i.checked_sub(1).and_then(|i| messages[i]["role"].as_str());
        let role = before.unwrap_or_default().to_owned();
        if let Some(known) = self.prompts.get(&role) {
            return known.clone();
        }
        let messages = match i {
            0 => &messages[..],
            i => &messages[..i],
        };
        let render = |prompt| self.template.rendered(self.conversation, messages, prompt);
        // A template may refuse what is no whole conversation: then nothing tells how it asks.
        let found = match (render(true), render(false)) {
            (Ok(asked), Ok(plain)) => asked_by(&asked, &plain),
            _ => String::new(),
        };
        self.prompts.insert(role, found.clone());
        found
    }

    /// Where a turn ends in what was written of it, and whether nothing there ends it.
    fn end(&self, i: usize, written: &str) -> (usize, bool) {
        let said = self.said(i).pop().unwrap_or_default();
        let calls = self.conversation.messages[i].get("tool_calls");
        let calls = calls.is_some_and(|calls| calls.as_array().is_some_and(|it| !it.is_empty()));
        // A template may leave out or change what comes first.
        let line = said.rsplit('\n').next().unwrap_or_default().trim_start();
        let word = said.rsplit(char::is_whitespace).next().unwrap_or_default();
        let ends = [said, line, word].map(|said| Some(written.rfind(said)? + said.len()));
        let behind = match said {
            "" => 0,
            _ => ends.into_iter().flatten().next().unwrap_or(written.len()),
        };
        if written[behind..].trim().is_empty() {
            // White space alone may be what ends it.
            return (written.len(), true);
        }
        let end = written.trim_end().len();
        // Behind a call of a tool there is always something.
        let open = calls && {
            let closing = self.closing();
            closing.is_empty() || !written[..end].ends_with(&closing)
        };
        (end, open)
    }

    /// What the template writes behind what the assistant says, where that is text alone.
    fn closing(&self) -> String {
        const SAID: &str = "sure";
        let plain = Conversation::of([("user", "hello"), ("assistant", SAID)]);
        let Ok(rendered) = self.template.rendered(&plain, &plain.messages, false) else {
            return String::new();
        };
        let owners = rendered.owners.iter();
        let end = owners
            .rev()
            .find(|(_, owner)| *owner == Some(1))
            .map(|(start, _)| *start);
        let start = end.and_then(|start| Some(start + rendered.text[start..].find(SAID)?));
        let closing = start.map(|start| rendered.text[start + SAID.len()..].trim());
        closing.unwrap_or_default().to_owned()
    }
}

/// What a template writes to ask for an answer: what it writes behind all messages, and does not write without.
fn asked_by(asked: &Rendered, plain: &Rendered) -> String {
    let tail = |rendered: &Rendered| match rendered.owners.last() {
        Some((start, None)) => rendered.text[*start..].to_owned(),
        _ => String::new(),
    };
    let (asked, plain) = (tail(asked), tail(plain));
    match asked.strip_prefix(&plain) {
        Some(rest) => rest.to_owned(),
        None => asked,
    }
}

/// Where what is said begins in a turn, behind what asks for it. Before the first turn may be what begins a text.
fn answer_start(written: &str, prompts: &[String; 2], is_first: bool) -> usize {
    const THOUGHTS: &str = "<think>";
    let whole = prompts
        .iter()
        .filter(|prompt| written.starts_with(&***prompt));
    let whole = whole.map(String::len).max().unwrap_or(0);
    if whole > 0 {
        return whole;
    }
    let prompt = &*prompts[0];
    if let (true, false, Some(at)) = (is_first, prompt.is_empty(), written.find(prompt)) {
        return at + prompt.len();
    }
    // A template may ask for thoughts, which what was answered does not have.
    let same = written
        .chars()
        .zip(prompt.chars())
        .take_while(|(a, b)| a == b);
    let same: usize = same.map(|(c, _)| c.len_utf8()).sum();
    // Not within a token such as `<think>`, whose first letters others have too.
    let ends = |c: char| c.is_whitespace() || matches!(c, '>' | ']');
    let start = written[..same].rfind(ends);
    let start = start.map_or(0, |at| {
        at + written[at..].chars().next().map_or(1, char::len_utf8)
    });
    // Thoughts that the template has begun otherwise are part of the answer.
    let before = written[..start].trim_end();
    before.strip_suffix(THOUGHTS).map_or(start, str::len)
}
