//! Batches of a dataset, loaded ahead on threads of the loader's own.

mod collate;
mod sampler;
mod samples;
mod workers;

use crate::{BoxError, DataError, Dataset};
use samples::Samples;
use std::sync::Arc;
use workers::Workers;

pub use collate::{Batch, Collate};
pub use sampler::{
    LengthSampler, LengthSamplerOptions, Sampler, WeightedSampler, WeightedSamplerOptions,
};

/// How a dataset is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Samples of a batch.
    pub batch_size: usize,
    /// Whether samples come in an order drawn anew for each epoch.
    pub shuffle: bool,
    /// What orders and random transforms are drawn from, with the epoch.
    pub seed: u64,
    /// Whether a last batch of fewer samples is left out.
    pub drop_last: bool,
    /// Threads that load batches ahead; with none the caller's loads them when they are asked for. Changes no
    /// batch and no order.
    pub workers: usize,
    /// Batches that each worker is ahead at most, as `prefetch_factor`.
    pub prefetch: usize,
    /// Bytes of what is loaded ahead at most; batches that are being put together count twice, for their
    /// samples are there beside them. Taken from the largest batch so far: the first is loaded alone, and a
    /// batch that is larger than all before it, or than this, is loaded all the same. With room for few batches
    /// few workers work at once.
    pub prefetch_bytes: u64,
}

impl Default for LoaderOptions {
    /// One sample at a time, in order, by the caller's thread.
    fn default() -> Self {
        Self {
            batch_size: 1,
            shuffle: false,
            seed: 0,
            drop_last: false,
            workers: 0,
            prefetch: 2,
            prefetch_bytes: 256 << 20,
        }
    }
}

/// Which batch comes next: with dataset and options, all that a loader goes on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    /// How many times all of the data has been seen.
    pub epoch: u64,
    /// How many batches of this epoch were answered.
    pub batch: u64,
}

/// Batches of a dataset, as `torch.utils.data.DataLoader`.
///
/// What it answers depends on dataset, options and [`DataLoader::cursor`] alone, whatever the number of
/// workers. A sample that cannot be loaded is an error with its index, a panic of the dataset too; the cursor
/// stays where it was, so that asking again tries again. No worker outlives the loader: dropping it waits for
/// the samples that are being loaded.
///
/// What is loaded ahead lies on the heap, [`LoaderOptions::prefetch_bytes`] of it at most: it is memory of the
/// process, which an engine's budget bounds too.
pub struct DataLoader<D: Dataset, B: Batch> {
    samples: Arc<Samples<D, B>>,
    workers: Option<Workers<B>>,
    cursor: Cursor,
    options: LoaderOptions,
}

impl<D: Dataset, B: Batch> std::fmt::Debug for DataLoader<D, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataLoader")
            .field("options", &self.options)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

impl<D> DataLoader<D, <D::Item as Collate>::Batch>
where
    D: Dataset + 'static,
    D::Item: Collate,
{
    /// A loader whose samples become batches as [`Collate`] says.
    ///
    /// # Errors
    /// [`DataError::Usage`] for a batch size of 0; [`DataError::Thread`] if there is no thread for a worker.
    pub fn new(dataset: D, options: LoaderOptions) -> Result<Self, DataError> {
        Self::with_collate(dataset, options, |samples| Ok(D::Item::collate(samples)?))
    }

    /// A loader whose batches are those of a sampler, as with `batch_sampler`: [`WeightedSampler`], [`LengthSampler`], or
    /// one of your own.
    ///
    /// # Errors
    /// [`DataError::Usage`] for options that are the sampler's: a batch size other than 1, `shuffle` and `drop_last`;
    /// [`DataError::Thread`] if there is no thread for a worker.
    pub fn with_sampler(
        dataset: D,
        sampler: impl Sampler + 'static,
        options: LoaderOptions,
    ) -> Result<Self, DataError> {
        let collate = |samples| Ok(D::Item::collate(samples)?);
        Self::with_sampler_and_collate(dataset, sampler, options, collate)
    }
}

