//! Why a template cannot be compiled or rendered.

/// What went wrong, and in which line.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) kind: ErrorKind,
    pub(crate) problem: String,
    pub(crate) line: Option<u32>,
}

/// Who is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// Jinja2 raises an exception here, too.
    Raised,
    /// Jinja2 has an answer that this program does not have.
    Unsupported,
    /// The template does more than it may.
    TooMuch,
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An exception of Jinja2's or Python's.
    pub(crate) fn raised(problem: impl Into<String>) -> Self {
        Self::new(ErrorKind::Raised, problem)
    }

    /// What this program does not do: better refused than done otherwise.
    pub(crate) fn unsupported(what: impl std::fmt::Display) -> Self {
        Self::new(ErrorKind::Unsupported, format!("{what} is not supported"))
    }

    pub(crate) fn too_much(problem: impl Into<String>) -> Self {
        Self::new(ErrorKind::TooMuch, problem)
    }

    fn new(kind: ErrorKind, problem: impl Into<String>) -> Self {
        Self {
            kind,
            problem: problem.into(),
            line: None,
        }
    }

    /// The same with a line, where it has none.
    #[must_use]
    pub(crate) fn at(mut self, line: u32) -> Self {
        self.line.get_or_insert(line);
        self
    }
}
