//! Which samples a batch has, and how they are loaded.

use super::sampler::batches;
use super::{Batch, Cursor, LoaderOptions, Sampler};
use crate::{BoxError, DataError, Dataset, Draws, permute};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Puts samples into a batch.
pub(super) type CollateFn<T, B> = Box<dyn Fn(Vec<T>) -> Result<B, BoxError> + Send + Sync>;

/// A dataset and what its batches are made by.
pub(super) struct Samples<D: Dataset, B> {
    pub(super) dataset: D,
    pub(super) collate: CollateFn<D::Item, B>,
    pub(super) options: LoaderOptions,
    /// What says which samples are in a batch, if not the options.
    pub(super) sampler: Option<Box<dyn Sampler>>,
}

impl<D: Dataset, B: Batch> Samples<D, B> {
    /// How many batches an epoch has.
    pub(super) fn batches(&self) -> u64 {
        let (samples, size) = (self.dataset.len(), self.options.batch_size);
        match &self.sampler {
            Some(sampler) => sampler.batches(),
            None => batches(samples, size, self.options.drop_last),
        }
    }

    /// The samples of a batch.
    fn indices(&self, at: Cursor) -> Vec<usize> {
        if let Some(sampler) = &self.sampler {
            return sampler.batch(at.epoch, at.batch);
        }
        let (len, size) = (self.dataset.len() as u64, self.options.batch_size as u64);
        let first = at.batch * size;
        let index = |index: u64| {
            if self.options.shuffle {
                permute(index, len, self.options.seed, at.epoch) as usize
            } else {
                index as usize
            }
        };
        (first..len.min(first + size)).map(index).collect()
    }

    /// Whose random numbers a sample has: its own, or, where a sampler may ask for it twice, its place's.
    fn stream(&self, at: Cursor, place: usize, index: usize) -> u64 {
        match &self.sampler {
            Some(_) => at.batch << 32 | place as u64,
            None => index as u64,
        }
    }

    /// Loads a batch, and says how many bytes it holds. Nothing that a dataset does goes further than an error.
    pub(super) fn load(&self, at: Cursor) -> Result<(B, u64), DataError> {
        let indices = self.indices(at);
        let mut samples = Vec::with_capacity(indices.len());
        for (place, &index) in indices.iter().enumerate() {
            if self.sampler.is_some() && index >= self.dataset.len() {
                let len = self.dataset.len();
                let message = format!("the sampler asks for sample {index} of {len}");
                return Err(DataError::Usage(message));
            }
            let mut draws = Draws::new(self.options.seed, at.epoch, self.stream(at, place, index));
            let get = || self.dataset.get(index, &mut draws);
            match catch_unwind(AssertUnwindSafe(get)) {
                Ok(Ok(sample)) => samples.push(sample),
                Ok(Err(source)) => return Err(DataError::Sample { index, source }),
                Err(panic) => {
                    let message = said(&*panic);
                    return Err(DataError::Panicked { index, message });
                }
            }
        }
        let collate = || {
            let batch = (self.collate)(samples)?;
            let bytes = batch.bytes();
            Ok((batch, bytes))
        };
        match catch_unwind(AssertUnwindSafe(collate)) {
            Ok(batch) => batch.map_err(|source| DataError::Collate { indices, source }),
            Err(panic) => {
                let source = format!("a panic: {}", said(&*panic)).into();
                Err(DataError::Collate { indices, source })
            }
        }
    }
}

/// The message of a panic.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".to_owned())
}
