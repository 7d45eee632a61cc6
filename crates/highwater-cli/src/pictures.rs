//! Pictures by class: what tells them apart, and how they are loaded.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use highwater::data::images::{
    CenterCrop, Compose, ImageFolder, Normalize, RandomHorizontalFlip, RandomResizedCrop, Resize,
    Size, ToTensor, dimensions,
};
use highwater::data::{Array, Cursor as LoaderCursor, DataLoader, Dataset, LoaderOptions, Subset};
use highwater::{DType, Engine, Error};
use highwater_memory::Files;
use highwater_memory::saved::Digest;
use highwater_models::config::CONFIG_BYTES_MAX;
use highwater_models::vision::{ImageClassifier, PRESETS, image_model};
use highwater_models::{Cursor, Order};
use serde::{Deserialize, Serialize};

use crate::config::RunConfig;
use crate::error::{Code, Failure};
use crate::task::Batch;

/// Means and deviations of ImageNet's colours, by which torchvision's weights were trained.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];
/// Held out, of this many a side so many are cut: 224 of 256.
const CUT: [usize; 2] = [7, 8];
/// Threads that load pictures.
const WORKERS: usize = 2;
/// Batches that are loaded ahead: those that are put together count twice.
const AHEAD: u64 = 4;
/// What a worker takes for each pixel of the picture that it decodes, in bytes: three colours, and as many numbers of
/// two bytes where a JPEG file comes in several scans.
const PIXEL_BYTES: u64 = 9;
/// What it takes beside that and the file.
const DECODER_BYTES: u64 = 1 << 20;
/// Of so many pictures, spread over the data, the size is looked at before a run is planned.
const LOOKED_AT: usize = 4096;
/// As much of a file tells its size, mostly.
const HEADER_BYTES: u64 = 64 << 10;
/// Pictures that the held-out loss is the mean of, at most: drawn by the seed.
const HELD_OUT_PICTURES: usize = 1024;

/// What a classifier is built from, as its `config.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classifier {
    /// torchvision's name of the model.
    #[serde(rename = "model_type")]
    pub name: String,
    /// Side of the pictures, in pixels.
    #[serde(rename = "image_size", default = "default_size")]
    pub size: usize,
    /// The classes by their numbers.
    #[serde(rename = "id2label", default)]
    pub classes: BTreeMap<usize, String>,
}

/// Side of pictures where nobody says another.
pub fn default_size() -> usize {
    224
}

impl Classifier {
    /// Whether a name is a classifier's.
    pub fn is_known(name: &str) -> bool {
        PRESETS.contains(&name)
    }

    /// Reads a `config.json`; none if it is not a classifier's.
    ///
    /// # Errors
    /// [`Failure`] for a file that cannot be read, or a classifier's with a field that cannot be.
    pub fn read(files: &dyn Files, path: &Path) -> Result<Option<Self>, Failure> {
        let mut file = files.open(path)?;
        if file.bytes() > CONFIG_BYTES_MAX {
            return Ok(None);
        }
        let mut bytes = vec![0; file.bytes() as usize];
        file.read_exact_at(0, &mut bytes)?;
        let json: serde_json::Value = match serde_json::from_slice(&bytes) {
            Ok(json) => json,
            Err(_) => return Ok(None),
        };
        let name = json.get("model_type").and_then(serde_json::Value::as_str);
        if !name.is_some_and(Self::is_known) {
            return Ok(None);
        }
        let told = |error| Failure::usage(format!("{}: {error}", path.display())).id("HW1033");
        serde_json::from_value(json).map(Some).map_err(told)
    }

