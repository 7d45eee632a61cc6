//! The data of a run: what it trains on, and what is held out.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use highwater_memory::Files;
use highwater_memory::saved::Digest;
use highwater_models::data::{Progress, RowBatches, holds_tokens};
use highwater_models::{
    Architecture, BatchShape, Batches, Cursor, DataOptions, Order, Tokenizer, Tokens,
};

use crate::config::RunConfig;
use crate::error::Failure;
use crate::meter::Meter;
use crate::pictures::{self, Loader, PictureData};
use crate::records::{self, PackedData};
use crate::task::{Batch, Blueprint};

/// Tokens that the held-out loss is the mean of, at most: the first ones of what is held out.
pub(crate) const HELD_OUT_TOKENS: usize = 1 << 14;

/// What is trained on when nobody names data: this project's own documentation.
pub const GUIDE: &str = concat!(
    include_str!("guide.md"),
    include_str!("../../../CONTRIBUTING.md"),
    include_str!("../../../ARCHITECTURE.md"),
    include_str!("../../../README.md"),
);

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
        let tokenizer = tokenizer(&**files, config)?;
        let guide = Path::new("the built-in guide");
        let path = config.data.path.as_deref();
        // Tokens need no tokenizer.
        if !path.map_or(Ok(false), |path| holds_tokens(&**files, path))? {
            check_tokenizer(&tokenizer, model, path.unwrap_or(guide))?;
        }
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
    /// As [`RunData::open`].
    pub fn check(
        files: &Arc<dyn Files>,
        config: &RunConfig,
        model: &dyn Architecture,
    ) -> Result<(), Failure> {
        if let Some(path) = text_to_tokenise(&**files, config)? {
            tokenizer(&**files, config)?;
            if let Some(source) = records::Source::of(config, model.vocab_size()) {
                return source.check(files);
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
    fn held_out(&self, config: &RunConfig) -> Result<Vec<Batch>, Failure> {
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

/// The data of a run, divided.
#[derive(Debug)]
pub enum RunData {
    /// Tokens.
    Text(TextData),
    /// Rows of records.
    Packed(PackedData),
    /// Pictures by class.
    Pictures(PictureData),
}

impl RunData {
    /// Opens the data: see [`TextData::open`] and [`PictureData::open`].
    ///
    /// # Errors
    /// [`Failure`] for data that cannot be read or used.
    pub fn open(
        files: &Arc<dyn Files>,
        config: &RunConfig,
        model: &Blueprint,
        spool: &Path,
    ) -> Result<Self, Failure> {
        Ok(match model {
            Blueprint::Text(model) if config.data.records.is_some() => Self::Packed(
                PackedData::open(&**files, config, model.vocab_size(), spool)?,
            ),
            Blueprint::Text(model) => Self::Text(TextData::open(files, config, &**model, spool)?),
            Blueprint::Images(model) => Self::Pictures(PictureData::open(files, config, model)?),
        })
    }

    /// That there is data, as far as that can be told at once: for who only plans.
    ///
    /// # Errors
    /// As [`RunData::open`].
    pub fn check(
        files: &Arc<dyn Files>,
        config: &RunConfig,
        model: &Blueprint,
    ) -> Result<(), Failure> {
        match model {
            Blueprint::Text(model) => TextData::check(files, config, &**model),
            Blueprint::Images(model) => PictureData::open(files, config, model).map(|_| ()),
        }
    }

    /// Batches to train on, from the start.
    ///
    /// # Errors
    /// [`Failure`] where there is too little for one.
    pub fn batches(&self, config: &RunConfig) -> Result<Feed, Failure> {
        Ok(match self {
            Self::Text(data) => Feed::Text(data.batches(config)?),
            Self::Packed(data) => Feed::Packed(data.batches(config)?),
            Self::Pictures(data) => Feed::Pictures(Box::new(data.batches(config)?)),
        })
    }

    /// What the held-out loss is measured on, batch by batch; the same each time.
    ///
    /// # Errors
    /// [`Failure`] for data that cannot be read.
    pub fn held_out<'a>(
        &'a self,
        config: &RunConfig,
    ) -> Result<Box<dyn Iterator<Item = Result<Batch, Failure>> + 'a>, Failure> {
        Ok(match self {
            Self::Text(data) => Box::new(data.held_out(config)?.into_iter().map(Ok)),
            Self::Packed(data) => Box::new(data.held_out(config)?),
            Self::Pictures(data) => Box::new(data.held_out(config)?),
        })
    }

    /// Tokens or pictures to train on, and those held out.
    pub fn counts(&self) -> [u64; 2] {
        match self {
            Self::Text(data) => [&data.train, &data.held_out].map(|part| part.end - part.start),
            Self::Packed(data) => data.counts(),
            Self::Pictures(data) => data.counts(),
        }
    }

    /// What was found in files, and how wide their tokens are, for people.
    pub fn notes(&self) -> &[String] {
        match self {
            Self::Text(data) => data.tokens.notes(),
            Self::Packed(_) | Self::Pictures(_) => &[],
        }
    }

    /// Tokens or pictures that are read before the data begins anew, one at least: what does not fill a last batch in
    /// order, or a last sequence, is left out.
    pub fn per_epoch(&self, config: &RunConfig) -> u64 {
        let all = self.counts()[0];
        let shape = config.batch_shape();
        let (all, whole) = match (self, config.data.order) {
            (Self::Packed(_), _) => (all, 1),
            (Self::Pictures(_), _) => (all, shape.batch),
            // The last token is a target alone.
            (Self::Text(_), Order::Sequential) => (all.saturating_sub(1), shape.tokens()),
            (Self::Text(_), Order::Shuffled) => (all.saturating_sub(1), shape.seq),
        };
        (all / whole as u64 * whole as u64).max(1)
    }

    /// How often so many steps go through the data.
    pub fn epochs(&self, config: &RunConfig, steps: u64) -> f64 {
        (steps * config.tokens_per_step()) as f64 / self.per_epoch(config) as f64
    }

    /// In how many steps the data is gone through so often, the last of which may begin it once more.
    pub fn steps(&self, config: &RunConfig, epochs: f64) -> u64 {
        let all = epochs * self.per_epoch(config) as f64 / config.tokens_per_step().max(1) as f64;
        // What floats are off by is no step.
        ((all - 1e-9 * all).ceil() as u64).max(1)
    }

    /// What tells whether it is other data: of pictures, the names and lengths of all files.
    ///
    /// # Errors
    /// [`Failure`] for data that cannot be read.
    pub fn digest(&self) -> Result<Digest, Failure> {
        match self {
            Self::Text(data) => Ok(data.tokens.digest()?),
            Self::Packed(data) => data.digest(),
            Self::Pictures(data) => Ok(data.digest()),
        }
    }
}

/// Batches to train on, one after the other.
#[derive(Debug)]
pub enum Feed {
    /// Of tokens.
    Text(Batches),
    /// Of rows of records.
    Packed(RowBatches),
    /// Of pictures.
    Pictures(Box<Loader>),
}

impl Feed {
    /// The next one.
    ///
    /// # Errors
    /// [`Failure`] for data that cannot be read.
    pub fn next_batch(&mut self) -> Result<Batch, Failure> {
        match self {
            Self::Text(batches) => next_tokens(batches),
            Self::Packed(batches) => records::next(batches),
            Self::Pictures(loader) => pictures::next(loader),
        }
    }

    /// How many tokens are learnt of the next batches together, where that differs from batch to batch.
    ///
    /// # Errors
    /// [`Failure`] for data that cannot be read.
    pub fn learned_of_next(&self, batches: usize) -> Result<Option<usize>, Failure> {
        match self {
            Self::Packed(rows) if batches > 1 && rows.group() == 1 => {
                Ok(Some(rows.learned_of_next(batches)?))
            }
            _ => Ok(None),
        }
    }

    /// Where it is, to be saved.
    pub fn cursor(&self) -> Cursor {
        match self {
            Self::Text(batches) => batches.cursor(),
            Self::Packed(batches) => batches.cursor(),
            Self::Pictures(loader) => pictures::cursor(loader),
        }
    }

    /// Goes to where another one was.
    ///
    /// # Errors
    /// [`Failure`] for a place that the data does not have.
    pub fn seek(&mut self, at: Cursor) -> Result<(), Failure> {
        match self {
            Self::Text(batches) => Ok(batches.seek(at)?),
            Self::Packed(batches) => Ok(batches.seek(at)?),
            Self::Pictures(loader) => pictures::seek(loader, at),
        }
    }
}

fn next_tokens(batches: &mut Batches) -> Result<Batch, Failure> {
    let tokens = batches.shape().tokens();
    let mut batch = (vec![0; tokens], vec![0; tokens]);
    batches.next_batch(&mut batch.0, &mut batch.1)?;
    Ok(Batch::Tokens(batch.0, batch.1))
}

/// The text or the records that tokens are made of before a run, if there are such.
///
/// # Errors
/// [`Failure`] where the path of the data cannot be looked at.
pub fn text_to_tokenise<'a>(
    files: &dyn Files,
    config: &'a RunConfig,
) -> Result<Option<&'a Path>, Failure> {
    let (Some(path), true) = (
        config.data.path.as_deref(),
        config.model.tokenizer.is_some() || config.data.records.is_some(),
    ) else {
        return Ok(None);
    };
    if config.data.records.is_some() {
        return Ok(Some(path));
    }
    Ok((!holds_tokens(files, path)?).then_some(path))
}

/// How the run's text becomes tokens.
///
/// # Errors
/// [`Failure`] for a `tokenizer.json` that cannot be read.
pub fn tokenizer(files: &dyn Files, config: &RunConfig) -> Result<Tokenizer, Failure> {
    tokenizer_of(files, config.model.tokenizer.as_deref())
}

/// The tokenizer of a `tokenizer.json`; bytes without one.
pub(crate) fn tokenizer_of(files: &dyn Files, path: Option<&Path>) -> Result<Tokenizer, Failure> {
    match path {
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
    let suits = model.vocab_size() <= 1024 || !matches!(tokenizer, Tokenizer::Bytes);
    suits.then_some(()).ok_or_else(|| {
        Failure::usage(format!(
            "{}: text needs the model's tokenizer (the model has {} tokens)",
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

    fn open(args: &RunArgs) -> Result<(TextData, Batches), Failure> {
        let files: Arc<dyn Files> = Arc::new(MemoryFiles::new());
        let Resolved { config, model, .. } = resolve::run(&*files, args)?;
        let data = TextData::open(&files, &config, model.text()?, Path::new("/tokens.bin"))?;
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
