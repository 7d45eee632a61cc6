//! What is wrong with a file, while it is not known yet where.

use std::io;
use std::path::Path;

use highwater_memory::FilesError;

use crate::{Place, Position, TextError};

/// What is wrong, and what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{problem}")]
pub(super) struct Fault {
    pub(super) problem: String,
    pub(super) hint: Option<String>,
}

impl Fault {
    pub(super) fn new(problem: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            hint: None,
        }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn at(self, path: &Path, position: Position) -> TextError {
        let place = Place {
            path: path.to_owned(),
            position,
        };
        let error = TextError::bad(place, self.problem);
        match self.hint {
            Some(hint) => error.hinted(hint),
            None => error,
        }
    }

    /// For places where only an error of input can be returned; [`lift`] finds it there.
    pub(super) fn io(self) -> io::Error {
        io::Error::other(self)
    }
}

/// The error behind one of input.
pub(super) fn lift(error: io::Error, path: &Path, position: Position) -> TextError {
    let error = match error.downcast::<FilesError>() {
        Ok(error) => return error.into(),
        Err(error) => error,
    };
    match error.downcast::<Fault>() {
        Ok(fault) => fault.at(path, position),
        Err(error) => {
            let fault = Fault::new(error.to_string());
            fault.hint("copy the file again").at(path, position)
        }
    }
}