    /// The `config.json`.
    pub fn to_json(&self) -> String {
        // Strings and numbers alone always have a JSON form.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// About how many layers it has, one after the other.
    pub fn depth(&self) -> usize {
        let digits = self.name.trim_start_matches(|c: char| !c.is_ascii_digit());
        digits.parse().unwrap_or(12)
    }

    /// A model with initial weights.
    ///
    /// # Errors
    /// [`Error::State`] if there is no room.
    pub fn build(&self, engine: &Engine) -> highwater::Result<Box<dyn ImageClassifier>> {
        let model = image_model(engine, &self.name, self.classes.len(), self.size)?;
        let unknown = || Error::Saved(format!("there is no model {}", self.name));
        let model = model.ok_or_else(unknown)?;
        // By these the optimizer's state is saved.
        model.name_parameters();
        Ok(model)
    }

    /// Bytes on the heap of what is loaded ahead, and at the same time of a batch that is held out, with the
    /// pictures that it is put together of; and of pictures as they are decoded.
    pub fn loader_bytes(&self, batch: usize, decoding_bytes: u64) -> u64 {
        (AHEAD + 2) * batch_bytes(batch, self.size) + WORKERS as u64 * decoding_bytes
    }

    /// A batch of black pictures of the first class.
    #[expect(clippy::missing_panics_doc, reason = "as many bytes as the shape has")]
    pub fn blank(&self, batch: usize) -> Batch {
        let zeros = |dtype: DType, shape: &[usize]| {
            let bytes =
                vec![0; shape.iter().product::<usize>() * dtype.bytes(&[1].into()) as usize];
            Array::from_bytes(dtype, shape, bytes).expect("as many bytes as the shape has")
        };
        let pictures = zeros(DType::F32, &[batch, 3, self.size, self.size]);
        Batch::Pictures(pictures, zeros(DType::I64, &[batch]))
    }
}

/// Bytes of a batch of so many pictures of a side.
fn batch_bytes(batch: usize, size: usize) -> u64 {
    (batch * 3 * size * size) as u64 * 4
}

/// The classes of a folder of pictures: the names of the folders in it, sorted.
///
/// # Errors
/// [`Failure`] where there is none.
pub fn classes(files: &dyn Files, path: &Path) -> Result<BTreeMap<usize, String>, Failure> {
    let folders = match files.metadata(path)? {
        Some(found) if found.is_dir => files.list_dir(path)?,
        _ => Vec::new(),
    };
    let folders = folders.into_iter().filter(|entry| entry.is_dir);
    let mut names: Vec<String> = folders.map(|entry| entry.name).collect();
    names.sort();
    if names.is_empty() {
        let message = format!("{}: no folder with a folder for each class", path.display());
        let hint = "--data takes a folder in which each folder has the pictures of one class";
        return Err(Failure::new(Code::Files, message).id("HW1020").hint(hint));
    }
    Ok(names.into_iter().enumerate().collect())
}

/// What decoding the largest picture of a folder takes at most, in bytes; where there are very many, the largest of
/// those that are looked at.
///
/// # Errors
/// [`Failure`] for a folder that cannot be read. What is no picture is told when its turn comes.
pub fn decoding_bytes(files: &dyn Files, path: &Path) -> Result<u64, Failure> {
    let (_, samples) = ImageFolder::find(files, path)?;
    let step = samples.len().div_ceil(LOOKED_AT).max(1);
    let mut most = 0;
    for (picture, _) in samples.iter().step_by(step) {
        let mut file = files.open(picture)?;
        let length = file.bytes();
        let mut sides = None;
        for part in [HEADER_BYTES.min(length), length] {
            let mut beginning = vec![0; part as usize];
            file.read_exact_at(0, &mut beginning)?;
            sides = dimensions(picture, &beginning).ok();
            if sides.is_some() {
                break;
            }
        }
        let pixels = sides.map_or(0, |[width, height]| (width * height) as u64);
        most = most.max(PIXEL_BYTES * pixels + length);
    }
    Ok(most + DECODER_BYTES)
}

/// Batches of pictures.
pub type Loader = DataLoader<Subset<ImageFolder>, (Array, Array)>;

/// The pictures of a run, divided.
#[derive(Debug)]
pub struct PictureData {
    folder: ImageFolder,
    size: usize,
    /// Those to train on, and those to measure the loss on.
    parts: [Vec<usize>; 2],
    /// Of the names and lengths of all files.
    digest: Digest,
}

impl PictureData {
    /// Lists the pictures, and divides them.
    ///
    /// # Errors
    /// [`Failure`] for a folder that cannot be read or is not of the model's classes, or too few pictures.
    pub fn open(
        files: &Arc<dyn Files>,
        config: &RunConfig,
        model: &Classifier,
    ) -> Result<Self, Failure> {
        let path = config.data.path.as_deref().unwrap_or(Path::new(""));
        let folder = ImageFolder::new_in(files.clone(), path, ToTensor)?;
        let known = model.classes.values();
        if !known.eq(folder.classes()) {
            let (own, found) = (model.classes.len(), folder.classes().len());
            let message = format!(
                "{}: other classes than the model's ({found} instead of {own}, or of other names)",
                path.display()
            );
            return Err(Failure::new(Code::Files, message).id("HW1024"));
        }
        let parts = folder.split(config.data.held_out, config.training.seed)?;
        let mut listed = String::new();
        for (picture, class) in folder.samples() {
            let bytes = files.metadata(picture)?.map_or(0, |found| found.bytes);
            let name = picture.strip_prefix(path).unwrap_or(picture).display();
            // A string takes all that is written to it.
            let _ = writeln!(listed, "{class} {bytes} {name}");
        }
        let (found, needed) = (parts[0].len(), config.training.batch);
        if found < needed {
            let message = format!(
                "{}: {found} pictures to train on; a batch has {needed}",
                path.display()
            );
            let failure = Failure::new(Code::Files, message).id("HW1021");
            return Err(failure.hint("use a smaller --batch, or more pictures"));
        }
        Ok(Self {
            folder,
            size: model.size,
            parts,
            digest: Digest::of(listed.as_bytes()),
        })
    }

