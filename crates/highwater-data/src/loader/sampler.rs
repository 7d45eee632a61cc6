//! Which samples are in which batch, where neither the order of the data nor a plain shuffle will do.

use crate::{DataError, Draws, permute};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

/// The batches of an epoch, as a `batch_sampler` of `torch.utils.data.DataLoader`.
///
/// What it answers must follow from its settings, the epoch and the number of the batch alone: workers ask for batches
/// in any order, and a run that goes on at a [`Cursor`](super::Cursor) asks for them anew.
pub trait Sampler: Debug + Send + Sync {
    /// How many batches an epoch has.
    fn batches(&self) -> u64;

    /// The indices of the samples of a batch, from 0 up.
    fn batch(&self, epoch: u64, batch: u64) -> Vec<usize>;
}

/// How a [`WeightedSampler`] draws.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightedSamplerOptions {
    /// Samples of an epoch; as many as there are weights if left out.
    pub samples: Option<usize>,
    /// Whether a sample may come again in an epoch.
    pub replacement: bool,
    /// Samples of a batch.
    pub batch_size: usize,
    /// Whether a last batch of fewer samples is left out.
    pub drop_last: bool,
    /// What is drawn from, with the epoch.
    pub seed: u64,
}

impl Default for WeightedSamplerOptions {
    /// One sample at a time, with replacement.
    fn default() -> Self {
        Self {
            samples: None,
            replacement: true,
            batch_size: 1,
            drop_last: false,
            seed: 0,
        }
    }
}

/// Draws samples by their weights, as `torch.utils.data.WeightedRandomSampler`: rare classes as often as others, say.
///
/// ```
/// use highwater_data::{Array, DataLoader, LoaderOptions, TensorDataset, WeightedSampler, WeightedSamplerOptions};
///
/// # fn main() -> Result<(), highwater_data::DataError> {
/// // One sample in four is of class 1; each class comes half of the time.
/// let labels = [0_i64, 0, 0, 1];
/// let counts = [3.0, 1.0];
/// let weights = labels.map(|label| 1.0 / counts[label as usize]);
/// let options = WeightedSamplerOptions { samples: Some(1000), batch_size: 10, ..Default::default() };
/// let sampler = WeightedSampler::new(&weights, options)?;
/// let dataset = TensorDataset::new([Array::from_slice(&labels, [4])?])?;
/// let mut loader = DataLoader::with_sampler(dataset, sampler, LoaderOptions::default())?;
/// assert_eq!(loader.len(), 100);
/// for batch in loader.epoch() {
///     let [labels] = batch?;
///     assert_eq!(labels.dims(), [10]);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct WeightedSampler {
    /// Of each sample the sum of the weights up to its own.
    sums: Vec<f64>,
    samples: usize,
    options: WeightedSamplerOptions,
    /// The order of the epoch that was asked for last, without replacement.
    order: Mutex<Option<(u64, Arc<Vec<usize>>)>>,
}

impl WeightedSampler {
    /// From a weight for each sample; they need not add up to one.
    ///
    /// # Errors
    /// [`DataError::Usage`] for a weight that is negative or not finite, weights that are all 0, a batch size of 0, and
    /// without replacement for more samples than have a weight above 0.
    pub fn new(weights: &[f64], options: WeightedSamplerOptions) -> Result<Self, DataError> {
        let usage = |message: String| Err(DataError::Usage(message));
        if let Some(i) = weights.iter().position(|w| !w.is_finite() || *w < 0.0) {
            let weight = weights[i];
            return usage(format!(
                "sample {i} has the weight {weight}: weights are numbers from 0 up"
            ));
        }
        let mut sum = 0.0;
        let add = |weight: &f64| {
            sum += weight;
            sum
        };
        let sums: Vec<f64> = weights.iter().map(add).collect();
        if sum <= 0.0 || !sum.is_finite() {
            return usage(format!("the weights of samples add up to {sum}"));
        }
        if options.batch_size == 0 {
            return usage("a sampler's batch_size must be above 0".to_owned());
        }
        let samples = options.samples.unwrap_or(weights.len());
        let possible = weights.iter().filter(|weight| **weight > 0.0).count();
        if !options.replacement && samples > possible {
            return usage(format!(
                "{samples} samples without replacement, of {possible} that have a weight above 0"
            ));
        }
        Ok(Self {
            sums,
            samples,
            options,
            order: Mutex::new(None),
        })
    }

    /// A sample by its share of the weights.
    fn drawn(&self, epoch: u64, place: usize) -> usize {
        let mut draws = Draws::new(self.options.seed, epoch, place as u64);
        let total = self.sums.last().copied().unwrap_or(0.0);
        let at = unit(&mut draws) * total;
        let index = self.sums.partition_point(|&sum| sum <= at);
        // Rounded up to the total.
        index.min(self.sums.partition_point(|&sum| sum < total))
    }

