//! What went wrong, as users see it, and the exit codes.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};

use serde_json::{Value, json};

use super::source_lines::{shortened, without_lines};

/// The table of exit codes, for `--help`.
pub const EXIT_CODES: &str = "Exit codes:
  0         done
  1         a bug in this program
  2         wrong usage, or an unsupported model or setting
  3         the memory budget is below the minimum
  4         a file or data cannot be read or written, or is damaged
  5         the loss became NaN or infinite
  129, 130, 143
            stopped by SIGHUP, SIGINT or SIGTERM. The state was saved, unless the signal came twice";

/// Why the program ends without having done what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// A mistake in the program itself.
    Internal = 1,
    /// Wrong usage, or a model or setting that is not possible.
    Usage = 2,
    /// The memory budget is below the least that would do.
    Budget = 3,
    /// A file or data cannot be read or written, or is damaged.
    Files = 4,
    /// The loss became infinite or not a number.
    NonFinite = 5,
}

/// What went wrong, and what the user can do about it.
#[derive(Debug)]
pub struct Failure {
    code: Code,
    id: Cow<'static, str>,
    error: Box<dyn Error + Send + Sync>,
    hints: Vec<String>,
}

impl Failure {
    /// A failure for that reason.
    pub fn new(code: Code, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let id = match code {
            Code::Internal => "HW1001",
            Code::Usage => "HW1002",
            Code::Budget => "HW1003",
            Code::Files => "HW1004",
            Code::NonFinite => "HW1005",
        };
        Self {
            code,
            id: id.into(),
            error: error.into(),
            hints: Vec::new(),
        }
    }

    /// Gives it a code of its own, one of `ERRORS.md`.
    #[must_use]
    pub fn id(mut self, id: impl Into<Cow<'static, str>>) -> Self {
        self.id = id.into();
        self
    }

    /// Wrong usage.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message.into())
    }

    /// What the system does not let this program do: its environment is at fault, not the program.
    pub fn system(what: &str, error: &io::Error) -> Self {
        let message = format!("the system does not let this program {what}: {error}");
        let failure = Self::new(Code::Files, message);
        match (error.kind(), error.raw_os_error()) {
            // Too many open files: ENFILE and EMFILE.
            (_, Some(23 | 24)) => failure.hint("allow it more open files: `ulimit -n 1024`"),
            (ErrorKind::NotFound, _) => failure.hint("it needs /proc and /dev: mount them"),
            (ErrorKind::OutOfMemory | ErrorKind::WouldBlock, _) => failure.hint(
                "allow it more processes and memory (`ulimit -u`, `ulimit -v`), or --threads 1",
            ),
            _ => failure,
        }
    }

    /// What a process of this program ended with, and said.
    pub fn of_process(code: Option<i32>, said: &str) -> Self {
        let codes = [Code::Usage, Code::Budget, Code::Files, Code::NonFinite];
        let known = |candidate: &Code| code == Some(*candidate as i32);
        let code = codes.into_iter().find(known).unwrap_or(Code::Internal);
        let mut lines: Vec<_> = said.lines().collect();
        let hints = lines.iter().rposition(|line| !line.starts_with("hint: "));
        let hints = lines.split_off(hints.map_or(0, |last| last + 1));
        let said = lines.join("\n");
        let told = said
            .strip_prefix("error[")
            .and_then(|told| told.split_once("]: "));
        let (id, said) = match told {
            Some((id, said)) => (Some(id.to_owned()), said),
            None => (None, said.strip_prefix("error: ").unwrap_or(&said)),
        };
        let said = match said {
            "" => "a process of this program was stopped",
            said => said,
        };
        let failure = hints
            .iter()
            .fold(Self::new(code, said.to_owned()), |failure, hint| {
                failure.hint(hint.trim_start_matches("hint: "))
            });
        match id {
            Some(id) => failure.id(id),
            None => failure,
        }
    }

    /// Adds something that the user can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds several.
    #[must_use]
    pub fn hints(mut self, hints: impl IntoIterator<Item = String>) -> Self {
        self.hints.extend(hints);
        self
    }

    /// Changes what went wrong, if that is an error of this type.
    #[must_use]
    pub(crate) fn change<E: Error + 'static>(mut self, change: impl FnOnce(&mut E)) -> Self {
        if let Some(error) = self.error.downcast_mut() {
            change(error);
        }
        self
    }

    /// Says in which step it happened.
    #[must_use]
    pub fn at_step(mut self, step: u64) -> Self {
        self.error = format!("step {step}: {}", self.error).into();
        self
    }

    /// Whether it is of memory that was not enough for what was to be computed.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.id == "HW0301"
    }

    /// Whether it is of a disk without space for a file.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.id == "HW1010"
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.code as u8
    }

    /// What happened and its causes, a line each. Places in the program's source are for whoever mends it: they are
    /// left out but for its own mistakes.
    pub(crate) fn message(&self) -> String {
        let message = self.whole_message();
        if self.code == Code::Internal {
            return message;
        }
        shortened(&without_lines(&message).0)
    }

    fn shown_hints(&self) -> Vec<String> {
        self.hints.iter().map(|hint| shortened(hint)).collect()
    }

    fn whole_message(&self) -> String {
        let mut message = self.error.to_string();
        let mut said = message.clone();
        let mut source = self.error.source();
        while let Some(cause) = source {
            // Most errors here tell their cause themselves.
            let text = cause.to_string();
            if !said.contains(&text) {
                message = format!("{message}\n  because: {text}");
                said = text;
            }
            source = cause.source();
        }
        message
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        json!({"error": {
            "code": self.id,
            "exit_code": self.code(),
            "message": self.message(),
            "hints": self.shown_hints(),
        }})
    }
}

