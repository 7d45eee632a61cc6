//! Examples to tokens, each with whether it is learnt.

use std::ops::Range;

use highwater_models::Tokenizer;

use crate::{ChatTemplate, Example, TextError, mask};

/// The tokens of an example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Tokens.
    pub tokens: Vec<u32>,
    /// Whether each is learnt.
    pub learned: Vec<bool>,
    /// Whether it is a text, which may be divided where it is too long.
    pub is_text: bool,
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
            Example::Pair(both) => {
                let both = both.iter().map(|one| self.encode(one));
                return Ok(both.collect::<Result<Vec<_>, _>>()?.concat());
            }
            Example::Chat(conversation) => {
                let template = self.template.as_ref().ok_or_else(no_template)?;
                let (text, spans) = match self.learn {
                    Learn::Answers => mask::turns(template, conversation)?,
                    Learn::Everything => {
                        let text = template.render(conversation, false)?;
                        let all = 0..text.len();
                        (text, vec![all])
                    }
                };
                let mut document = Document::default();
                self.add(&text, &spans, &mut document)?;
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
                }
            }
        };
        Ok(vec![document])
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
        };
        self.add(text, &[learned], &mut document)?;
        if let Some(end) = self.end.filter(|end| document.tokens.last() != Some(end)) {
            document.tokens.push(end);
            document.learned.push(true);
        }
        Ok(document)
    }

    /// A token is learnt if any of it lies in a part that is, as where transformers masks the assistant's turns.
    fn add(
        &self,
        text: &str,
        spans: &[Range<usize>],
        document: &mut Document,
    ) -> Result<(), TextError> {
        let mut at = 0;
        self.tokenizer.encode_with_offsets(text, |token, bytes| {
            while spans.get(at).is_some_and(|span| span.end <= bytes.start) {
                at += 1;
            }
            let learned = spans.get(at).is_some_and(|span| span.start < bytes.end);
            document.tokens.push(token);
            document.learned.push(learned);
        })?;
        Ok(())
    }
}

pub(crate) fn no_template() -> TextError {
    TextError::Template {
        source_name: "the model's folder".to_owned(),
        problem: "there is no chat template, and the data has conversations".to_owned(),
        hint: Some(
            "give one by --chat-template FILE, or say --chat-template chatml for the one that many models have"
                .to_owned(),
        ),
    }
}
