//! Text whose bytes are the tokens: one file, or the files of a folder one after the other.

use std::path::{Path, PathBuf};

use highwater_memory::{FileRead, Files};

use super::DataError;

/// The most files in a folder of text.
const FILES_MAX: usize = 1 << 17;
/// The most folders within each other.
const DEPTH_MAX: usize = 64;

/// The text files at `path` with their lengths: the file itself, or all in a folder, sorted by path.
/// Hidden files and empty ones are left out, and links to folders are not followed.
pub(super) fn text_files(files: &dyn Files, path: &Path) -> Result<Vec<(PathBuf, u64)>, DataError> {
    let mut found = Vec::new();
    collect(files, path, 0, &mut found)?;
    if found.is_empty() {
        return Err(DataError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(found)
}

fn collect(
    files: &dyn Files,
    path: &Path,
    depth: usize,
    found: &mut Vec<(PathBuf, u64)>,
) -> Result<(), DataError> {
    let too_large = |what, max| DataError::FolderTooLarge {
        path: path.to_owned(),
        what,
        max,
    };
    let Some(metadata) = files.metadata(path)? else {
        return Err(DataError::Missing {
            path: path.to_owned(),
        });
    };
    if !metadata.is_dir {
        if metadata.bytes > 0 {
            found.push((path.to_owned(), metadata.bytes));
        }
        return Ok(());
    }
    if depth == DEPTH_MAX {
        return Err(too_large("folders within each other", DEPTH_MAX));
    }
    let mut entries = files.list_dir(path)?;
    entries.sort();
    for entry in entries {
        let inner = path.join(&entry.name);
        // A link to a folder is an entry that is none and leads to one.
        let link = !entry.is_dir && files.metadata(&inner)?.is_none_or(|found| found.is_dir);
        if link || entry.name.starts_with('.') {
            continue;
        }
        if !entry.is_dir && is_token_file(&inner) {
            return Err(DataError::TokensAmongText { path: inner });
        }
        collect(files, &inner, depth + 1, found)?;
        if found.len() > FILES_MAX {
            return Err(too_large("files", FILES_MAX));
        }
    }
    Ok(())
}

/// Whether a path's ending says that it holds tokens.
pub fn is_token_file(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("npy" | "bin"))
}

/// The bytes of several files as if they were one. One file is open at a time.
#[derive(Debug)]
pub(super) struct TextBytes {
    files: std::sync::Arc<dyn Files>,
    /// Each file with where it ends.
    parts: Vec<(PathBuf, u64)>,
    open: Option<(usize, Box<dyn FileRead>)>,
}

impl TextBytes {
    pub(super) fn new(files: std::sync::Arc<dyn Files>, parts: Vec<(PathBuf, u64)>) -> Self {
        let mut end = 0_u64;
        let ends = parts.into_iter().map(|(path, bytes)| {
            end += bytes;
            (path, end)
        });
        Self {
            parts: ends.collect(),
            files,
            open: None,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.parts.last().map_or(0, |&(_, end)| end)
    }

    /// Fills the buffer from byte `at` on, which must be there.
    pub(super) fn read(&mut self, mut at: u64, mut out: &mut [u8]) -> Result<(), DataError> {
        while !out.is_empty() {
            let part = self.parts.partition_point(|&(_, end)| end <= at);
            let start = part.checked_sub(1).map_or(0, |before| self.parts[before].1);
            let (path, end) = &self.parts[part];
            let (now, later) = out.split_at_mut(out.len().min((end - at) as usize));
            let file = match &mut self.open {
                Some((open, file)) if *open == part => file,
                open => &mut open.insert((part, self.files.open(path)?)).1,
            };
            file.read_exact_at(at - start, now)?;
            at += now.len() as u64;
            out = later;
        }
        Ok(())
    }
}

/// Reads from front to back, for a tokenizer.
#[derive(Debug)]
pub(super) struct TextReader {
    pub(super) text: TextBytes,
    pub(super) at: u64,
}

impl std::io::Read for TextReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = self.text.bytes() - self.at;
        let count = left.min(buffer.len() as u64) as usize;
        let read = self.text.read(self.at, &mut buffer[..count]);
        read.map_err(std::io::Error::other)?;
        self.at += count as u64;
        Ok(count)
    }
}
