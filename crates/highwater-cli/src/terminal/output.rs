//! The one place that writes to the terminal.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use crate::error::{Code, Failure};

/// Why a part of the results is not where it was to go.
static LOST: Mutex<Option<io::Error>> = Mutex::new(None);

/// What was asked for: results, for people or other programs to read.
pub fn result(text: &str) {
    let mut output = io::stdout();
    note(writeln!(output, "{text}").and_then(|()| output.flush()));
}

/// A part of a result, as it comes.
pub fn piece(text: &str) {
    let mut output = io::stdout();
    note(write!(output, "{text}").and_then(|()| output.flush()));
}

/// Keeps the first error of writing results, for [`check`].
pub fn note(written: io::Result<()>) {
    match written {
        // A reader that went away has what it wanted.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let mut lost = LOST.lock().unwrap_or_else(PoisonError::into_inner);
            lost.get_or_insert(error);
        }
        _ => {}
    }
}

/// That all results so far were written.
///
/// # Errors
/// [`Failure`] if some were not, for another reason than that their reader went away.
pub fn check() -> Result<(), Failure> {
    let lost = LOST.lock().unwrap_or_else(PoisonError::into_inner).take();
    lost.map_or(Ok(()), |error| {
        let message = format!("cannot write to the standard output: {error}");
        Err(Failure::new(Code::Files, message))
    })
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
