//! The one place that writes to the terminal.

use std::io::{IsTerminal, Write};

/// What was asked for: results, for people or other programs to read.
pub fn result(text: &str) {
    // A reader that went away is no failure of the program's.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A part of a result, as it comes.
pub fn piece(text: &str) {
    let mut output = std::io::stdout();
    let _ = write!(output, "{text}").and_then(|()| output.flush());
}

/// What asks a person to say something.
pub fn prompt(text: &str) {
    let mut output = std::io::stderr();
    let _ = write!(output, "{text}").and_then(|()| output.flush());
}

/// What happens meanwhile.
pub fn news(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Whether news goes to a person at a terminal.
pub fn is_terminal() -> bool {
    std::io::stderr().is_terminal()
}
