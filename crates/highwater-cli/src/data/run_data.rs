//! The data of a run: what it trains on, and what is held out.

use std::path::Path;
use std::sync::Arc;

use highwater_memory::Files;
use highwater_memory::saved::Digest;
use highwater_models::data::RowBatches;
use highwater_models::{Batches, Cursor, Order};

use super::images::{self, ImageData, Loader};
use super::packed::{self, PackedData};
use super::text::{TextData, next_tokens};
use crate::config::RunConfig;
use crate::error::Failure;
use crate::model::{Batch, Blueprint};

/// The data of a run, divided.
#[derive(Debug)]
pub enum RunData {
    /// Tokens.
    Text(TextData),
    /// Rows of records.
    Packed(PackedData),
    /// Images by class.
    Images(ImageData),
}

impl RunData {
    /// Opens the data: see [`TextData::open`] and [`ImageData::open`].
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
            Blueprint::Images(model) => Self::Images(ImageData::open(files, config, model)?),
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
            Blueprint::Images(model) => ImageData::open(files, config, model).map(|_| ()),
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
            Self::Images(data) => Feed::Images(Box::new(data.batches(config)?)),
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
            Self::Images(data) => Box::new(data.held_out(config)?),
        })
    }

    /// Tokens or images to train on, and those held out.
    pub fn counts(&self) -> [u64; 2] {
        match self {
            Self::Text(data) => [&data.train, &data.held_out].map(|part| part.end - part.start),
            Self::Packed(data) => data.counts(),
            Self::Images(data) => data.counts(),
        }
    }

    /// What was found in files, and how wide their tokens are, for people.
    pub fn notes(&self) -> &[String] {
        match self {
            Self::Text(data) => data.tokens.notes(),
            Self::Packed(_) | Self::Images(_) => &[],
        }
    }

    /// Tokens or images that are read before the data begins anew, one at least: what does not fill a last batch in
    /// order, or a last sequence, is left out.
    pub fn per_epoch(&self, config: &RunConfig) -> u64 {
        let all = self.counts()[0];
        let shape = config.batch_shape();
        let (all, whole) = match (self, config.data.order) {
            (Self::Packed(_), _) => (all, 1),
            (Self::Images(_), _) => (all, shape.batch),
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

    /// What tells whether it is other data: of images, the names and lengths of all files.
    ///
    /// # Errors
    /// [`Failure`] for data that cannot be read.
    pub fn digest(&self) -> Result<Digest, Failure> {
        match self {
            Self::Text(data) => Ok(data.tokens.digest()?),
            Self::Packed(data) => data.digest(),
            Self::Images(data) => Ok(data.digest()),
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
    /// Of images.
    Images(Box<Loader>),
}

impl Feed {
    /// The next one.
    ///
    /// # Errors
    /// [`Failure`] for data that cannot be read.
    pub fn next_batch(&mut self) -> Result<Batch, Failure> {
        match self {
            Self::Text(batches) => next_tokens(batches),
            Self::Packed(batches) => packed::next(batches),
            Self::Images(loader) => images::next(loader),
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
            Self::Images(loader) => images::cursor(loader),
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
            Self::Images(loader) => images::seek(loader, at),
        }
    }
}
