//! Models by their names on the Hugging Face hub: `hf:org/name@revision`.
//!
//! They lie in the cache of `huggingface_hub`, where other programs find them: files that are there are not asked for
//! again. Without the feature `hub` such a name is refused, and nothing here can reach a network.

use std::path::{Path, PathBuf};

use crate::args::Command;
use crate::chat::ChatArgs;
use crate::data_show::DataCommand;
use crate::error::Failure;
use crate::generate::GenerateArgs;

#[cfg(feature = "hub")]
mod fetch;

/// What names of the hub begin with.
const SCHEME: &str = "hf:";
/// What a folder of a model in the cache is called, before its name.
const FOLDER: &str = "models--";

/// A model on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// `org/name`, or a name alone.
    pub repository: String,
    /// A branch, a tag or a commit.
    pub revision: String,
}

impl Name {
    /// The name that a text is, if it is one.
    ///
    /// # Errors
    /// [`Failure`] for one that cannot be a name.
    pub fn parse(text: &str) -> Option<Result<Self, Failure>> {
        let name = text.strip_prefix(SCHEME)?;
        let (repository, revision) = name.split_once('@').unwrap_or((name, "main"));
        let parts: Vec<&str> = repository.split('/').collect();
        let of_names = revision.split('/').chain(parts.iter().copied());
        if parts.len() > 2 || !of_names.clone().all(is_name) {
            let hint = "hf:org/name, or hf:org/name@revision with a branch, a tag or a commit";
            return Some(Err(Failure::usage(format!(
                "{text:?} does not name a model on the hub"
            ))
            .hint(hint)));
        }
        Some(Ok(Self {
            repository: repository.to_owned(),
            revision: revision.to_owned(),
        }))
    }

    /// The model whose files a folder of the cache has, as `models--org--name/snapshots/COMMIT`.
    fn of_folder(folder: &Path) -> Option<Self> {
        let revision = folder.file_name()?.to_str()?;
        let snapshots = folder.parent()?;
        let model = snapshots.parent()?.file_name()?.to_str()?;
        let repository = model.strip_prefix(FOLDER)?.replacen("--", "/", 1);
        let is_named = repository.split('/').chain([revision]).all(is_name);
        let found = snapshots.file_name()? == "snapshots" && is_named;
        found.then(|| Self {
            repository,
            revision: revision.to_owned(),
        })
    }
}

/// Whether a part of a name is one that the hub gives, and no way out of a folder.
fn is_name(part: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !part.is_empty() && part.len() <= 96 && part.chars().all(letter) && !part.starts_with('.')
}

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

/// Puts folders of the cache in the place of names where commands take paths, with the weights that they read.
///
/// # Errors
/// As [`folder`].
pub fn localise(command: &mut Command) -> Result<(), Failure> {
    let (paths, are_read) = match command {
        Command::Generate(GenerateArgs { sample, .. }) | Command::Chat(ChatArgs { sample, .. }) => {
            (vec![sample.dir.as_mut(), sample.model.as_mut()], true)
        }
        Command::Eval(args) => (vec![args.dir.as_mut(), args.model.as_mut()], true),
        Command::Merge(args) => (vec![args.model.as_mut()], true),
        Command::Export(args) => (vec![Some(&mut args.dir)], true),
        Command::Data(DataCommand::Show(args)) => (vec![args.model.as_mut()], false),
        _ => return Ok(()),
    };
    for path in paths.into_iter().flatten() {
        if let Some(found) = folder(path.to_str().unwrap_or_default())? {
            if are_read {
                weights(&found)?;
            }
            *path = found;
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        let name = |repository: &str, revision: &str| Name {
            repository: repository.to_owned(),
            revision: revision.to_owned(),
        };
        for (text, expected) in [
            ("hf:org/name", name("org/name", "main")),
            ("hf:gpt2@v1.0", name("gpt2", "v1.0")),
            ("hf:a/B_c.d-2@refs/pr/3", name("a/B_c.d-2", "refs/pr/3")),
        ] {
            assert_eq!(Name::parse(text).unwrap().unwrap(), expected, "{text}");
        }
        for text in [
            "hf:",
            "hf:a/b/c",
            "hf:../x",
            "hf:a/..",
            "hf:a/b@",
            "hf:a/b@../x",
            "hf:a b",
            "hf:/a",
            "hf:a/b@x//y",
        ] {
            assert!(Name::parse(text).unwrap().is_err(), "{text}");
        }
        assert!(Name::parse("gpt2").is_none() && Name::parse("./hf:a").is_none());
    }

    #[test]
    fn folders_of_the_cache_have_their_models_names() {
        let of = |path: &str| {
            Name::of_folder(Path::new(path)).map(|name| (name.repository, name.revision))
        };
        let found = of("/c/hub/models--org--a--b/snapshots/0abc");
        assert_eq!(found, Some(("org/a--b".to_owned(), "0abc".to_owned())));
        assert_eq!(
            of("/c/hub/models--gpt2/snapshots/1"),
            Some(("gpt2".to_owned(), "1".to_owned()))
        );
        assert_eq!(of("/models/llama"), None);
        assert_eq!(of("/c/models--a--b/blobs/1"), None);
    }

    #[cfg(not(feature = "hub"))]
    #[test]
    fn without_the_feature_a_name_is_refused_with_what_to_do() {
        let told = folder("hf:org/name").unwrap_err().to_string();
        assert!(told.contains("without the hub"), "{told}");
    }
}
