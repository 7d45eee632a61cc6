//! What files hold, by the endings of their names.

use std::path::Path;

use super::Fault;
use crate::{Position, TextError};

/// How a file writes records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// A JSON object on each line.
    Lines,
    /// A JSON list of objects.
    Json,
    Csv,
    Tsv,
    Parquet,
    Text,
}

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrap {
    Gzip,
    Zstd,
}

impl Wrap {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "Zstandard",
        }
    }

    pub(super) const fn ending(self) -> &'static str {
        match self {
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
        }
    }
}

const FORMATS: [(&str, Format); 9] = [
    (".jsonl", Format::Lines),
    (".ndjson", Format::Lines),
    (".json", Format::Json),
    (".csv", Format::Csv),
    (".tsv", Format::Tsv),
    (".parquet", Format::Parquet),
    (".txt", Format::Text),
    (".text", Format::Text),
    (".md", Format::Text),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) format: Format,
    pub(super) wrap: Option<Wrap>,
}

impl Kind {
    /// What the ending says; none where it is not a known one. Capital letters make no difference.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let wraps = [Wrap::Gzip, Wrap::Zstd].into_iter();
        let mut wrapped = wraps.filter_map(|wrap| Some((name.strip_suffix(wrap.ending())?, wrap)));
        let (name, wrap) = match wrapped.next() {
            Some((inner, wrap)) => (inner, Some(wrap)),
            None => (name.as_str(), None),
        };
        // What is all ending is hidden.
        let is = |ending: &str| name.len() > ending.len() && name.ends_with(ending);
        let &(_, format) = FORMATS.iter().find(|(ending, _)| is(ending))?;
        Some(Self { format, wrap })
    }
}

/// Whether a path's ending says that it holds records, and not text or tokens alone.
pub fn is_record_file(path: &Path) -> bool {
    Kind::of(path).is_some_and(|kind| kind.format != Format::Text)
}

/// The endings that are known.
pub(super) fn known() -> String {
    let endings: Vec<&str> = FORMATS.iter().map(|&(ending, _)| ending).collect();
    format!(
        "known endings are {}, and each but .parquet may end in .gz or .zst after it",
        endings.join(", ")
    )
}

pub(super) fn unknown(path: &Path) -> TextError {
    Fault::new("the file's extension is not that of a supported format")
        .hint(known())
        .at(path, Position::Whole)
}
