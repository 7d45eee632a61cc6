//! Models by their names on the Hugging Face hub: `hf:org/name@revision`.
//!
//! They lie in the cache of `huggingface_hub`, where other programs find them: files that are there are not asked for
//! again. Nothing else of the program reaches a network.

mod curl;
mod fetch;
mod name;

use std::path::{Path, PathBuf};

use crate::error::Failure;
use name::Name;

/// The folder of a model that may be named as one of the hub: what there is of it but weights is fetched.
///
/// # Errors
/// [`Failure`] for a model that cannot be had.
pub fn folder(name: &str) -> Result<Option<PathBuf>, Failure> {
    match Name::parse(name) {
        Some(name) => fetch::Hub::of_environment()?.settings(&name?).map(Some),
        None => Ok(None),
    }
}

/// Fetches the weights of a folder of the cache, where they are missing. Others are left alone.
///
/// # Errors
/// As [`folder`].
pub fn weights(folder: &Path) -> Result<(), Failure> {
    let Some(name) = Name::of_folder(folder).filter(|_| !fetch::has_weights(folder)) else {
        return Ok(());
    };
    let hub = fetch::Hub::of_environment()?;
    if hub.has(folder) {
        hub.weights(&name, folder)?;
    }
    Ok(())
}
