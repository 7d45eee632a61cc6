//! Small files in the user's cache, each all there or as if it were missing.

use std::path::{Path, PathBuf};

use highwater_memory::saved::write_atomic;
use highwater_memory::{Files, FilesError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest file that is read, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The folder of this program in the user's cache. Where files lie is the one thing that is asked of
/// the environment: the desktop's convention has it there.
pub(crate) fn folder() -> Option<PathBuf> {
    let stated = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = stated
        .filter(|path| path.is_absolute())
        .or_else(|| Some(std::env::home_dir()?.join(".cache")))?;
    Some(cache.join("highwater"))
}

/// What a text has of letters and digits, for the name of a file.
pub(crate) fn words(text: &str) -> String {
    let text = text.to_lowercase();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.join("-").chars().take(100).collect()
}

/// What a file holds, if it is there and whole.
pub(crate) fn read<T: DeserializeOwned>(files: &dyn Files, path: &Path) -> Option<T> {
    let mut file = files.open(path).ok()?;
    let bytes = Some(file.bytes()).filter(|&bytes| bytes <= BYTES_MAX)?;
    let mut text = vec![0; bytes as usize];
    file.read_exact_at(0, &mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Writes a file: all of it or nothing.
///
/// # Errors
/// When a file operation fails.
pub(crate) fn write<T: Serialize>(
    files: &dyn Files,
    folder: &Path,
    name: &str,
    value: &T,
) -> Result<(), FilesError> {
    // Numbers and names always have a JSON form.
    let text = serde_json::to_vec_pretty(value).unwrap_or_default();
    files.create_dir_all(folder)?;
    write_atomic(files, &folder.join(name), &text)
}

/// Where rates come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The cache.
    Cached,
    /// Measured just now.
    Measured,
    /// The program's constants, as measuring was not possible.
    Constants,
}
