//! Files of models: weights, adapters, folders.

pub mod adapter;
pub mod module_file;
pub mod module_folder;
pub mod npy;
pub mod weights;
