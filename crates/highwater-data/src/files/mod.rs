//! Arrays in files.

mod npy;
mod npz;
mod tensors;

pub use npy::{NpyHeader, read_npy, read_npy_in};
pub use npz::{read_npz, read_npz_in};
pub use tensors::{read_safetensors, read_safetensors_in};
