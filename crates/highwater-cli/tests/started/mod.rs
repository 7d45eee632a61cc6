//! The program, started and waited for.

use std::path::Path;

use assert_cmd::Command;

use crate::cache;

/// Starts the program in a folder; gives its exit code, results and news.
pub(crate) fn highwater(dir: &Path, line: &str) -> (i32, String, String) {
    words(dir, line.split_whitespace())
}

/// The same with words that may have spaces.
pub(crate) fn words<'a>(
    dir: &Path,
    words: impl IntoIterator<Item = &'a str>,
) -> (i32, String, String) {
    let mut command = Command::cargo_bin("highwater").expect("the program");
    let output = command
        .current_dir(dir)
        .env("XDG_CACHE_HOME", cache::home())
        .args(words)
        .output()
        .expect("a start");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let code = output.status.code().expect("no signal");
    (code, text(output.stdout), text(output.stderr))
}
