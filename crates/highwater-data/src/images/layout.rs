//! How images lie in folders: which folders are classes, which are splits, and what is left out.

mod left_out;
mod walk;

pub use left_out::LeftOut;

use crate::error::{DataError, LayoutError};
use highwater_memory::Files;
use std::path::{Path, PathBuf};
use walk::{Folder, Walk};

/// An image file that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where it is; links are followed when it is read.
    pub path: PathBuf,
    /// Its class, by its place in [`Layout::classes`].
    pub class: usize,
    /// Its length.
    pub bytes: u64,
    /// When it was changed last, in nanoseconds since 1970.
    pub changed: Option<i128>,
    /// Why it cannot be a file of pixels, where that shows without opening it.
    pub problem: Option<&'static str>,
}

/// The images of a folder: a folder for each class, or such folders below `train/` and `val/`.
///
/// | folder | what it is |
/// |---|---|
/// | `train`, `training` | what is trained on |
/// | `val`, `valid`, `validation`, `dev`, `eval`, `evaluation` | held out: of the same classes, or some of them |
/// | `test`, `testing` | left unread |
///
/// Names of splits may be in upper case. As in torchvision and timm, links are followed, folders within a class belong
/// to it, and classes are sorted by name. Hidden files and folders (`.ipynb_checkpoints`, `._1.jpg`, `__MACOSX`) are
/// left out. A layout that could be read in two ways is refused.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// The classes, sorted by name.
    pub classes: Vec<String>,
    /// The images to train on, class by class.
    pub train: Vec<Found>,
    /// The folder of images to measure the loss on, and these, class by class; none where there is no such folder.
    pub held_out: Option<(String, Vec<Found>)>,
    /// What lies there besides.
    pub left_out: LeftOut,
}

/// What the name of a folder may say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Train,
    HeldOut,
    Test,
}

impl Role {
    fn of(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "train" | "training" => Some(Self::Train),
            "val" | "valid" | "validation" | "dev" | "eval" | "evaluation" => Some(Self::HeldOut),
            "test" | "testing" => Some(Self::Test),
            _ => None,
        }
    }
}

/// What the folders at the top are.
enum Top {
    Classes,
    /// A folder to train on.
    Splits(Folder),
}

impl Layout {
    /// Finds the images of a folder.
    ///
    /// # Errors
    /// [`DataError::Layout`] for a layout that is unknown, has no images, or could be meant in two ways;
    /// [`DataError::Files`] for a folder that cannot be read.
    pub fn find(files: &dyn Files, root: &Path) -> Result<Self, DataError> {
        let mut walk = Walk::new(files);
        let top = walk.top(root)?;
        let found = match Self::top(&mut walk, root, &top)? {
            Top::Classes => Self::of_classes(&mut walk, root, &top)?,
            Top::Splits(train) => Self::of_splits(&mut walk, root, &top, &train)?,
        };
        Ok(Self {
            left_out: walk.left_out,
            ..found
        })
    }

    /// Finds the images of a folder whose folders are classes, whatever they are called: as
    /// `torchvision.datasets.ImageFolder`.
    ///
    /// # Errors
    /// As [`Layout::find`].
    pub fn find_classes(files: &dyn Files, root: &Path) -> Result<Self, DataError> {
        let mut walk = Walk::new(files);
        let top = walk.top(root)?;
        let (classes, train) = walk.classes(root, &top)?;
        Ok(Self {
            classes,
            train,
            held_out: None,
            left_out: walk.left_out,
        })
    }

    /// The images to train on, then those held out.
    pub fn images(&self) -> impl Iterator<Item = &Found> {
        let held_out = self.held_out.iter().flat_map(|(_, images)| images);
        self.train.iter().chain(held_out)
    }

