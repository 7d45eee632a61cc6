//! The data of a run: tokens to train on, and those held out.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use highwater_memory::Files;
use highwater_models::{Batches, DataOptions, Gpt2Config, Tokenizer, Tokens};

use crate::config::RunConfig;
use crate::error::Failure;

/// What is trained on when nobody names data: this project's own documentation.
pub const GUIDE: &str = concat!(
    include_str!("guide.md"),
    include_str!("../../../CONTRIBUTING.md"),
    include_str!("../../../ARCHITECTURE.md"),
    include_str!("../../../README.md"),
);

/// The tokens of a run, divided.
#[derive(Debug)]
pub struct RunData {
    /// All tokens.
    pub tokens: Tokens,
    /// Those to train on.
    pub train: Range<u64>,
    /// Those to measure the loss on; perhaps none.
    pub held_out: Range<u64>,
}

impl RunData {
    /// Opens the data. The tokens of text go to `spool` if a `tokenizer.json` makes them; the
    /// tokenizer is gone from memory when this returns.
    ///
    /// # Errors
    /// [`Failure`] for data that cannot be read or used.
    pub fn open(
        files: &Arc<dyn Files>,
        config: &RunConfig,
        model: &Gpt2Config,
        spool: &Path,
    ) -> Result<Self, Failure> {
        let vocab_size = model.vocab_size as u32;
        let tokenizer = tokenizer(&**files, config)?;
        let guide = Path::new("the built-in guide");
        check_tokenizer(
            &tokenizer,
            model,
            config.data.path.as_deref().unwrap_or(guide),
        )?;
        let options = DataOptions {
            tokenizer: &tokenizer,
            vocab_size,
            width: config.data.token_dtype,
            spool,
        };
        let tokens = match &config.data.path {
            Some(path) => Tokens::open(files, path, &options)?,
            None => Tokens::embedded(GUIDE, vocab_size)?,
        };
        let (train, held_out) = tokens.split(config.data.held_out, config.training.seq)?;
        Ok(Self {
            tokens,
            train,
            held_out,
        })
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
}

/// How the run's text becomes tokens.
///
/// # Errors
/// [`Failure`] for a `tokenizer.json` that cannot be read.
pub fn tokenizer(files: &dyn Files, config: &RunConfig) -> Result<Tokenizer, Failure> {
    match &config.model.tokenizer {
        Some(path) => Ok(Tokenizer::load(files, path)?),
        None => Ok(Tokenizer::Bytes),
    }
}

/// Bytes as tokens suit a model of about 256 of them: with more it was made for a tokenizer.
fn check_tokenizer(tokenizer: &Tokenizer, model: &Gpt2Config, data: &Path) -> Result<(), Failure> {
    let is_tokens = data
        .extension()
        .is_some_and(|end| end == "npy" || end == "bin");
    let suits = is_tokens || model.vocab_size <= 1024 || !matches!(tokenizer, Tokenizer::Bytes);
    suits.then_some(()).ok_or_else(|| {
        Failure::usage(format!(
            "{}: text needs the tokenizer of a model with {} tokens",
            data.display(),
            model.vocab_size
        ))
        .hint("say --tokenizer FILE, a tokenizer.json, or give tokens as .npy or .bin")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::RunArgs;
    use crate::resolve::{self, Resolved};
    use highwater_memory::files::MemoryFiles;

    fn open(args: &RunArgs) -> Result<(RunData, Batches), Failure> {
        let files: Arc<dyn Files> = Arc::new(MemoryFiles::new());
        let Resolved { config, model, .. } = resolve::run(&*files, args)?;
        let data = RunData::open(&files, &config, &model, Path::new("/tokens.bin"))?;
        let batches = data.batches(&config)?;
        Ok((data, batches))
    }

    #[test]
    fn the_guide_is_enough_for_the_default_run() {
        let (data, batches) = open(&RunArgs::default()).unwrap();
        assert_eq!(data.train.end, data.held_out.start);
        assert_eq!(data.held_out.end, GUIDE.len() as u64);
        assert!(batches.per_epoch() >= 5, "{}", batches.per_epoch());
    }

    #[test]
    fn a_model_of_many_tokens_needs_its_tokenizer_for_text() {
        let args = RunArgs {
            model: Some("gpt2".to_owned()),
            memory: Some(highwater_memory::Bytes::GIB),
            ..RunArgs::default()
        };
        let failure = open(&args).unwrap_err().to_string();
        assert!(failure.contains("--tokenizer"), "{failure}");
    }
}
