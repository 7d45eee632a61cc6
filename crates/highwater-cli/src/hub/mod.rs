//! Models by their names on the Hugging Face hub: `hf:org/name@revision`.
//!
//! They lie in the cache of `huggingface_hub`, where other programs find them: files that are there are not asked for
//! again. Without the feature `hub` such a name is refused, and nothing here can reach a network.

#[cfg(feature = "hub")]
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
        Some(name) => fetched(&name?).map(Some),
        None => Ok(None),
    }
}

#[cfg(feature = "hub")]
fn fetched(name: &Name) -> Result<PathBuf, Failure> {
    fetch::Hub::of_environment()?.settings(name)
}

/// Fetches the weights of a folder of the cache, where they are missing. Others are left alone.
///
/// # Errors
/// As [`folder`].
#[cfg(feature = "hub")]
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

#[cfg(not(feature = "hub"))]
fn fetched(name: &Name) -> Result<PathBuf, Failure> {
    let repository = &name.repository;
    Err(Failure::usage(format!("hf:{repository}: this program was built without the hub"))
        .id("HW1044")
        .hint(format!(
            "`hf download {repository} --local-dir DIR`, then --model DIR; or build it with `--features hub`"
        )))
}

/// Nothing: without the hub weights are there or are not.
///
/// # Errors
/// None.
#[cfg(not(feature = "hub"))]
pub fn weights(folder: &Path) -> Result<(), Failure> {
    let _ = Name::of_folder(folder);
    Ok(())
}

#[cfg(all(test, not(feature = "hub")))]
mod tests {
    use super::*;

    #[test]
    fn without_the_feature_a_name_is_refused_with_what_to_do() {
        let told = folder("hf:org/name").unwrap_err().to_string();
        assert!(told.contains("without the hub"), "{told}");
    }
}
