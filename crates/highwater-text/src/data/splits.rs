//! Which part of a data set a file is: one to train on, one to measure the loss on, or one for tests. Names say so, as
//! mlx-lm, nanoGPT, llm.c and Hugging Face's datasets have them: `train.jsonl`, `val.bin`,
//! `fineweb_train_000001.bin`, `validation-00000-of-00002.parquet`, `test/0.csv`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A part of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// To train on.
    Train,
    /// To measure the loss on while a model trains.
    HeldOut,
    /// For a test at the end.
    Test,
}

/// What data is read for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reads {
    /// To train on one part and to hold out another.
    #[default]
    Training,
    /// To measure the loss: on the part for tests, else on the one that is held out, else on all.
    Evaluation,
}

/// The words that say which part a file is.
const WORDS: [(&str, Split); 12] = [
    ("train", Split::Train),
    ("training", Split::Train),
    ("valid", Split::HeldOut),
    ("validation", Split::HeldOut),
    ("val", Split::HeldOut),
    ("dev", Split::HeldOut),
    ("eval", Split::HeldOut),
    ("evaluation", Split::HeldOut),
    ("heldout", Split::HeldOut),
    ("holdout", Split::HeldOut),
    ("test", Split::Test),
    ("testing", Split::Test),
];
/// How many names a list of files has at most, for people.
const NAMED: usize = 3;

/// A file, and its length.
pub type Found = (PathBuf, u64);

/// The files of a data set, by what becomes of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Files that are trained on, or all that are read for an evaluation.
    pub train: Vec<Found>,
    /// Files that the loss is measured on.
    pub held_out: Vec<Found>,
    /// Files that are not read.
    pub unread: Vec<PathBuf>,
}

/// The part that a name says: of a file, or of a folder. A name that says two says none.
fn split_of_name(name: &str) -> Option<Split> {
    let name = name.to_ascii_lowercase();
    let name = name
        .replace("held_out", "heldout")
        .replace("held-out", "heldout");
    let words = name.split(|c: char| !c.is_ascii_alphabetic());
    let said = words.filter_map(|word| WORDS.iter().find(|known| known.0 == word));
    let mut said = said.map(|known| known.1);
    let first = said.next()?;
    said.all(|other| other == first).then_some(first)
}

/// The part that a file of a folder is, by its own name or by that of the nearest folder that says one.
pub fn split_of(root: &Path, path: &Path) -> Option<Split> {
    let within = path.strip_prefix(root).unwrap_or(path);
    let names = within.iter().rev().map(|name| name.to_string_lossy());
    names.into_iter().find_map(|name| split_of_name(&name))
}

/// Whether a name is nothing but the word for a part: `valid.txt`.
pub(super) fn is_plain(path: &Path) -> bool {
    let stem = path
        .file_stem()
        .map(|stem| stem.to_string_lossy().to_ascii_lowercase());
    stem.is_some_and(|stem| WORDS.iter().any(|known| known.0 == stem))
}

impl Parts {
    /// Divides the files of a folder, each with the part that its name says. Where a name says `train`, files whose
    /// names say nothing are left unread, as Hugging Face's datasets leaves them.
    pub fn of(found: Vec<(Found, Option<Split>)>, unread: Vec<PathBuf>, reads: Reads) -> Self {
        let has_train = found.iter().any(|(_, split)| *split == Some(Split::Train));
        let [mut train, mut held_out, mut test] = [const { Vec::new() }; 3];
        let mut parts = Self {
            unread,
            ..Self::default()
        };
        for (file, split) in found {
            match split {
                Some(Split::HeldOut) => held_out.push(file),
                Some(Split::Test) => test.push(file),
                None if has_train => parts.unread.push(file.0),
                Some(Split::Train) | None => train.push(file),
            }
        }
        let mut leave = |files: Vec<Found>| parts.unread.extend(files.into_iter().map(|it| it.0));
        match reads {
            Reads::Training => {
                leave(test);
                (parts.train, parts.held_out) = (train, held_out);
            }
            Reads::Evaluation => {
                let mut all = [test, held_out, train].into_iter();
                let read = all.find(|part| !part.is_empty());
                all.for_each(leave);
                parts.train = read.unwrap_or_default();
            }
        }
        parts.unread.sort();
        parts
    }

    /// One file.
    pub fn one(path: &Path, bytes: u64) -> Self {
        Self {
            train: vec![(path.to_owned(), bytes)],
            ..Self::default()
        }
    }

    /// Measures the loss on what `other` reads, and not on what names say.
    pub fn hold_out(&mut self, other: Self) {
        let unused = std::mem::replace(&mut self.held_out, other.train);
        let unused = unused.into_iter().map(|file| file.0);
        self.unread.extend(unused.chain(other.unread));
        let read: BTreeSet<PathBuf> = self.read().map(|file| file.0.clone()).collect();
        self.unread.retain(|path| !read.contains(path));
        self.unread.sort();
        self.unread.dedup();
    }

    fn read(&self) -> impl Iterator<Item = &Found> {
        self.train.iter().chain(&self.held_out)
    }

    /// Bytes of all files that are read.
    pub fn bytes(&self) -> u64 {
        self.read().map(|file| file.1).sum()
    }

