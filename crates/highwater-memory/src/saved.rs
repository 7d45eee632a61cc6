//! Saved states: what a run resumes from, kept so that none is lost and no broken one is taken.
//!
//! ```text
//! checkpoints/
//!   step-000010/            a state: any files, and
//!     manifest.json         their sizes and BLAKE3 hashes, written last
//!   .highwater-1-2.tmp/     one that is being written, or removed
//!   LATEST                  the name of the newest, for people and scripts
//! ```
//!
//! [`SaveWriter`] writes into a [`Draft`](crate::files::Draft), makes each file durable, then the manifest, then the
//! names, and only then renames the folder and makes that durable. So at each instant a folder with a
//! state's name is a complete state, whatever was interrupted, and [`latest_complete`] still takes none
//! without checking every byte. [`keep_last`] removes old ones by renaming them first.
//!
//! Names of states end in a number, `step-000010`, which orders them. One process writes at a time.

mod digest;
mod find;
mod manifest;
mod write;

pub use digest::{Digest, Digester};
pub use find::{Found, Saved, SavedReader, Skipped, is_state, latest_complete, verify};
pub use manifest::FileEntry;
pub use write::{SaveFile, SaveWriter, keep_last, remove_newer, rename_durably, write_atomic};

use std::path::PathBuf;

use crate::files::FilesError;

/// The file that lists the others.
pub const MANIFEST: &str = "manifest.json";
/// The file beside the states that names the newest.
pub const LATEST: &str = "LATEST";

/// The pieces in which files are written and read, in bytes.
const BUFFER: usize = 1 << 20;

/// What can go wrong with saved states.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// A file operation failed.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// A state's name must be letters, digits, `-`, `_` or `.`, then `-` and a number.
    #[error("`{0}` is no name for a saved state; expected one like step-000010")]
    StateName(String),
    /// A file's name must be plain: printable ASCII without separators.
    #[error("`{0}` is no name for a file of a saved state, or was used twice")]
    FileName(String),
    /// There is a complete state of this name. `LATEST` has been brought up to date.
    #[error("{} is saved already", .0.display())]
    AlreadySaved(PathBuf),
    /// The manifest would be above 16 MiB.
    #[error("a saved state of {0} files is too large to list")]
    TooManyFiles(usize),
    /// A file of the state was begun, but not closed.
    #[error("`{0}` was not written to its end")]
    Unclosed(String),
    /// The manifest is missing: the state was never finished, or comes from elsewhere.
    #[error("{} is missing", .0.display())]
    NoManifest(PathBuf),
    /// The manifest is not as it was written.
    #[error("{} is damaged: {problem}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The manifest is in a format of another version of this program.
    #[error("{} has format version {version}; this program reads version 1", path.display())]
    Version {
        /// The manifest.
        path: PathBuf,
        /// The version found.
        version: u64,
    },
    /// A file of the state is missing.
    #[error("{} is missing", .0.display())]
    Missing(PathBuf),
    /// A file of the state does not have the size that it was written with.
    #[error("{} is damaged: {found} bytes instead of {expected}", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// Its size in bytes as written.
        expected: u64,
        /// Its size in bytes now.
        found: u64,
    },
    /// A file of the state does not have the contents that it was written with.
    #[error("{} is damaged: its contents have changed since it was written", .0.display())]
    Hash(PathBuf),
}

/// The number that ends a state's name; none for other names.
fn number(name: &str) -> Option<u64> {
    let (front, digits) = name.rsplit_once('-')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fits =
        (1..=100).contains(&front.len()) && !front.starts_with('.') && front.chars().all(plain);
    (fits && digits.chars().all(|c| c.is_ascii_digit())).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests;
