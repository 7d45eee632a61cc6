//! NumPy's `.npy` as tensors.

use std::path::Path;

use highwater::{Engine, Result, Tensor, data};

/// Reads an array as a tensor of its shape, as [`data::read_npy`] reads it. The array is in memory twice
/// meanwhile. Category: input.
///
/// # Errors
/// [`Error::Data`](highwater::Error::Data) for a file that cannot be read or is no such array;
/// [`Error::State`](highwater::Error::State) if there is no room.
#[track_caller]
pub fn read_npy(engine: &Engine, path: impl AsRef<Path>) -> Result<Tensor> {
    Tensor::from_array(engine, &data::read_npy(path)?)
}
