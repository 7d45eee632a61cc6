//! Walks through folders of images, along links.

use super::{Found, LeftOut};
use crate::endings::{is_read, is_unread};
use crate::error::{DataError, LayoutError};
use highwater_memory::files::Metadata;
use highwater_memory::{Files, FilesError};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Files that systems and programs leave among others.
const LITTER: [&str; 3] = ["__MACOSX", "Thumbs.db", "desktop.ini"];

/// A folder within another.
#[derive(Debug, Clone)]
pub(super) struct Subfolder {
    pub name: String,
    pub path: PathBuf,
    id: Option<(u64, u64)>,
}

/// A folder of which the folders are looked at.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    pub path: PathBuf,
    pub folders: Vec<Subfolder>,
    images: usize,
    id: Option<(u64, u64)>,
}

/// What a folder has, at a glance.
pub(super) struct Glance {
    /// Names of its folders.
    pub folders: Vec<String>,
    /// How many images lie in it.
    pub images: usize,
}

/// Something in a folder, with what it leads to.
enum Entry {
    Folder(PathBuf, Option<(u64, u64)>),
    Image(Found),
    /// A link that leads nowhere.
    Nothing(PathBuf),
    Unread(PathBuf),
    Other(PathBuf),
    Hidden,
}

/// A walk, with what it has left out.
pub(super) struct Walk<'a> {
    files: &'a dyn Files,
    pub left_out: LeftOut,
}

impl<'a> Walk<'a> {
    pub(super) fn new(files: &'a dyn Files) -> Self {
        Self {
            files,
            left_out: LeftOut::default(),
        }
    }

    /// The folder that all images are below.
    pub(super) fn top(&mut self, root: &Path) -> Result<Folder, DataError> {
        let folder = self.folder(root)?;
        if folder.folders.is_empty() {
            return Err(LayoutError::NoClasses {
                root: root.to_owned(),
                images: folder.images,
            }
            .into());
        }
        Ok(folder)
    }

    /// The folder of a split.
    pub(super) fn split(&mut self, root: &Path, name: &str) -> Result<Folder, DataError> {
        self.folder(&root.join(name))
    }

    /// A folder of folders: what lies there besides is left out.
    fn folder(&mut self, path: &Path) -> Result<Folder, DataError> {
        let (mut folders, mut images) = (Vec::new(), 0);
        for entry in self.entries(path, 0)? {
            match entry? {
                Entry::Folder(path, id) => {
                    let name = path.file_name().and_then(OsStr::to_str).map(str::to_owned);
                    let name = name.ok_or_else(|| LayoutError::NotUtf8 { path: path.clone() })?;
                    folders.push(Subfolder { name, path, id });
                }
                Entry::Image(_) => images += 1,
                Entry::Nothing(path) => return Err(LayoutError::Dangling { path }.into()),
                other => self.leave_out(&other),
            }
        }
        folders.sort_by(|a, b| a.name.cmp(&b.name));
        self.left_out.beside += images;
        Ok(Folder {
            path: path.to_owned(),
            folders,
            images,
            id: self.id(path)?,
        })
    }

    /// What a folder has, without counting what is left out.
    pub(super) fn peek(&self, path: &Path) -> Result<Glance, DataError> {
        let (mut folders, mut images) = (Vec::new(), 0);
        for entry in self.entries(path, 0)? {
            match entry? {
                Entry::Folder(path, _) => {
                    let name = path.file_name().unwrap_or_default();
                    folders.push(name.to_string_lossy().into_owned());
                }
                Entry::Image(_) => images += 1,
                _ => {}
            }
        }
        Ok(Glance { folders, images })
    }

    /// The images of each folder of a folder, which are classes.
    pub(super) fn classes(
        &mut self,
        root: &Path,
        folder: &Folder,
    ) -> Result<(Vec<String>, Vec<Found>), DataError> {
        let (mut classes, mut images, mut empty) = (Vec::new(), Vec::new(), Vec::new());
        for (class, inside) in folder.folders.iter().enumerate() {
            let before = images.len();
            self.images(&inside.path, class, &mut vec![folder.id], &mut images)?;
            if images.len() == before {
                empty.push(inside.name.clone());
            }
            let same = |other: &&Subfolder| other.id.is_some() && other.id == inside.id;
            if let Some(other) = folder.folders[..class].iter().find(same) {
                let names = [other.name.clone(), inside.name.clone()];
                self.left_out.same.push(names);
            }
            classes.push(inside.name.clone());
        }
        if !empty.is_empty() {
            return Err(LayoutError::Empty {
                root: root.to_owned(),
                classes: empty,
            }
            .into());
        }
        Ok((classes, images))
    }

