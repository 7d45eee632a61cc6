//! Sequences of several lengths in one tensor, without padding between them.

use crate::Result;
use crate::error::usage_error;
use crate::tensor::Tensor;
use highwater_graph::{DType, Location};

/// Sequences of several lengths, step by step: as `torch.nn.utils.rnn.PackedSequence`.
///
/// `data` `[sum of lengths, C]` has the first steps of all sequences, then the second steps of all that have
/// one, and so on; longer sequences come first. So each step of a recurrent layer is one product of as many
/// rows as there are sequences left, and padding is neither computed nor held.
#[derive(Debug, Clone)]
pub struct PackedSequence {
    /// The steps, `[sum of lengths, C]`.
    pub data: Tensor,
    /// How many sequences have each step; never more than the step before.
    pub batch_sizes: Vec<usize>,
    /// Where each sequence was, longest first.
    pub sorted_indices: Vec<usize>,
}

impl PackedSequence {
    /// Packs sequences that are padded to one length: `padded` `[B, T, C]`, of which sequence `i` has
    /// `lengths[i]` steps, at least one and at most T; of any dtype. As `pack_padded_sequence(batch_first=True,
    /// enforce_sorted=False)`. One pass over what is kept.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for another rank, or lengths that do not fit.
    #[track_caller]
    pub fn pack(padded: &Tensor, lengths: &[usize]) -> Result<Self> {
        let location = Location::caller();
        let &[batch, steps, width] = padded.dims() else {
            let message = format!(
                "pack: sequences [B, T, C] are packed, not {}",
                padded.shape()
            );
            return Err(usage_error(message, location));
        };
        let fits = |&length: &usize| (1..=steps).contains(&length);
        if lengths.len() != batch || !lengths.iter().all(fits) {
            let message = format!(
                "pack: {batch} lengths from 1 to {steps} are wanted, not {lengths:?}: leave empty sequences out"
            );
            return Err(usage_error(message, location));
        }
        let mut sorted_indices: Vec<usize> = (0..batch).collect();
        sorted_indices.sort_by_key(|&i| std::cmp::Reverse(lengths[i]));
        let batch_sizes = batch_sizes(lengths);
        let mut rows = Vec::with_capacity(lengths.iter().sum());
        for (step, &count) in batch_sizes.iter().enumerate() {
            let first = sorted_indices[..count].iter();
            rows.extend(first.map(|&i| (i * steps + step) as u32));
        }
        let rows = padded.engine().indices(&rows, [rows.len()])?;
        let data = rows_of(&padded.reshape([batch * steps, width])?, &rows)?;
        Ok(Self {
            data,
            batch_sizes,
            sorted_indices,
        })
    }

    /// The same steps with other data, `[sum of lengths, D]`: what a layer makes of them.
    #[must_use]
    pub fn with_data(&self, data: Tensor) -> Self {
        Self {
            data,
            batch_sizes: self.batch_sizes.clone(),
            sorted_indices: self.sorted_indices.clone(),
        }
    }

    /// The length of each sequence, where it was before packing.
    pub fn lengths(&self) -> Vec<usize> {
        let mut lengths = vec![0; self.sorted_indices.len()];
        for (place, &i) in self.sorted_indices.iter().enumerate() {
            lengths[i] = self
                .batch_sizes
                .iter()
                .filter(|&&size| size > place)
                .count();
        }
        lengths
    }

    /// Back to `[B, T, C]`, T the longest length, padded with zeros: `pad_packed_sequence(batch_first=True)`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for data of another rank.
    #[track_caller]
    pub fn pad(&self) -> Result<Tensor> {
        let &[total, width] = self.data.dims() else {
            let message = format!("pad: steps are [N, C], not {}", self.data.shape());
            return Err(usage_error(message, Location::caller()));
        };
        let (batch, steps) = (self.sorted_indices.len(), self.batch_sizes.len());
        // One row of zeros behind all steps is what padding is read from.
        let mut rows = vec![total as u32; batch * steps];
        let mut row = 0;
        for (step, &count) in self.batch_sizes.iter().enumerate() {
            for &i in &self.sorted_indices[..count] {
                rows[i * steps + step] = row;
                row += 1;
            }
        }
        let engine = self.data.engine();
        let rows = engine.indices(&rows, [batch, steps])?;
        let zeros = engine.tensor(&vec![0.0; width], [1, width])?;
        let zeros = match self.data.dtype() {
            DType::F32 => zeros,
            dtype => zeros.to_dtype(dtype)?,
        };
        rows_of(&Tensor::cat(&[&self.data, &zeros], 0)?, &rows)
    }
}

/// Some rows of a matrix, `[.., C]` for indices `[..]`.
#[track_caller]
fn rows_of(matrix: &Tensor, rows: &Tensor) -> Result<Tensor> {
    if matrix.dtype().is_float() {
        return matrix.embedding(rows);
    }
    let (count, width) = (rows.shape().numel(), matrix.dims()[1]);
    let index = rows.reshape([count, 1])?.expand([count, width])?;
    let shape = [rows.dims(), &[width]].concat();
    matrix.gather(0, &index)?.reshape(shape)
}

/// How many of the sequences have each step.
fn batch_sizes(lengths: &[usize]) -> Vec<usize> {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let at = |step| lengths.iter().filter(|&&length| length > step).count();
    (0..longest).map(at).collect()
}
