//! Names of models on the Hugging Face hub.

use std::path::Path;

use crate::error::Failure;

/// What names of the hub begin with.
const SCHEME: &str = "hf:";
/// What a folder of a model in the cache is called, before its name.
pub(crate) const FOLDER: &str = "models--";

/// A model on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
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
    pub(super) fn parse(text: &str) -> Option<Result<Self, Failure>> {
        let name = text.strip_prefix(SCHEME)?;
        let (repository, revision) = name.split_once('@').unwrap_or((name, "main"));
        let parts: Vec<&str> = repository.split('/').collect();
        let of_names = revision.split('/').chain(parts.iter().copied());
        if parts.len() > 2 || !of_names.clone().all(is_name) {
            let hint = "use hf:org/name or hf:org/name@revision, where the revision is a branch, tag or commit";
            return Some(Err(Failure::usage(format!(
                "{text:?} is not the name of a model on the Hugging Face Hub"
            ))
            .hint(hint)));
        }
        Some(Ok(Self {
            repository: repository.to_owned(),
            revision: revision.to_owned(),
        }))
    }

    /// The model whose files a folder of the cache has, as `models--org--name/snapshots/COMMIT`.
    pub(super) fn of_folder(folder: &Path) -> Option<Self> {
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
pub(crate) fn is_name(part: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !part.is_empty() && part.len() <= 96 && part.chars().all(letter) && !part.starts_with('.')
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
}
