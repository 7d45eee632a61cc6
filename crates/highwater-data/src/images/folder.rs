//! A folder for each class.

use super::decode::decode;
use super::layout::Layout;
use super::picture::Picture;
use super::transforms::Transform;
use crate::order::permute;
use crate::{Array, BoxError, DataError, Dataset, Draws};
use highwater_memory::{DiskFiles, Files};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files, and the class of each.
pub type Labelled = Vec<(PathBuf, i64)>;

/// Images by class, as `torchvision.datasets.ImageFolder`: a folder for each class, sorted by name, which number them
/// from 0; in it the files with one of the [`ENDINGS`](super::ENDINGS), whatever the case, also in folders below,
/// sorted by path. Links are followed; hidden files and folders are left out. Samples are what the transform makes of
/// an image, and the class as `i64`.
pub struct ImageFolder {
    files: Arc<dyn Files + Send + Sync>,
    transform: Box<dyn Transform>,
    classes: Arc<[String]>,
    samples: Arc<[(PathBuf, i64)]>,
}

impl std::fmt::Debug for ImageFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageFolder")
            .field("classes", &self.classes)
            .field("samples", &self.samples.len())
            .finish_non_exhaustive()
    }
}

impl ImageFolder {
    /// Lists a folder; images are read when they are asked for.
    ///
    /// # Errors
    /// [`DataError::Files`] for a folder that cannot be listed; [`DataError::Layout`] if there is no class, or one
    /// without an image.
    pub fn new(
        root: impl AsRef<Path>,
        transform: impl Transform + 'static,
    ) -> Result<Self, DataError> {
        Self::new_in(Arc::new(DiskFiles), root.as_ref(), transform)
    }

    /// As [`ImageFolder::new`], through other files than those of the system.
    ///
    /// # Errors
    /// As [`ImageFolder::new`].
    pub fn new_in(
        files: Arc<dyn Files + Send + Sync>,
        root: &Path,
        transform: impl Transform + 'static,
    ) -> Result<Self, DataError> {
        let layout = Layout::find_classes(&*files, root)?;
        let samples = layout.train.into_iter();
        let samples = samples.map(|found| (found.path, found.class as i64));
        let samples = samples.collect();
        Ok(Self::of(files, layout.classes, samples, transform))
    }

    /// Of images that were found already, with names of classes by their numbers. [`ImageFolder::split`] needs the
    /// images of each class one after the other.
    pub fn of(
        files: Arc<dyn Files + Send + Sync>,
        classes: Vec<String>,
        samples: Labelled,
        transform: impl Transform + 'static,
    ) -> Self {
        Self {
            files,
            transform: Box::new(transform),
            classes: classes.into(),
            samples: samples.into(),
        }
    }

    /// The same images under another transform: nothing is listed again.
    #[must_use]
    pub fn with_transform(&self, transform: impl Transform + 'static) -> Self {
        Self {
            files: Arc::clone(&self.files),
            transform: Box::new(transform),
            classes: Arc::clone(&self.classes),
            samples: Arc::clone(&self.samples),
        }
    }
    /// The classes' names, by their numbers.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The files, and the class of each.
    pub fn samples(&self) -> &[(PathBuf, i64)] {
        &self.samples
    }

    /// Indices of samples to train on, and of those to hold out: of each class this share, rounded, chosen by the
    /// seed, but at least one of both where there are two. For [`Dataset::subset`].
    ///
    /// # Errors
    /// [`DataError::Usage`] for a share that is not from 0 to below 1, or above 0 with a class of one sample.
    pub fn split(&self, held_out: f64, seed: u64) -> Result<[Vec<usize>; 2], DataError> {
        if !(0.0..1.0).contains(&held_out) {
            let message = format!("held out: {held_out}, which is not from 0 to below 1");
            return Err(DataError::Usage(message));
        }
        let (mut train, mut held) = (Vec::new(), Vec::new());
        // Samples stand class by class.
        for class in self.samples.chunk_by(|(_, a), (_, b)| a == b) {
            let (first, count) = (train.len() + held.len(), class.len());
            let out = match count {
                _ if held_out <= 0.0 => 0,
                0 | 1 => {
                    let name = class
                        .first()
                        .map_or("", |(_, label)| &self.classes[*label as usize]);
                    let message = format!("held out: the class {name} has one sample alone");
                    return Err(DataError::Usage(message));
                }
                _ => ((count as f64 * held_out).round() as usize).clamp(1, count - 1),
            };
            for i in 0..count {
                // Each class is drawn by itself: another one's pictures change nothing here.
                let place = permute(i as u64, count as u64, seed, 0) as usize;
                if place < out { &mut held } else { &mut train }.push(first + i);
            }
        }
        Ok([train, held])
    }
}

impl Dataset for ImageFolder {
    type Item = (Array, i64);

    fn len(&self) -> usize {
        self.samples.len()
    }

    fn get(&self, index: usize, draws: &mut Draws) -> Result<Self::Item, BoxError> {
        let (path, label) = self.samples.get(index).ok_or("no such sample")?;
        let mut file = self.files.open(path)?;
        let mut bytes = vec![0; file.bytes() as usize];
        file.read_exact_at(0, &mut bytes)?;
        let picture = Picture::Pixels(decode(path, &bytes)?);
        drop(bytes);
        let picture = self.transform.apply(picture, draws);
        let named = |error: DataError| DataError::format(path, error.to_string());
        Ok((picture.map_err(named)?.into_tensor(), *label))
    }
}