impl fmt::Display for Failure {
    /// `error[CODE]:` with what happened, its causes, and a `hint:` for each thing to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.id, self.message())?;
        self.shown_hints()
            .iter()
            .try_for_each(|hint| write!(f, "\nhint: {hint}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[derive(Debug, thiserror::Error)]
    #[error("the step failed")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn causes_and_hints_have_their_lines() {
        let failure = Failure::new(Code::Internal, Outer(std::io::Error::other("no power")))
            .hint("plug it in")
            .hint("or wait");
        assert_eq!(
            failure.to_string(),
            "error[HW1001]: the step failed\n  because: no power\nhint: plug it in\nhint: or wait"
        );
        assert_eq!(failure.code(), 1);
    }

    /// The codes in a text, each as often as it stands there.
    fn codes(text: &str) -> Vec<String> {
        let starts = text.match_indices("HW1").map(|(at, _)| &text[at..]);
        starts
            .filter_map(|code| code.get(..6).map(str::to_owned))
            .collect()
    }

    #[test]
    fn every_code_is_documented_once() {
        let mut used = BTreeSet::new();
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.to_string_lossy().ends_with("tests.rs") {
                    let text = std::fs::read_to_string(path).unwrap();
                    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                    used.extend(codes(code));
                }
            }
        }
        assert!(used.len() > 15);
        let documented = codes(include_str!("../../../../ERRORS.md"));
        let once: BTreeSet<String> = documented.iter().cloned().collect();
        assert_eq!(
            once.len(),
            documented.len(),
            "a code stands twice: {documented:?}"
        );
        assert_eq!(once, used);
    }

    #[test]
    fn what_was_said_is_not_said_again() {
        let files = highwater_memory::DiskFiles;
        let missing = highwater_memory::Files::open(&files, "/no/such/file".as_ref());
        let failure = Failure::from(missing.unwrap_err());
        assert_eq!(failure.code(), 4);
        assert_eq!(failure.to_string().matches("No such file").count(), 1);
    }
}
