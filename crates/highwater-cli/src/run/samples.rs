//! What a run shows of its model while it trains: how that goes on from texts by then.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use highwater::autocast;
use highwater_memory::Files;
use highwater_models::{CausalLm, Sampling, Tokenizer, generate};
use highwater_text::{Conversation, Example, ends_of_texts};

use crate::config::RunConfig;
use crate::data::prompt::{end_of_turns, prompt_tokens, stop_at};
use crate::data::{Source, records, tokenizer};
use crate::error::{Code, Failure};

/// Tokens of a sample.
const TOKENS: usize = 64;
/// What the demo goes on from, and how far: it has no flag.
const DEMO_PROMPT: &str = "The memory ";
const DEMO_TOKENS: usize = 120;

/// Texts to go on from.
#[derive(Debug)]
pub struct Samples {
    tokenizer: Tokenizer,
    /// What was asked for, and as the model reads it.
    prompts: Vec<(String, Vec<u32>)>,
    /// The tokens that end a text.
    ends: Vec<u32>,
    tokens: usize,
    temperature: f64,
}

impl Samples {
    /// Those of a run, if it has some: the demo has one. Conversations are asked as they are learnt, by the template
    /// that is given.
    ///
    /// # Errors
    /// [`Failure`] for files that cannot be read, and a text that is longer than the model reads.
    pub fn open(
        files: &Arc<dyn Files>,
        config: &RunConfig,
        own_template: &Path,
        model: &dyn CausalLm,
    ) -> Result<Option<Self>, Failure> {
        let is_demo = config.model.tokenizer.is_none() && config.data.path.is_none();
        if config.output.sample.is_empty() && !is_demo {
            return Ok(None);
        }
        let tokenizer = tokenizer::tokenizer(&**files, config)?;
        if config.output.sample.is_empty() {
            let prompt = tokenizer.encode(DEMO_PROMPT)?;
            return Ok(Some(Self {
                tokenizer,
                prompts: vec![(String::new(), prompt)],
                ends: Vec::new(),
                tokens: DEMO_TOKENS,
                temperature: 0.7,
            }));
        }
        let folder = config.model.tokenizer.as_deref().and_then(Path::parent);
        let ends = folder.map(|folder| ends_of_texts(&**files, folder, &tokenizer));
        let mut ends = ends.transpose()?.unwrap_or_default();
        let template = if learns_conversations(files, config, &tokenizer, model)? {
            let own = files.metadata(own_template)?.and(own_template.to_str());
            let named = own.or(config.chat_template());
            records::template(&**files, named, folder)?
        } else {
            None
        };
        if let Some(template) = &template {
            ends.extend(end_of_turns(template, &tokenizer)?);
        }
        let most = config.context().min(model.architecture().max_length());
        let read = |text: &String| {
            let tokens = if let Some(template) = &template {
                let asked = Conversation::of([("user", text.as_str())]);
                tokenizer.encode(&template.render(&asked, true)?)?
            } else {
                prompt_tokens(&tokenizer, text)?
            };
            if tokens.is_empty() || tokens.len() > most {
                let message = format!(
                    "--sample {text:?}: {} tokens; 1 to {most} are read",
                    tokens.len()
                );
                return Err(Failure::usage(message));
            }
            Ok((text.clone(), tokens))
        };
        let prompts = config.output.sample.iter().map(read);
        let prompts = prompts.collect::<Result<Vec<_>, Failure>>()?;
        Ok(Some(Self {
            tokenizer,
            prompts,
            ends,
            tokens: TOKENS,
            temperature: 0.0,
        }))
    }

    /// Whether they are those of the demo.
    pub fn are_of_demo(&self) -> bool {
        self.tokens == DEMO_TOKENS
    }

    /// A line on each.
    ///
    /// # Errors
    /// [`Failure`] of the engine; where it has no room for one, that is said instead.
    pub fn lines(
        &self,
        model: &dyn CausalLm,
        config: &RunConfig,
        when: &str,
    ) -> Result<Vec<String>, Failure> {
        let one = |(text, prompt): &(String, Vec<u32>)| {
            let said = match self.draw(model, config, prompt) {
                // It may need more than a step: no reason to end a run.
                Err(failure) if failure.code() == Code::Budget as u8 => {
                    format!("none: sampling needs more than {}", config.machine.memory)
                }
                said => format!("{:?}", said?),
            };
            let of = if self.are_of_demo() {
                String::new()
            } else {
                format!("{text:?} -> ")
            };
            Ok(format!("sample {when}: {of}{said}"))
        };
        self.prompts.iter().map(one).collect()
    }

    fn draw(
        &self,
        model: &dyn CausalLm,
        config: &RunConfig,
        prompt: &[u32],
    ) -> Result<String, Failure> {
        let sampling = Sampling {
            temperature: self.temperature,
            seed: config.training.seed,
            context: config.context(),
            ..Sampling::default()
        };
        let goes_on = |token| -> ControlFlow<()> { stop_at(&self.ends, token) };
        let dtype = config.training.precision.dtype();
        let drawn = autocast(dtype, || {
            generate(model, prompt, self.tokens, sampling, goes_on)
        })?;
        // The demo shows what it went on from.
        let from = if self.are_of_demo() { 0 } else { prompt.len() };
        let mut drawn = drawn[from..].to_vec();
        drawn.pop_if(|last| self.ends.contains(last));
        Ok(self.tokenizer.decode(&drawn)?)
    }
}

/// Whether the first record is a conversation.
fn learns_conversations(
    files: &Arc<dyn Files>,
    config: &RunConfig,
    tokenizer: &Tokenizer,
    model: &dyn CausalLm,
) -> Result<bool, Failure> {
    let Some(source) = Source::of(config, model.architecture().vocab_size()) else {
        return Ok(false);
    };
    let first = source.first(files, tokenizer)?;
    Ok(match &first {
        Some(Example::Pair(pair)) => matches!(pair[0], Example::Chat(_)),
        Some(example) => matches!(example, Example::Chat(_)),
        None => false,
    })
}
