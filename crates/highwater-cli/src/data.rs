//! The data of a run: tokens to train on, and those held out.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use highwater_memory::Files;
use highwater_models::data::is_token_file;
use highwater_models::{Architecture, Batches, DataOptions, Tokenizer, Tokens};

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
    /// Opens the data. Where a `tokenizer.json` makes tokens of text, they are those in `spool`; if there
    /// are none yet they are made here, which [`tokenise`](crate::tokenise) does in less memory.
    ///
    /// # Errors
    /// [`Failure`] for data that cannot be read or used.
    pub fn open(
        files: &Arc<dyn Files>,
        config: &RunConfig,
        model: &dyn Architecture,
        spool: &Path,
    ) -> Result<Self, Failure> {
        let spooled = text_to_tokenise(&**files, config)?.is_some();
        let tokens = if spooled && files.metadata(spool)?.is_some() {
            Tokens::spooled(&**files, spool, model.vocab_size() as u32)?
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
        let tokenizer = tokenizer(&**files, config)?;
        let guide = Path::new("the built-in guide");
        let path = config.data.path.as_deref();
        check_tokenizer(&tokenizer, model, path.unwrap_or(guide))?;
        let options = DataOptions {
            tokenizer: &tokenizer,
            vocab_size,
            width: config.data.token_dtype,
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
    /// As [`RunData::open`].
    pub fn check(
        files: &Arc<dyn Files>,
        config: &RunConfig,
        model: &dyn Architecture,
    ) -> Result<(), Failure> {
        if let Some(path) = text_to_tokenise(&**files, config)? {
            tokenizer(&**files, config)?;
            return Ok(Tokens::find_text(&**files, path)?);
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
}

/// The text that a `tokenizer.json` makes tokens of, if there is one and it does.
///
/// # Errors
/// [`Failure`] where the path of the data cannot be looked at.
pub fn text_to_tokenise<'a>(
    files: &dyn Files,
    config: &'a RunConfig,
) -> Result<Option<&'a Path>, Failure> {
    let (Some(path), Some(_)) = (config.data.path.as_deref(), &config.model.tokenizer) else {
        return Ok(None);
    };
    let is_folder = files.metadata(path)?.is_some_and(|found| found.is_dir);
    Ok((is_folder || !is_token_file(path)).then_some(path))
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
fn check_tokenizer(
    tokenizer: &Tokenizer,
    model: &dyn Architecture,
    data: &Path,
) -> Result<(), Failure> {
    let suits =
        is_token_file(data) || model.vocab_size() <= 1024 || !matches!(tokenizer, Tokenizer::Bytes);
    suits.then_some(()).ok_or_else(|| {
        Failure::usage(format!(
            "{}: text needs the tokenizer of a model with {} tokens",
            data.display(),
            model.vocab_size()
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
        let data = RunData::open(&files, &config, &*model, Path::new("/tokens.bin"))?;
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
