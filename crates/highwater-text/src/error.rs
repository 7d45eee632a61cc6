//! What can be wrong with text to learn from.

use std::fmt;
use std::path::PathBuf;

use highwater_memory::FilesError;

use crate::{DataError, TokenizerError};

/// Where a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// Where in it.
    pub position: Position,
}

impl Place {
    /// A file as a whole.
    pub fn of(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            position: Position::Whole,
        }
    }
}

/// Where in a file, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// All of it.
    Whole,
    /// A line.
    Line(u64),
    /// A line and a column, in bytes.
    Column(u64, u64),
    /// An element of a list.
    Element(u64),
    /// A row of a table.
    Row(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.position {
            Position::Whole => write!(f, "{path}"),
            Position::Line(line) => write!(f, "{path}, line {line}"),
            Position::Column(line, column) => write!(f, "{path}, line {line}, column {column}"),
            Position::Element(element) => write!(f, "{path}, element {element}"),
            Position::Row(row) => write!(f, "{path}, row {row}"),
        }
    }
}

/// What can be wrong with text to learn from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file cannot be read.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The tokenizer fails.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Rows cannot be written.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Something of a file is not what it should be.
    #[error("{place}: {problem}")]
    Bad {
        /// Where.
        place: Place,
        /// What is wrong, and what was expected.
        problem: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A chat template cannot be used.
    #[error("{source_name}: {problem}")]
    Template {
        /// The file or the name of it.
        source_name: String,
        /// What is wrong.
        problem: String,
        /// What to do about it.
        hint: Option<String>,
    },
}

impl TextError {
    /// Something that is wrong at a place.
    pub fn bad(place: Place, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Self::Bad {
            place,
            problem,
            hint: None,
        }
    }

    /// The same, of a record: what does not name a place gets one.
    #[must_use]
    pub fn at(self, place: &Place) -> Self {
        let problem = match &self {
            Self::Tokenizer(error) => error.to_string(),
            Self::Template {
                source_name,
                problem,
                ..
            } => format!("{problem} ({source_name})"),
            _ => return self,
        };
        Self::Bad {
            place: place.clone(),
            problem,
            hint: self.hint().map(str::to_owned),
        }
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn hinted(self, text: impl Into<String>) -> Self {
        match self {
            Self::Bad { place, problem, .. } => Self::Bad {
                place,
                problem,
                hint: Some(text.into()),
            },
            Self::Template {
                source_name,
                problem,
                ..
            } => Self::Template {
                source_name,
                problem,
                hint: Some(text.into()),
            },
            other => other,
        }
    }

    /// What to do about it, where that can be said.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Bad { hint, .. } | Self::Template { hint, .. } => hint.as_deref(),
            _ => None,
        }
    }
}
