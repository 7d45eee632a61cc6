//! Examples to tokens, each with whether it is learnt.

use std::ops::Range;

use serde_json::Value;

use crate::chat::{self, ChatTemplate, Conversation, Turn};
use crate::error::TextError;
use crate::example::Example;
use crate::tokenizer::Tokenizer;

/// The tokens of an example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Tokens.
    pub tokens: Vec<u32>,
    /// Whether each is learnt.
    pub learned: Vec<bool>,
    /// Whether it is a text, which may be divided where it is too long.
    pub is_text: bool,
    /// Turns of the assistant that no token ends: a model that learns from them does not learn to stop.
    pub endless: usize,
}

/// What of an example is learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Learn {
    /// What the assistant says, completions, and texts.
    #[default]
    Answers,
    /// All of it.
    Everything,
}

/// Makes tokens of examples.
#[derive(Debug)]
pub struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    template: Option<ChatTemplate>,
    learn: Learn,
    /// What the tokenizer puts before a text, such as a token that begins it.
    before: Vec<u32>,
    /// What ends a text.
    end: Option<u32>,
}

impl<'a> Encoder<'a> {
    /// An encoder with the template of a model, and the token that ends a text.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`].
    pub fn new(
        tokenizer: &'a Tokenizer,
        template: Option<ChatTemplate>,
        end: Option<u32>,
        learn: Learn,
    ) -> Result<Self, TextError> {
        Ok(Self {
            tokenizer,
            template,
            learn,
            before: tokenizer.before_texts()?,
            end,
        })
    }

