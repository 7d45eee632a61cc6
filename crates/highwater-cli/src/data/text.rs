//! Tokens of text, or of files of tokens.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use highwater_memory::Files;
use highwater_models::data::{Progress, holds_tokens};
use highwater_models::{Architecture, BatchShape, Batches, DataOptions, Order, Tokenizer, Tokens};

use super::guide::GUIDE;
use super::records;
use super::tokenize;
use super::tokenizer::{text_to_tokenize, tokenizer};
use crate::config::RunConfig;
use crate::error::Failure;
use crate::model::Batch;
use crate::terminal::meter::Meter;

/// Tokens that the held-out loss is the mean of, at most: the first ones of what is held out.
pub(crate) const HELD_OUT_TOKENS: usize = 1 << 14;

/// The tokens of a run, divided.
#[derive(Debug)]
pub struct TextData {
    /// All tokens.
    pub tokens: Tokens,
    /// Those to train on.
    pub train: Range<u64>,
    /// Those to measure the loss on; perhaps none.
    pub held_out: Range<u64>,
}

impl TextData {
    /// Opens the data. Where a `tokenizer.json` makes tokens of text, they are those in `spool`; if there
    /// are none yet they are made here, which [`tokenise`](crate::data::tokenize) does in less memory.
    ///
    /// # Errors
    /// [`Failure`] for data that cannot be read or used.
    pub fn open(
        files: &Arc<dyn Files>,
        config: &RunConfig,
        model: &dyn Architecture,
        spool: &Path,
    ) -> Result<Self, Failure> {
        let spooled = text_to_tokenize(&**files, config)?.is_some();
        let tokens = if spooled && files.metadata(spool)?.is_some() {
            Tokens::spooled(files, spool, model.vocab_size() as u32)?
        } else {
            Self::tokens(files, config, model, spool)?
        };
        let (train, held_out) = tokens.split(config.data.held_out, config.training.seq)?;
        Ok(Self {
            tokens,
            train,
            held_out,
        })
    }

    /// The tokens, made now where a `tokenizer.json` makes them.
    ///
    /// # Errors
    /// [`Failure`] for data that cannot be read or used.
    pub fn tokens(
        files: &Arc<dyn Files>,
        config: &RunConfig,
        model: &dyn Architecture,
        spool: &Path,
    ) -> Result<Tokens, Failure> {
        let vocab_size = model.vocab_size() as u32;
        let guide = Path::new("the built-in guide");
        let path = config.data.path.as_deref();
        // Tokens need no tokenizer, which may use more memory than the run has.
        let tokenizer = match path {
            Some(path) if holds_tokens(&**files, path)? => Tokenizer::Bytes,
            _ => {
                let tokenizer = tokenizer(&**files, config)?;
                check_tokenizer(&tokenizer, model, path.unwrap_or(guide))?;
                tokenizer
            }
        };
        let meter = Meter::new("checking tokens");
        let tell = |done, of| meter.tell(done, of);
        let options = DataOptions {
            tokenizer: &tokenizer,
            vocab_size,
            width: config.data.token_dtype,
            held_out: config.data.eval_data.as_deref(),
            reads: config.data.reads,
            progress: Progress::to(&tell),
            spool,
        };
        Ok(match path {
            Some(path) => Tokens::open(files, path, &options)?,
            None => Tokens::embedded(GUIDE, vocab_size)?,
        })
    }

    /// That there is data, as far as that can be told without making tokens of text: for who only plans.
    ///
    /// # Errors
    /// As [`TextData::open`].
    pub fn check(
        files: &Arc<dyn Files>,
        config: &RunConfig,
        model: &dyn Architecture,
    ) -> Result<(), Failure> {
        if let Some(path) = text_to_tokenize(&**files, config)? {
            // Where there is no room to tokenize, the plan says so.
            let has_room = tokenize::needed_bytes(&**files, config)? <= config.machine.memory.0;
            if let Some(source) = records::Source::of(config, model.vocab_size()) {
                return if has_room {
                    source.check(files)
                } else {
                    Ok(())
                };
            }
            if has_room {
                tokenizer(&**files, config)?;
            }
            let held_out = config.data.eval_data.as_deref();
            return Ok(Tokens::find_text(&**files, path, held_out)?);
        }
        let none = Path::new("");
        Self::open(files, config, model, none)?.batches(config)?;
        Ok(())
    }

