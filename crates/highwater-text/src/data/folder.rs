//! The files of text or tokens at a path, and which part of the data each is.

use std::path::{Path, PathBuf};

use highwater_memory::Files;

use super::splits::{self, Found, Parts, Reads, Split, split_of};
use super::{DataError, text};

/// The most files in a folder.
const FILES_MAX: usize = 1 << 17;
/// The most folders within each other.
const DEPTH_MAX: usize = 64;
/// Endings of texts that may be parts of a data set; programs that are called `train` are not.
const TEXTS: [&str; 6] = ["", "txt", "text", "md", "raw", "tokens"];
/// What lies beside files of tokens and is none of the data.
const COMPANIONS: [&str; 8] = ["py", "pkl", "json", "idx", "yaml", "yml", "toml", "sh"];
/// Names of such files, whatever their endings.
const DESCRIPTIONS: [&str; 4] = ["readme", "license", "licence", "changelog"];

/// What data is made of.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// Files of tokens.
    Tokens(Parts),
    /// Files of text.
    Text(Parts),
}

/// Whether data is files of tokens, and not text.
///
/// # Errors
/// [`DataError`] for a folder that cannot be listed, or has both.
pub fn holds_tokens(files: &dyn Files, path: &Path) -> Result<bool, DataError> {
    if !files.metadata(path)?.is_some_and(|found| found.is_dir) {
        // Of what is not there yet its name tells.
        return Ok(is_token_file(path));
    }
    Ok(matches!(
        content(files, path, Reads::Training)?,
        Content::Tokens(_)
    ))
}

/// Whether a folder has files of tokens whose names say which part of the data they are, whatever else lies there.
///
/// # Errors
/// [`DataError`] for a folder that cannot be listed.
pub fn is_token_set(files: &dyn Files, folder: &Path) -> Result<bool, DataError> {
    let mut all = Listed::default();
    collect(files, folder, 0, &mut all)?;
    let mut paths = all.files.iter().map(|file| &file.0);
    Ok(paths.any(|path| is_token_file(path) && split_of(folder, path).is_some()))
}

/// Whether a path's ending says that it holds tokens.
pub fn is_token_file(path: &Path) -> bool {
    matches!(ending(path).as_str(), "npy" | "bin")
}

/// The parts of data of text or tokens. `held_out` names what the loss is measured on, where that lies elsewhere.
///
/// # Errors
/// [`DataError`] where nothing is there, and for a folder in which text and tokens are mixed.
pub fn parts_of(
    files: &dyn Files,
    path: &Path,
    (held_out, reads): (Option<&Path>, Reads),
) -> Result<Parts, DataError> {
    Ok(match find(files, path, (held_out, reads))? {
        Content::Tokens(parts) | Content::Text(parts) => parts,
    })
}

pub(super) fn find(
    files: &dyn Files,
    path: &Path,
    (held_out, reads): (Option<&Path>, Reads),
) -> Result<Content, DataError> {
    let mut found = content(files, path, reads)?;
    let Some(named) = held_out else {
        return Ok(found);
    };
    let other = content(files, named, Reads::Evaluation)?;
    match (&mut found, other) {
        (Content::Tokens(parts), Content::Tokens(other))
        | (Content::Text(parts), Content::Text(other)) => {
            parts.hold_out(other);
        }
        _ => {
            return Err(DataError::Format {
                path: named.to_owned(),
                problem: format!(
                    "text and tokens cannot be mixed: {} is the other kind",
                    path.display()
                ),
            });
        }
    }
    Ok(found)
}