    /// The template of conversations.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.tokenizer
    }

    /// The tokens of an example; of a pair those of the chosen answer and of the rejected one.
    ///
    /// # Errors
    /// [`TextError`] of the template or the tokenizer.
    pub fn encode(&self, example: &Example) -> Result<Vec<Document>, TextError> {
        let document = match example {
            Example::Pair(both) => return self.pair(both),
            Example::Chat(conversation) => {
                let template = self.template.as_ref().ok_or_else(|| self.no_template())?;
                if let Some(asked) = self.asked(conversation) {
                    let mut document = self.unlearned(example)?;
                    let start = self.answer_at(template, conversation, asked, &document)?;
                    document.learned[start..].fill(true);
                    return Ok(vec![document]);
                }
                let mut document = Document::default();
                match self.learn {
                    Learn::Answers => {
                        let marked = chat::turns(template, conversation)?;
                        self.add(&marked.text, &marked.turns, &mut document)?;
                    }
                    Learn::Everything => {
                        let text = template.render(conversation, false)?;
                        self.add(&text, &[Turn::closed(0..text.len())], &mut document)?;
                    }
                }
                document
            }
            Example::Completion { prompt, completion } => {
                let text = format!("{prompt}{completion}");
                let start = match self.learn {
                    Learn::Answers => prompt.len(),
                    Learn::Everything => 0,
                };
                self.whole(&text, start..text.len(), false)?
            }
            Example::Text(text) => self.whole(text, 0..text.len(), true)?,
            Example::Tokens { ids, learned } => {
                let learned = learned.clone().filter(|_| self.learn == Learn::Answers);
                Document {
                    tokens: ids.clone(),
                    learned: learned.unwrap_or_else(|| vec![true; ids.len()]),
                    is_text: false,
                    endless: 0,
                }
            }
        };
        Ok(vec![document])
    }

    /// How many messages of a conversation ask, where all that is written behind them is an answer to be learnt.
    fn asked(&self, conversation: &Conversation) -> Option<usize> {
        let count = conversation
            .asked
            .filter(|_| self.learn == Learn::Answers)?;
        let all = conversation.messages.iter().zip(&conversation.left_out);
        let is_answer =
            |(message, left_out): (&Value, &bool)| message["role"] == "assistant" && !left_out;
        all.skip(count).all(is_answer).then_some(count)
    }

    /// The tokens of two answers. Both begin where the tokens of one are no longer those of what is asked by itself, and
    /// all that follows is learnt, what a template writes behind the last turn too: as in TRL's `DPOTrainer`.
    fn pair(&self, both: &[Example; 2]) -> Result<Vec<Document>, TextError> {
        let documents = both.iter().map(|example| self.unlearned(example));
        let mut documents = documents.collect::<Result<Vec<_>, _>>()?;
        let mut start = if self.learn == Learn::Everything {
            0
        } else {
            usize::MAX
        };
        for (example, document) in both.iter().zip(&documents) {
            let at = match (example, &self.template) {
                (Example::Chat(conversation), Some(template)) => {
                    let asked = conversation.asked.unwrap_or(0);
                    self.answer_at(template, conversation, asked, document)?
                }
                (Example::Completion { prompt, .. }, _) => {
                    self.common(self.before.len(), document, prompt)?
                }
                _ => 0,
            };
            start = start.min(at);
        }
        for document in &mut documents {
            let start = start.min(document.learned.len());
            document.learned[..start].fill(false);
            document.learned[start..].fill(true);
        }
        Ok(documents)
    }

    /// The tokens of one answer with what is asked; which of them are learnt is said later.
    fn unlearned(&self, example: &Example) -> Result<Document, TextError> {
        match example {
            Example::Chat(conversation) => {
                let template = self.template.as_ref().ok_or_else(|| self.no_template())?;
                let text = template.render(conversation, false)?;
                let mut document = Document::default();
                self.add(&text, &[], &mut document)?;
                Ok(document)
            }
            Example::Completion { prompt, completion } => {
                let text = format!("{prompt}{completion}");
                self.whole(&text, 0..text.len(), false)
            }
            other => Ok(self.encode(other)?.remove(0)),
        }
    }

    /// The token with which the answer to the first messages begins.
    fn answer_at(
        &self,
        template: &ChatTemplate,
        conversation: &Conversation,
        asked: usize,
        document: &Document,
    ) -> Result<usize, TextError> {
        let asked = Conversation {
            messages: conversation.messages[..asked].to_vec(),
            variables: conversation.variables.clone(),
            ..Conversation::default()
        };
        self.common(0, document, &template.render(&asked, true)?)
    }

    /// How many tokens a document begins with that are those of a text by itself, behind so many that begin it.
    fn common(&self, before: usize, document: &Document, text: &str) -> Result<usize, TextError> {
        let alone = self.tokenizer.encode(text)?;
        let tokens = document.tokens.iter().skip(before);
        Ok(before + tokens.zip(&alone).take_while(|(a, b)| a == b).count())
    }

    /// A text by itself, from what begins it to what ends it.
    fn whole(
        &self,
        text: &str,
        learned: Range<usize>,
        is_text: bool,
    ) -> Result<Document, TextError> {
        let mut document = Document {
            tokens: self.before.clone(),
            learned: vec![learned.start == 0; self.before.len()],
            is_text,
            endless: 0,
        };
        self.add(text, &[Turn::closed(learned)], &mut document)?;
        if let Some(end) = self.end.filter(|end| document.tokens.last() != Some(end)) {
            document.tokens.push(end);
            document.learned.push(true);
        }
        Ok(document)
    }

    /// Loss is computed on a token if any of it lies in a turn, as where transformers masks the assistant's turns, and
    /// on the token behind a turn if that is what ends it.
    fn add(&self, text: &str, turns: &[Turn], document: &mut Document) -> Result<(), TextError> {
        let before = document.tokens.len();
        let mut places = Vec::new();
        let mut at = 0;
        self.tokenizer.encode_with_offsets(text, |token, bytes| {
            while turns
                .get(at)
                .is_some_and(|turn| turn.range.end <= bytes.start)
            {
                at += 1;
            }
            let learned = turns
                .get(at)
                .is_some_and(|turn| turn.range.start < bytes.end);
            document.tokens.push(token);
            document.learned.push(learned);
            places.push(bytes);
        })?;
        for turn in turns.iter().filter(|turn| turn.open) {
            let end = turn.range.end;
            let next = places.partition_point(|bytes| bytes.start < end);
            let mut within = (0..next)
                .rev()
                .take_while(|&at| places[at].end > turn.range.start);
            let blank = |at: usize| {
                let bytes = &places[at];
                text[bytes.start.min(end)..bytes.end.min(end)]
                    .trim()
                    .is_empty()
            };
            let last = within.find(|&at| !blank(at));
            if last.is_some_and(|at| self.ends(document.tokens[before + at])) {
                continue;
            }
            match (document.learned.get_mut(before + next), self.end) {
                (Some(learned), _) if self.ends(document.tokens[before + next]) => *learned = true,
                // Nothing comes behind the last turn: what ends a text ends it.
                (None, Some(end)) => {
                    document.tokens.push(end);
                    document.learned.push(true);
                }
                _ => document.endless += 1,
            }
        }
        Ok(())
    }

    fn no_template(&self) -> TextError {
        no_template(matches!(self.tokenizer, Tokenizer::Bytes))
    }

    /// Whether a token may end a turn: generation stops at such tokens, and no text contains them.
    fn ends(&self, token: u32) -> bool {
        self.end == Some(token) || self.tokenizer.is_special(token)
    }
}

/// What is said of turns that no token ends.
pub fn endless_turns(turns: u64, template: &str) -> String {
    format!(
        "warning: no token ends {turns} of the assistant's turns as the chat template writes them ({template}): a model \
         that is trained on them does not learn to stop. Give a template that ends a turn with a special token of the \
         tokenizer, or a tokenizer whose end-of-text token is known"
    )
}

/// Of data with conversations without a template. Models' folders have theirs beside a tokenizer: where that is missing,
/// it is what is missing first.
pub(crate) fn no_template(by_bytes: bool) -> TextError {
    if by_bytes {
        return TextError::Template {
            source_name: "the model's folder".to_owned(),
            problem: "there is no tokenizer.json, which conversations need"
                .to_owned(),
            hint: Some(
                "put the tokenizer.json into the model's folder, or use --tokenizer FILE; for a byte-level model, \
                use --chat-template"
                    .to_owned(),
            ),
        };
    }
    TextError::Template {
        source_name: "the model's folder".to_owned(),
        problem: "there is no chat template, and the data has conversations".to_owned(),
        hint: Some(
            "use --chat-template FILE, or --chat-template chatml for the one that many models have"
                .to_owned(),
        ),
    }
}