    /// All samples of an epoch, none twice. Each has a key, `ln(u) / w` of an even number `u` and its weight, and those of
    /// the largest keys come, the largest first: as if one were drawn after the other (Efraimidis & Spirakis, 2006).
    fn order(&self, epoch: u64) -> Arc<Vec<usize>> {
        let mut kept = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, order)) = &*kept
            && *of == epoch
        {
            return Arc::clone(order);
        }
        let before = |i: usize| i.checked_sub(1).map_or(0.0, |i| self.sums[i]);
        let key = |i: usize| {
            let mut draws = Draws::new(self.options.seed, epoch, i as u64);
            let weight = self.sums[i] - before(i);
            (weight > 0.0).then(|| ((1.0 - unit(&mut draws)).ln() / weight, i))
        };
        let mut keys: Vec<(f64, usize)> = (0..self.sums.len()).filter_map(key).collect();
        keys.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        keys.truncate(self.samples);
        let order = Arc::new(keys.into_iter().map(|(_, i)| i).collect());
        *kept = Some((epoch, Arc::clone(&order)));
        order
    }
}

/// A number from 0 up and below 1, of 48 bits.
fn unit(draws: &mut Draws) -> f64 {
    (f64::from(draws.unit()) + f64::from(draws.unit()) / f64::from(1 << 24)).min(1.0 - f64::EPSILON)
}

impl Sampler for WeightedSampler {
    fn batches(&self) -> u64 {
        batches(
            self.samples,
            self.options.batch_size,
            self.options.drop_last,
        )
    }

    fn batch(&self, epoch: u64, batch: u64) -> Vec<usize> {
        let first = batch as usize * self.options.batch_size;
        let places = first..self.samples.min(first + self.options.batch_size);
        if self.options.replacement {
            return places.map(|place| self.drawn(epoch, place)).collect();
        }
        let order = self.order(epoch);
        order.get(places).map_or_else(Vec::new, <[usize]>::to_vec)
    }
}

/// How a [`LengthSampler`] makes batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LengthSamplerOptions {
    /// Samples of a batch.
    pub batch_size: usize,
    /// Batches whose samples are sorted by length together. With more there is less padding, and batches are less
    /// random.
    pub pool: usize,
    /// Whether samples are pooled in an order drawn anew for each epoch, and batches come in another.
    pub shuffle: bool,
    /// Whether a last batch of fewer samples is left out.
    pub drop_last: bool,
    /// What orders are drawn from, with the epoch.
    pub seed: u64,
}

impl Default for LengthSamplerOptions {
    /// One sample at a time, shuffled, from pools of 50 batches.
    fn default() -> Self {
        Self {
            batch_size: 1,
            pool: 50,
            shuffle: true,
            drop_last: false,
            seed: 0,
        }
    }
}

/// Puts samples of similar lengths into a batch, so that little is padding, as `group_by_length` of transformers'
/// `Trainer`: samples are pooled, each pool is sorted by length, and cut into batches.
///
/// ```
/// use highwater_data::{LengthSampler, LengthSamplerOptions, Sampler};
///
/// # fn main() -> Result<(), highwater_data::DataError> {
/// let lengths = [3, 90, 5, 80, 4, 85];
/// let options = LengthSamplerOptions { batch_size: 3, ..Default::default() };
/// let sampler = LengthSampler::new(&lengths, options)?;
/// let batches: Vec<Vec<usize>> = (0..2).map(|batch| sampler.batch(0, batch)).collect();
/// assert!(batches.contains(&vec![1, 5, 3]) && batches.contains(&vec![2, 4, 0]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LengthSampler {
    lengths: Vec<usize>,
    options: LengthSamplerOptions,
}

impl LengthSampler {
    /// From the length of each sample, in tokens or whatever is padded.
    ///
    /// # Errors
    /// [`DataError::Usage`] for a batch size or a pool of 0.
    pub fn new(lengths: &[usize], options: LengthSamplerOptions) -> Result<Self, DataError> {
        if options.batch_size == 0 || options.pool == 0 {
            let message = "a sampler's batch_size and pool must be above 0".to_owned();
            return Err(DataError::Usage(message));
        }
        Ok(Self {
            lengths: lengths.to_vec(),
            options,
        })
    }
}

impl Sampler for LengthSampler {
    fn batches(&self) -> u64 {
        batches(
            self.lengths.len(),
            self.options.batch_size,
            self.options.drop_last,
        )
    }

    fn batch(&self, epoch: u64, batch: u64) -> Vec<usize> {
        let LengthSamplerOptions {
            batch_size,
            pool,
            shuffle,
            seed,
            ..
        } = self.options;
        let (count, batches) = (self.lengths.len(), self.batches());
        let batch = if shuffle {
            // Not the numbers that samples are ordered by.
            permute(batch, batches, !seed, epoch)
        } else {
            batch
        } as usize;
        let pooled = pool.saturating_mul(batch_size);
        let start = batch / pool * pooled;
        let place = |place: usize| {
            if shuffle {
                permute(place as u64, count as u64, seed, epoch) as usize
            } else {
                place
            }
        };
        let mut samples: Vec<usize> = (start..count.min(start + pooled)).map(place).collect();
        // The longest first, and of equal ones those that come first.
        samples.sort_by_key(|&sample| std::cmp::Reverse(self.lengths[sample]));
        let first = batch % pool * batch_size;
        let last = samples.len().min(first + batch_size);
        samples
            .get(first..last)
            .map_or_else(Vec::new, <[usize]>::to_vec)
    }
}

/// How many batches so many samples make.
pub(super) fn batches(samples: usize, size: usize, drop_last: bool) -> u64 {
    let batches = if drop_last {
        samples / size
    } else {
        samples.div_ceil(size)
    };
    batches as u64
}