fn content(files: &dyn Files, path: &Path, reads: Reads) -> Result<Content, DataError> {
    let missing = || DataError::Missing {
        path: path.to_owned(),
    };
    let there = files.metadata(path)?.ok_or_else(missing)?;
    if !there.is_dir {
        let parts = Parts::one(path, there.bytes);
        if is_token_file(path) {
            return Ok(Content::Tokens(parts));
        }
        // This opens it, which refuses pipes and devices: they have no length either.
        text::check(files, path)?;
        if there.bytes == 0 {
            return Err(DataError::Empty {
                path: path.to_owned(),
            });
        }
        return Ok(Content::Text(parts));
    }
    let mut all = Listed::default();
    collect(files, path, 0, &mut all)?;
    let (tokens, texts): (Vec<_>, Vec<_>) = all
        .files
        .into_iter()
        .partition(|(path, _)| is_token_file(path));
    let content = if tokens.is_empty() {
        let parts = text_parts(path, texts, all.unread, reads);
        for (path, _) in parts.train.iter().chain(&parts.held_out) {
            text::check(files, path)?;
        }
        Content::Text(parts)
    } else {
        let is_set = tokens
            .iter()
            .any(|(file, _)| split_of(path, file).is_some());
        if let Some((text, _)) = texts
            .iter()
            .find(|(file, _)| !is_set && !is_companion(file))
        {
            return Err(DataError::TokensAmongText {
                path: tokens[0].0.clone(),
                text: text.clone(),
            });
        }
        let mut unread = all.unread;
        let others = texts.into_iter().filter(|(file, _)| !is_companion(file));
        unread.extend(others.map(|file| file.0));
        let split = |file: Found| {
            let split = split_of(path, &file.0);
            (file, split)
        };
        Content::Tokens(Parts::of(
            tokens.into_iter().map(split).collect(),
            unread,
            reads,
        ))
    };
    let (Content::Tokens(parts) | Content::Text(parts)) = &content;
    match parts.only_others(path) {
        Some(problem) => Err(DataError::NoTraining {
            path: path.to_owned(),
            problem,
        }),
        None if parts.train.is_empty() => Err(DataError::Empty {
            path: path.to_owned(),
        }),
        None => Ok(content),
    }
}

/// The parts of a folder of text. Titles have words such as "test" in them: names count where those of all texts say
/// a part, or where some are nothing but the word for it.
fn text_parts(root: &Path, found: Vec<Found>, unread: Vec<PathBuf>, reads: Reads) -> Parts {
    let split = |path: &Path| {
        let is_data = TEXTS.contains(&ending(path).as_str());
        split_of(root, path).filter(|_| is_data)
    };
    let of_all = || {
        let mut texts = found.iter().filter(|(path, _)| !is_companion(path));
        texts.all(|(path, _)| split(path).is_some())
    };
    let is_plain = |(path, _): &Found| split(path).is_some() && splits::is_plain(path);
    let is_set = found.iter().any(is_plain) || of_all();
    let keep = |file: Found| {
        let split = split(&file.0).filter(|_| is_set);
        (file, split)
    };
    let is_train = |(_, split): &(Found, Option<Split>)| *split == Some(Split::Train);
    let mut found: Vec<_> = found.into_iter().map(keep).collect();
    // Nothing but files to train on: all of them are.
    if found.iter().all(|it| it.1.is_none() || is_train(it)) {
        for (_, split) in &mut found {
            *split = None;
        }
    }
    Parts::of(found, unread, reads)
}

#[derive(Default)]
struct Listed {
    files: Vec<Found>,
    unread: Vec<PathBuf>,
}

/// Lists a folder, sorted by path. Hidden files and empty ones are left out; links to folders are not followed.
fn collect(
    files: &dyn Files,
    folder: &Path,
    depth: usize,
    all: &mut Listed,
) -> Result<(), DataError> {
    let too_large = |what, max| DataError::FolderTooLarge {
        path: folder.to_owned(),
        what,
        max,
    };
    if depth == DEPTH_MAX {
        return Err(too_large("folders within each other", DEPTH_MAX));
    }
    for (name, is_dir) in files.entries(folder)? {
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let inner = folder.join(&name);
        if is_dir {
            collect(files, &inner, depth + 1, all)?;
            continue;
        }
        match files.metadata(&inner)? {
            Some(there) if there.is_file && there.bytes > 0 => all.files.push((inner, there.bytes)),
            Some(there) if there.is_file => {}
            // A link to a folder or to nothing, or a pipe or a device.
            _ => all.unread.push(inner),
        }
        if all.files.len() > FILES_MAX {
            return Err(too_large("files", FILES_MAX));
        }
    }
    Ok(())
}

fn ending(path: &Path) -> String {
    let ending = path.extension().map(|ending| ending.to_string_lossy());
    ending.unwrap_or_default().to_ascii_lowercase()
}

/// Whether a file only tells of others, or makes them.
fn is_companion(path: &Path) -> bool {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().to_ascii_lowercase());
    let name = name.unwrap_or_default();
    let stem = name.split('.').next().unwrap_or_default();
    COMPANIONS.contains(&ending(path).as_str()) || DESCRIPTIONS.contains(&stem)
}
