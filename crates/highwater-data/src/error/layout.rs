//! Layouts that cannot be read, or could be read in two ways.

use crate::endings::ENDINGS;
use std::path::PathBuf;

/// Names of classes that a message lists.
const LISTED: usize = 5;

/// What is wrong with how images lie in folders.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// There is no folder of a class.
    #[error("{}: no folders of images{}", root.display(), beside(*images))]
    NoClasses {
        /// Where.
        root: PathBuf,
        /// Images that lie there themselves.
        images: usize,
    },
    /// Folders of classes have no image.
    #[error("{}: no image of {} (endings that are read: {})", root.display(), listed(classes), ENDINGS.join(", "))]
    Empty {
        /// Where.
        root: PathBuf,
        /// The classes.
        classes: Vec<String>,
    },
    /// A link leads nowhere.
    #[error("{}: a broken link", path.display())]
    Dangling {
        /// The link.
        path: PathBuf,
    },
    /// A link leads back to a folder that it lies in.
    #[error("{}: a link to a folder that contains it (a loop)", path.display())]
    Cycle {
        /// The link.
        path: PathBuf,
    },
    /// The name of a class is not UTF-8, as in a `config.json` it must be.
    #[error("{}: the name of a class that is not UTF-8", path.display())]
    NotUtf8 {
        /// The folder.
        path: PathBuf,
    },
    /// There are splits, and none of them to train on.
    #[error("{}: {} and no `train`", root.display(), listed(found))]
    NoTrain {
        /// Where.
        root: PathBuf,
        /// The splits.
        found: Vec<String>,
    },
    /// Two folders are the same split by their names.
    #[error("{}: `{first}` and `{second}` are one split under two names", root.display())]
    Twice {
        /// Where.
        root: PathBuf,
        /// One of them.
        first: String,
        /// The other.
        second: String,
    },
    /// Some folders are splits by their names and others classes.
    #[error("{}: `{split}` is a split by its name and its folders, and `{class}` is a class", root.display())]
    Mixed {
        /// Where.
        root: PathBuf,
        /// The split.
        split: String,
        /// The class.
        class: String,
    },
    /// A split has images that are in no folder of a class.
    #[error("{}: no folder for each class in this split{}", split.display(), beside(*images))]
    Unlabelled {
        /// The split.
        split: PathBuf,
        /// Images that lie there themselves.
        images: usize,
    },
    /// A held-out split has a class that is not trained on.
    #[error("{}: a class that `train` does not have", class.display())]
    OtherClass {
        /// The folder.
        class: PathBuf,
    },
    /// The splits are below the classes.
    #[error("{}: splits below a class", class.display())]
    SplitsInClass {
        /// The class.
        class: PathBuf,
    },
    /// All classes are one folder further down.
    #[error("{}: one folder, `{inner}`, which has folders and no images", root.display())]
    Wrapped {
        /// Where.
        root: PathBuf,
        /// The folder.
        inner: String,
    },
}

impl LayoutError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NoClasses { .. } | Self::Unlabelled { .. } => {
                "put the images of each class into a folder with the name of the class".to_owned()
            }
            Self::Empty { .. } => "add images, or remove the folder".to_owned(),
            Self::Dangling { .. } | Self::Cycle { .. } => {
                "correct the link or remove it".to_owned()
            }
            Self::NotUtf8 { .. } => "rename the folder".to_owned(),
            Self::NoTrain { .. } => {
                "call the folder to train on `train`, or name it alone".to_owned()
            }
            Self::Twice { .. } => "merge them, or move one of them away".to_owned(),
            Self::Mixed { root, split, .. } => format!(
                "name {} to train on that alone; if `{split}` is a class, rename it",
                root.join(split).display()
            ),
            Self::OtherClass { .. } => {
                "rename it as in `train`, add it there, or move it away".to_owned()
            }
            Self::SplitsInClass { .. } => {
                "put the splits on top: train/CLASS and val/CLASS".to_owned()
            }
            Self::Wrapped { root, inner } => format!("name {}", root.join(inner).display()),
        }
    }
}

/// Names, the first of many.
fn listed(names: &[String]) -> String {
    let mut list: Vec<String> = names
        .iter()
        .take(LISTED)
        .map(|name| format!("`{name}`"))
        .collect();
    if let Some(more) = names.len().checked_sub(LISTED).filter(|&more| more > 0) {
        list.push(format!("{more} more"));
    }
    match list.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => list.concat(),
    }
}

fn beside(images: usize) -> String {
    match images {
        0 => String::new(),
        1 => ": 1 image lies there itself".to_owned(),
        images => format!(": {images} images lie there themselves"),
    }
}