    /// What becomes of which files, for people; none where all of them are trained on.
    pub fn describe(&self, root: &Path, reads: Reads) -> Option<String> {
        if self.held_out.is_empty() && self.unread.is_empty() {
            return None;
        }
        let list = |files: &[Found]| {
            let paths: Vec<_> = files.iter().map(|file| file.0.as_path()).collect();
            names(root, &paths)
        };
        let train = list(&self.train);
        let mut text = match reads {
            Reads::Training => format!("data: {train} to train on"),
            Reads::Evaluation => format!("data: {train}"),
        };
        if !self.held_out.is_empty() {
            text.extend(["; ", &list(&self.held_out), " held out"]);
            let train: BTreeSet<&Found> = self.train.iter().collect();
            let both = self.held_out.iter().filter(|file| train.contains(file));
            let both: Vec<Found> = both.cloned().collect();
            if !both.is_empty() {
                text.extend([" (trained on too: ", &list(&both), ")"]);
            }
        }
        if !self.unread.is_empty() {
            let paths: Vec<_> = self.unread.iter().map(PathBuf::as_path).collect();
            text.extend(["; not read: ", &names(root, &paths)]);
        }
        Some(text)
    }

    /// That names leave nothing to train on: the files that there are.
    pub fn only_others(&self, root: &Path) -> Option<String> {
        let others = self.held_out.iter().map(|file| file.0.as_path());
        let others: Vec<_> = others
            .chain(self.unread.iter().map(PathBuf::as_path))
            .collect();
        let is_none = self.train.is_empty() && !others.is_empty();
        is_none.then(|| {
            let others = names(root, &others);
            format!("no file to train on, by their names: {others}")
        })
    }
}

/// Some files by their names in a folder, for people.
fn names(root: &Path, files: &[&Path]) -> String {
    let name = |path: &&Path| {
        let within = path
            .strip_prefix(root)
            .ok()
            .filter(|name| !name.as_os_str().is_empty());
        within.unwrap_or(path).display().to_string()
    };
    let named: Vec<_> = files.iter().take(NAMED).map(name).collect();
    let named = named.join(", ");
    match files.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_which_part_a_file_is() {
        use Split::{HeldOut, Test, Train};
        for (name, split) in [
            ("train.jsonl", Some(Train)),
            ("train-00000-of-00002.parquet", Some(Train)),
            ("tiny_shakespeare_train.bin", Some(Train)),
            ("fineweb_train_000001.bin", Some(Train)),
            ("wiki.train.raw", Some(Train)),
            ("training_data.csv", Some(Train)),
            ("TRAIN.JSON", Some(Train)),
            ("train1.csv", Some(Train)),
            ("data/train_sft-00000-of-00003.parquet", Some(Train)),
            ("valid.jsonl", Some(HeldOut)),
            ("val.bin", Some(HeldOut)),
            ("dev.tsv", Some(HeldOut)),
            ("my-eval.json", Some(HeldOut)),
            ("held_out.txt", Some(HeldOut)),
            ("validation_matched.parquet", Some(HeldOut)),
            ("test.jsonl.gz", Some(Test)),
            ("test/0000.parquet", Some(Test)),
            ("val/part-1.txt", Some(HeldOut)),
            ("train/part-1.txt", Some(Train)),
            ("part-1.txt", None),
            ("trainer.jsonl", None),
            ("latest.jsonl", None),
            ("value.csv", None),
            ("train_test.csv", None),
            ("devices.json", None),
        ] {
            let path = Path::new("/data").join(name);
            assert_eq!(split_of(Path::new("/data"), &path), split, "{name}");
        }
        // The folder itself says nothing.
        let (root, path) = (Path::new("/test"), Path::new("/test/a.jsonl"));
        assert_eq!(split_of(root, path), None);
    }

    #[test]
    fn what_is_named_to_be_held_out_is_read() {
        let root = Path::new("/d");
        let parts = |names: &[&str], reads| {
            let found = names.iter().map(|name| {
                let path = root.join(name);
                let split = split_of(root, &path);
                ((path, 1), split)
            });
            Parts::of(found.collect(), Vec::new(), reads)
        };
        let told = |other: &str| {
            let mut all = parts(&["a.csv", "valid.csv", "test.csv"], Reads::Training);
            all.hold_out(parts(&[other], Reads::Evaluation));
            all.describe(root, Reads::Training).unwrap()
        };
        assert_eq!(
            told("test.csv"),
            "data: a.csv to train on; test.csv held out; not read: valid.csv"
        );
        assert_eq!(
            told("a.csv"),
            "data: a.csv to train on; a.csv held out (trained on too: a.csv); not read: test.csv, valid.csv"
        );
    }

    #[test]
    fn an_evaluation_reads_the_part_that_was_never_trained_on() {
        let parts = |names: &[&str], reads| {
            let root = Path::new("/d");
            let found = names.iter().map(|name| {
                let path = root.join(name);
                let split = split_of(root, &path);
                ((path, 1), split)
            });
            Parts::of(found.collect(), Vec::new(), reads).describe(root, reads)
        };
        let all = ["train.csv", "valid.csv", "test.csv", "more.csv"];
        let told = |text: &str| Some(text.to_owned());
        assert_eq!(
            parts(&all, Reads::Training),
            told("data: train.csv to train on; valid.csv held out; not read: more.csv, test.csv")
        );
        assert_eq!(
            parts(&all, Reads::Evaluation),
            told("data: test.csv; not read: more.csv, train.csv, valid.csv")
        );
        assert_eq!(
            parts(&all[..2], Reads::Evaluation),
            told("data: valid.csv; not read: train.csv")
        );
        assert_eq!(parts(&["a.csv", "b.csv"], Reads::Evaluation), None);
        assert_eq!(
            parts(&["a.csv", "val.csv"], Reads::Training),
            told("data: a.csv to train on; val.csv held out")
        );
    }
}
