//! The program, started and waited for.

use std::path::Path;

use crate::program::command;

/// Starts the program in a folder; gives its exit code, results and news.
pub(crate) fn highwater(dir: &Path, line: &str) -> (i32, String, String) {
    words(dir, line.split_whitespace())
}

/// The same with words that may have spaces.
pub(crate) fn words<'a>(
    dir: &Path,
    words: impl IntoIterator<Item = &'a str>,
) -> (i32, String, String) {
    let output = command(dir, words).output().expect("a start");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let code = output.status.code().expect("no signal");
    (code, text(output.stdout), text(output.stderr))
}