impl<D: Dataset + 'static, B: Batch> DataLoader<D, B> {
    /// A loader whose samples become batches by a function, as `collate_fn`.
    ///
    /// # Errors
    /// As [`DataLoader::new`].
    pub fn with_collate(
        dataset: D,
        options: LoaderOptions,
        collate: impl Fn(Vec<D::Item>) -> Result<B, BoxError> + Send + Sync + 'static,
    ) -> Result<Self, DataError> {
        if options.batch_size == 0 {
            let message = "a loader's batch_size must be above 0".to_owned();
            return Err(DataError::Usage(message));
        }
        Self::of(Samples {
            dataset,
            collate: Box::new(collate),
            options,
            sampler: None,
        })
    }

    /// As [`DataLoader::with_sampler`], of samples that become batches by a function.
    ///
    /// # Errors
    /// As [`DataLoader::with_sampler`].
    pub fn with_sampler_and_collate(
        dataset: D,
        sampler: impl Sampler + 'static,
        options: LoaderOptions,
        collate: impl Fn(Vec<D::Item>) -> Result<B, BoxError> + Send + Sync + 'static,
    ) -> Result<Self, DataError> {
        if options.batch_size != 1 || options.shuffle || options.drop_last {
            let message = "where a sampler makes the batches, a loader has no batch_size, shuffle or drop_last of its \
                           own: give them to the sampler";
            return Err(DataError::Usage(message.to_owned()));
        }
        Self::of(Samples {
            dataset,
            collate: Box::new(collate),
            options,
            sampler: Some(Box::new(sampler)),
        })
    }

    fn of(samples: Samples<D, B>) -> Result<Self, DataError> {
        let options = samples.options.clone();
        let samples = Arc::new(samples);
        let workers = match options.workers {
            0 => None,
            _ => Some(Workers::new(&samples)?),
        };
        Ok(Self {
            samples,
            workers,
            cursor: Cursor::default(),
            options,
        })
    }
}

impl<D: Dataset, B: Batch> DataLoader<D, B> {
    /// How many batches an epoch has.
    pub fn len(&self) -> u64 {
        self.samples.batches()
    }

    /// Whether an epoch has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dataset.
    pub fn dataset(&self) -> &D {
        &self.samples.dataset
    }

    /// The options.
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// Which batch comes next, to be saved.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Goes to a batch: a cursor that a loader of the same dataset and options had. The next batch is the one
    /// that came next there.
    ///
    /// # Errors
    /// [`DataError::Usage`] for a batch behind the last.
    pub fn seek(&mut self, cursor: Cursor) -> Result<(), DataError> {
        if cursor.batch > self.len() {
            let message = format!("no batch {} of {}", cursor.batch, self.len());
            return Err(DataError::Usage(message));
        }
        self.cursor = cursor;
        if let Some(workers) = &self.workers {
            workers.forget();
        }
        Ok(())
    }

    /// The next batch of this epoch; none at its end, after which the next epoch begins.
    ///
    /// # Errors
    /// [`DataError::Sample`], [`DataError::Panicked`] and [`DataError::Collate`].
    pub fn next_batch(&mut self) -> Result<Option<B>, DataError> {
        if self.cursor.batch >= self.len() {
            self.cursor = Cursor {
                epoch: self.cursor.epoch + 1,
                batch: 0,
            };
            return Ok(None);
        }
        let batch = match &self.workers {
            None => self.samples.load(self.cursor).map(|(batch, _)| batch),
            Some(workers) => workers.take(self.cursor, self.len()),
        }?;
        self.cursor.batch += 1;
        Ok(Some(batch))
    }

    /// The batches that are left of this epoch. One that is left halfway goes on there.
    pub fn epoch(&mut self) -> Epoch<'_, D, B> {
        Epoch {
            loader: self,
            ended: false,
        }
    }
}

/// The batches that are left of an epoch; ends with the first error.
#[derive(Debug)]
pub struct Epoch<'a, D: Dataset, B: Batch> {
    loader: &'a mut DataLoader<D, B>,
    ended: bool,
}

impl<D: Dataset, B: Batch> Iterator for Epoch<'_, D, B> {
    type Item = Result<B, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.loader.next_batch().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}