    /// Tells splits from classes.
    fn top(walk: &mut Walk<'_>, root: &Path, top: &Folder) -> Result<Top, DataError> {
        let roles: Vec<(&str, Role)> = top
            .folders
            .iter()
            .filter_map(|folder| Some((folder.name.as_str(), Role::of(&folder.name)?)))
            .collect();
        let of = |role| roles.iter().filter(move |(_, found)| *found == role);
        let others = || {
            top.folders
                .iter()
                .filter(|folder| Role::of(&folder.name).is_none())
        };
        let mut trains = of(Role::Train).map(|(name, _)| *name);
        let Some(train) = trains.next() else {
            if others().next().is_none() {
                let found = roles.iter().map(|(name, _)| (*name).to_owned()).collect();
                return Err(LayoutError::NoTrain {
                    root: root.to_owned(),
                    found,
                }
                .into());
            }
            // A split beside the classes that it is of.
            for (split, _) in &roles {
                let inside = walk.peek(&root.join(split))?;
                let is_class = |name: &String| others().any(|folder| folder.name == *name);
                if let Some(class) = inside.folders.into_iter().find(is_class) {
                    return Err(mixed(root, split, &class));
                }
            }
            return Ok(Top::Classes);
        };
        if let Some(second) = trains.next() {
            return Err(twice(root, train, second));
        }
        let inside = walk.peek(&root.join(train))?;
        let is_flat = inside.folders.is_empty();
        let beside: Vec<&str> = of(Role::HeldOut)
            .chain(of(Role::Test))
            .map(|(name, _)| *name)
            .collect();
        let Some(other) = others().next() else {
            return if is_flat {
                Err(unlabelled(root, train, inside.images))
            } else {
                walk.split(root, train).map(Top::Splits)
            };
        };
        let mut has_split = false;
        for split in &beside {
            has_split |= !walk.peek(&root.join(split))?.folders.is_empty();
        }
        match (is_flat, inside.images) {
            (true, images) if !beside.is_empty() => Err(unlabelled(root, train, images)),
            (false, _) if has_split => {
                walk.left_out
                    .folders
                    .extend(others().map(|folder| folder.name.clone()));
                walk.split(root, train).map(Top::Splits)
            }
            // `train` is what the images show.
            (true, _) | (false, 1..) => Ok(Top::Classes),
            (false, 0) => Err(mixed(root, train, &other.name)),
        }
    }

    /// A folder for each class.
    fn of_classes(walk: &mut Walk<'_>, root: &Path, top: &Folder) -> Result<Self, DataError> {
        for class in &top.folders {
            let inside = walk.peek(&class.path)?;
            let roles: Vec<Role> = inside
                .folders
                .iter()
                .filter_map(|name| Role::of(name))
                .collect();
            let has_train = roles.contains(&Role::Train);
            if has_train && roles.len() > 1 {
                return Err(LayoutError::SplitsInClass {
                    class: class.path.clone(),
                }
                .into());
            }
            let is_wrapper = inside.images == 0 && (has_train || inside.folders.len() > 1);
            if top.folders.len() == 1 && is_wrapper {
                return Err(LayoutError::Wrapped {
                    root: root.to_owned(),
                    inner: class.name.clone(),
                }
                .into());
            }
        }
        let (classes, train) = walk.classes(root, top)?;
        Ok(Self {
            classes,
            train,
            ..Self::default()
        })
    }

    /// A folder for each class below those of splits.
    fn of_splits(
        walk: &mut Walk<'_>,
        root: &Path,
        top: &Folder,
        train: &Folder,
    ) -> Result<Self, DataError> {
        let (classes, images) = walk.classes(&train.path, train)?;
        let mut held_out = None;
        for folder in &top.folders {
            match Role::of(&folder.name) {
                Some(Role::HeldOut) => match &held_out {
                    None => {
                        let images = walk.held_out(&folder.path, &classes)?;
                        held_out = Some((folder.name.clone(), images));
                    }
                    Some((first, _)) => return Err(twice(root, first, &folder.name)),
                },
                Some(Role::Test) => walk.left_out.splits.push(folder.name.clone()),
                Some(Role::Train) | None => {}
            }
        }
        Ok(Self {
            classes,
            train: images,
            held_out,
            ..Self::default()
        })
    }
}

fn mixed(root: &Path, split: &str, class: &str) -> DataError {
    LayoutError::Mixed {
        root: root.to_owned(),
        split: split.to_owned(),
        class: class.to_owned(),
    }
    .into()
}

fn twice(root: &Path, first: &str, second: &str) -> DataError {
    LayoutError::Twice {
        root: root.to_owned(),
        first: first.to_owned(),
        second: second.to_owned(),
    }
    .into()
}

fn unlabelled(root: &Path, split: &str, images: usize) -> DataError {
    LayoutError::Unlabelled {
        split: root.join(split),
        images,
    }
    .into()
}
