//! Where a line of a user's program is.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::{fmt, panic};

thread_local! {
    static AT: Cell<Option<Location>> = const { Cell::new(None) };
}

/// A file, a line and a column of the program that calls the library: of a Rust program, or of another
/// whose front end says where it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Location {
    file: &'static str,
    line: u32,
    column: u32,
}

impl Location {
    /// Where the function that calls this was called, if it is `#[track_caller]`; else where it calls. What
    /// [`Location::at`] says goes before both.
    #[track_caller]
    #[must_use]
    pub fn caller() -> Self {
        let compiled = panic::Location::caller();
        AT.get().unwrap_or_else(|| compiled.into())
    }

    /// Runs `f` as if all that it calls were called from here: for front ends that are no Rust program, and
    /// for libraries whose users should be told of their own lines. The outermost counts.
    pub fn at<R>(self, f: impl FnOnce() -> R) -> R {
        struct Restore(Option<Location>);
        impl Drop for Restore {
            fn drop(&mut self) {
                AT.set(self.0);
            }
        }
        let before = AT.get();
        let _restore = Restore(before);
        AT.set(before.or(Some(self)));
        f()
    }

    /// A line of a file, lines and columns counted from 1. A column of 0 says that nobody knows it.
    ///
    /// The name of each file is kept once for as long as the process lives: they are few, and every node
    /// carries one.
    #[must_use]
    pub fn new(file: &str, line: u32, column: u32) -> Self {
        static FILES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        if !files.contains(file) {
            files.insert(Box::leak(file.into()));
        }
        // It is there now.
        let file = files.get(file).copied().unwrap_or_default();
        Self { file, line, column }
    }

    /// The file, as the compiler or the front end names it.
    #[must_use]
    pub fn file(self) -> &'static str {
        self.file
    }

    /// The line, from 1.
    #[must_use]
    pub fn line(self) -> u32 {
        self.line
    }

    /// The column, from 1; 0 if nobody knows it.
    #[must_use]
    pub fn column(self) -> u32 {
        self.column
    }
}

impl From<&panic::Location<'static>> for Location {
    fn from(location: &panic::Location<'static>) -> Self {
        Self {
            file: location.file(),
            line: location.line(),
            column: location.column(),
        }
    }
}

impl fmt::Display for Location {
    /// `file:line:column`, as compilers write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        match self.column {
            0 => Ok(()),
            column => write!(f, ":{column}"),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn called() -> Location {
        Location::caller()
    }

    #[test]
    fn callers_are_found_and_others_can_say_where_they_are() {
        let (found, line) = (called(), line!());
        assert_eq!((found.file(), found.line()), (file!(), line));
        assert_eq!(
            found.to_string(),
            format!("{}:{line}:{}", file!(), found.column())
        );
        assert_eq!(found, Location::new(file!(), line, found.column()));
        assert_ne!(found, called());
        let far = || Location::new("far.py", 3, 0);
        let closure = far().at(|| (called(), Location::new("near.py", 1, 0).at(called)));
        assert_eq!(closure, (far(), far()));
        assert_eq!(called().file(), file!());
        let python = Location::new("train.py", 12, 0);
        assert_eq!(python.to_string(), "train.py:12");
        let again = Location::new(&String::from("train.py"), 12, 0);
        assert!(python == again && std::ptr::eq(python.file(), again.file()));
    }
}