    /// How many are there to train on, and held out.
    pub fn counts(&self) -> [u64; 2] {
        [0, 1].map(|part| self.parts[part].len() as u64)
    }

    /// That of the names and lengths of all files.
    pub fn digest(&self) -> Digest {
        self.digest.clone()
    }

    /// Batches to train on, from the start: cut and mirrored at random.
    ///
    /// # Errors
    /// [`Failure`] where the system gives no thread.
    pub fn batches(&self, config: &RunConfig) -> Result<Loader, Failure> {
        let cut = Compose::new()
            .then(RandomResizedCrop::new(self.size))
            .then(RandomHorizontalFlip::default());
        let bytes = AHEAD * batch_bytes(config.training.batch, self.size);
        self.load(0, cut, options(config, WORKERS, bytes))
    }

    /// What is held out, as far as the loss is measured on it: always the same pictures, cut from their middle.
    ///
    /// # Errors
    /// As [`PictureData::batches`].
    pub fn held_out(
        &self,
        config: &RunConfig,
    ) -> Result<impl Iterator<Item = Result<Batch, Failure>> + use<>, Failure> {
        let side = self.size * CUT[1] / CUT[0];
        let cut = Compose::new()
            .then(Resize(Size::Shorter(side)))
            .then(CenterCrop::new(self.size));
        let options = LoaderOptions {
            shuffle: true,
            drop_last: false,
            ..options(config, 0, 0)
        };
        let most = HELD_OUT_PICTURES.div_ceil(config.training.batch);
        let mut loader = self.load(1, cut, options)?;
        let next = move || Some(loader.next_batch().transpose()?.map(pictures));
        let batches = std::iter::from_fn(next).take(most);
        Ok(batches.map(|batch| Ok(batch?)))
    }

    fn load(&self, part: usize, cut: Compose, options: LoaderOptions) -> Result<Loader, Failure> {
        let whole = cut.then(ToTensor).then(Normalize::new(MEAN, STD)?);
        let part = self
            .folder
            .with_transform(whole)
            .subset(self.parts[part].clone())?;
        Ok(DataLoader::new(part, options)?)
    }
}

fn options(config: &RunConfig, workers: usize, prefetch_bytes: u64) -> LoaderOptions {
    LoaderOptions {
        batch_size: config.training.batch,
        shuffle: config.data.order == Order::Shuffled,
        seed: config.training.seed,
        drop_last: true,
        workers,
        prefetch_bytes,
        ..LoaderOptions::default()
    }
}

fn pictures((pictures, classes): (Array, Array)) -> Batch {
    Batch::Pictures(pictures, classes)
}

/// The next batch, of the next epoch where this one has ended.
///
/// # Errors
/// [`Failure`] for a picture that cannot be read.
pub fn next(loader: &mut Loader) -> Result<Batch, Failure> {
    loop {
        if let Some(batch) = loader.next_batch()? {
            return Ok(pictures(batch));
        }
    }
}

/// Where a loader is, as runs save it.
pub fn cursor(loader: &Loader) -> Cursor {
    let LoaderCursor { epoch, batch } = loader.cursor();
    Cursor {
        epoch,
        position: batch,
    }
}

/// Goes to where a loader was.
///
/// # Errors
/// [`Failure`] for a place behind the last batch.
pub fn seek(loader: &mut Loader, at: Cursor) -> Result<(), Failure> {
    Ok(loader.seek(LoaderCursor {
        epoch: at.epoch,
        batch: at.position,
    })?)
}
