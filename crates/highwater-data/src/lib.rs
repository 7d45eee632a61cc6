//! Data for training: datasets, a loader with workers, arrays in files, folders of images. It knows no engine;
//! the crate `highwater` has it as `highwater::data`, with what makes tensors of it.
//!
//! A [`Dataset`] answers samples by their index. A [`DataLoader`] puts them into batches, in the order of the
//! data or shuffled anew for each epoch, on threads of its own if asked, and can be told where to go on. What
//! it answers is a function of dataset, options and cursor: not of threads, nor of what was loaded before.
//!
//! ```
//! use highwater_data::{Array, DataLoader, LoaderOptions, TensorDataset};
//!
//! # fn main() -> Result<(), highwater_data::DataError> {
//! let x = Array::from_slice(&[0.0_f32, 0.1, 1.0, 1.1, 2.0, 2.1], [3, 2])?;
//! let y = Array::from_slice(&[0_i64, 1, 2], [3])?;
//! let options = LoaderOptions { batch_size: 2, shuffle: true, seed: 7, workers: 2, ..Default::default() };
//! let mut loader = DataLoader::new(TensorDataset::new([x, y])?, options)?;
//! for _ in 0..3 {
//!     for batch in loader.epoch() {
//!         let [x, y] = batch?;
//!         assert_eq!(x.dims()[0], y.dims()[0]);
//!     }
//! }
//! assert_eq!(loader.cursor().epoch, 3);
//! # Ok(())
//! # }
//! ```

mod array;
mod dataset;
mod draws;
#[cfg(feature = "images")]
mod endings;
mod error;
mod files;
#[cfg(feature = "images")]
pub mod images;
mod loader;
mod order;

pub use array::Array;
pub use dataset::{Dataset, Map, Subset, TensorDataset};
pub use draws::Draws;
pub use error::{BoxError, DataError};
pub use files::{
    NpyHeader, read_npy, read_npy_in, read_npz, read_npz_in, read_safetensors, read_safetensors_in,
};
pub use loader::{
    Batch, Collate, Cursor, DataLoader, Epoch, LengthSampler, LengthSamplerOptions, LoaderOptions,
    Sampler, WeightedSampler, WeightedSamplerOptions,
};
pub use order::permute;
