//! Where a path leads.

use std::path::{Path, PathBuf};

/// A path without symbolic links, as far as it is there.
pub(crate) fn real(path: &Path) -> PathBuf {
    // An empty path, or a folder of this process that is gone: nothing is known of it.
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = whole
        .ancestors()
        .find_map(|part| Some((part, part.canonicalize().ok()?)));
    match there {
        Some((part, real)) => real.join(whole.strip_prefix(part).unwrap_or(Path::new(""))),
        None => whole,
    }
}