    /// The images of a split that is held out, whose classes are some of these.
    pub(super) fn held_out(
        &mut self,
        path: &Path,
        classes: &[String],
    ) -> Result<Vec<Found>, DataError> {
        let folder = self.folder(path)?;
        if folder.folders.is_empty() {
            return Err(LayoutError::Unlabelled {
                split: path.to_owned(),
                images: folder.images,
            }
            .into());
        }
        let mut images = Vec::new();
        for inside in &folder.folders {
            let class = classes.binary_search(&inside.name);
            let class = class.map_err(|_| LayoutError::OtherClass {
                class: inside.path.clone(),
            })?;
            self.images(&inside.path, class, &mut vec![folder.id], &mut images)?;
        }
        if images.is_empty() {
            return Err(LayoutError::Empty {
                root: path.to_owned(),
                classes: folder
                    .folders
                    .into_iter()
                    .map(|inside| inside.name)
                    .collect(),
            }
            .into());
        }
        Ok(images)
    }

    /// The images of a folder: its own, then those of each folder in it. `above` are the folders that it lies in.
    fn images(
        &mut self,
        path: &Path,
        class: usize,
        above: &mut Vec<Option<(u64, u64)>>,
        images: &mut Vec<Found>,
    ) -> Result<(), DataError> {
        let id = self.id(path)?;
        if id.is_some() && above.contains(&id) {
            return Err(LayoutError::Cycle {
                path: path.to_owned(),
            }
            .into());
        }
        let mut folders = Vec::new();
        for entry in self.entries(path, class)? {
            match entry? {
                Entry::Folder(path, _) => folders.push(path),
                Entry::Image(found) => {
                    // Above a class there is one folder.
                    self.left_out.nested += usize::from(above.len() > 1);
                    images.push(found);
                }
                Entry::Nothing(path) => return Err(LayoutError::Dangling { path }.into()),
                other => self.leave_out(&other),
            }
        }
        above.push(id);
        for inside in folders {
            self.images(&inside, class, above, images)?;
        }
        above.pop();
        Ok(())
    }

    fn id(&self, path: &Path) -> Result<Option<(u64, u64)>, FilesError> {
        Ok(self.files.metadata(path)?.and_then(|found| found.id))
    }

    /// What is in a folder, sorted by name.
    fn entries(
        &self,
        folder: &Path,
        class: usize,
    ) -> Result<impl Iterator<Item = Result<Entry, DataError>> + use<'a>, DataError> {
        let (files, folder) = (self.files, folder.to_owned());
        let names = files.names(&folder)?.into_iter();
        Ok(names.map(move |name| entry(files, &folder, &name, class)))
    }

    fn leave_out(&mut self, entry: &Entry) {
        let count = |counts: &mut std::collections::BTreeMap<String, usize>, path: &Path| {
            let ending = path.extension().unwrap_or_default();
            let ending = ending.to_string_lossy().to_ascii_lowercase();
            *counts.entry(ending).or_default() += 1;
        };
        match entry {
            Entry::Unread(path) => count(&mut self.left_out.unread, path),
            Entry::Other(path) => count(&mut self.left_out.others, path),
            Entry::Hidden => self.left_out.hidden += 1,
            Entry::Folder(..) | Entry::Image(_) | Entry::Nothing(_) => {}
        }
    }
}

fn entry(
    files: &dyn Files,
    folder: &Path,
    name: &OsString,
    class: usize,
) -> Result<Entry, DataError> {
    let is_litter = LITTER.iter().any(|litter| name == litter);
    if name.as_encoded_bytes().starts_with(b".") || is_litter {
        return Ok(Entry::Hidden);
    }
    let path = folder.join(name);
    let found = match files.metadata(&path) {
        Err(error) if error.is_link_loop() => {
            return Err(LayoutError::Cycle { path }.into());
        }
        found => found?,
    };
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    Ok(match found {
        Some(Metadata {
            is_dir: true, id, ..
        }) => Entry::Folder(path, id),
        found if is_read(&ending) => Entry::Image(Found {
            class,
            bytes: found.map_or(0, |found| found.bytes),
            changed: found.and_then(|found| found.changed),
            problem: match found {
                None => Some("a broken link"),
                Some(found) if !found.is_file => Some("not a file: a pipe, a socket or a device"),
                Some(_) => None,
            },
            path,
        }),
        None => Entry::Nothing(path),
        Some(_) if is_unread(&ending) => Entry::Unread(path),
        Some(_) => Entry::Other(path),
    })
}