    /// Batches to train on, from the start.
    ///
    /// # Errors
    /// [`Failure`] where there is too little for one.
    pub fn batches(&self, config: &RunConfig) -> Result<Batches, Failure> {
        Ok(Batches::new(
            self.tokens.clone(),
            self.train.clone(),
            config.batch_shape(),
            config.data.order,
            config.training.seed,
        )?)
    }

    /// The sequences that the held-out loss is measured on, one by one: whatever the batch is, they are the
    /// same, and so is the loss.
    pub(super) fn held_out(&self, config: &RunConfig) -> Result<Vec<Batch>, Failure> {
        let range = self.held_out.clone();
        let seq = config.training.seq;
        let tokens = (range.end - range.start).saturating_sub(1);
        let count = (tokens as usize / seq).min((HELD_OUT_TOKENS / seq).max(1));
        if count == 0 {
            return Ok(Vec::new());
        }
        let shape = BatchShape { batch: 1, seq };
        let mut batches = Batches::new(self.tokens.clone(), range, shape, Order::Sequential, 0)?;
        (0..count).map(|_| next_tokens(&mut batches)).collect()
    }
}

pub(crate) fn next_tokens(batches: &mut Batches) -> Result<Batch, Failure> {
    let tokens = batches.shape().tokens();
    let mut batch = (vec![0; tokens], vec![0; tokens]);
    batches.next_batch(&mut batch.0, &mut batch.1)?;
    Ok(Batch::Tokens(batch.0, batch.1))
}

/// Bytes as tokens suit a model of about 256 of them: with more it was made for a tokenizer.
fn check_tokenizer(
    tokenizer: &Tokenizer,
    model: &dyn Architecture,
    data: &Path,
) -> Result<(), Failure> {
    let suits = model.vocab_size() <= 1024 || !matches!(tokenizer, Tokenizer::Bytes);
    suits.then_some(()).ok_or_else(|| {
        Failure::usage(format!(
            "{}: plain text needs a tokenizer, because the model has a vocabulary of {} tokens",
            data.display(),
            model.vocab_size()
        ))
        .hint("pass the model's tokenizer.json with --tokenizer FILE, or tokenized data as .npy or .bin")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Settings;
    use crate::settings::resolve;
    use crate::settings::resolve::Resolved;
    use highwater_memory::files::MemoryFiles;

    fn open(args: &Settings) -> Result<(TextData, Batches), Failure> {
        let files: Arc<dyn Files> = Arc::new(MemoryFiles::new());
        let Resolved { config, model, .. } = resolve::run(&*files, args)?;
        let data = TextData::open(&files, &config, model.text()?, Path::new("/tokens.bin"))?;
        let batches = data.batches(&config)?;
        Ok((data, batches))
    }

    #[test]
    fn the_guide_is_enough_for_the_default_run() {
        let (data, batches) = open(&Settings::default()).unwrap();
        assert_eq!(data.train.end, data.held_out.start);
        assert_eq!(data.held_out.end, GUIDE.len() as u64);
        assert!(batches.per_epoch() >= 5, "{}", batches.per_epoch());
    }

    #[test]
    fn a_model_of_many_tokens_needs_its_tokenizer_for_text() {
        let args = Settings {
            model: Some("gpt2".to_owned()),
            memory: Some(highwater_memory::Bytes::GIB),
            ..Settings::default()
        };
        let failure = open(&args).unwrap_err().to_string();
        assert!(failure.contains("--tokenizer"), "{failure}");
    }
}
