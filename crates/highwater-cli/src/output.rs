//! The one place that writes to the terminal.

use std::io::{IsTerminal, Write};

/// What was asked for: results, for people or other programs to read.
pub fn result(text: &str) {
    // A reader that went away is no failure of the program's.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// What happens meanwhile.
pub fn news(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Whether news goes to a person at a terminal.
pub fn is_terminal() -> bool {
    std::io::stderr().is_terminal()
}
