//! Images by class: how they are divided and loaded.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use highwater::data::images::{
    CenterCrop, Compose, Found, ImageFolder, Layout, LayoutError, Normalize, RandomHorizontalFlip,
    RandomResizedCrop, Resize, Size, ToTensor,
};
use highwater::data::{Array, Cursor as LoaderCursor, DataLoader, Dataset, LoaderOptions, Subset};
use highwater_memory::Files;
use highwater_memory::saved::{Digest, Digester};
use highwater_models::{Cursor, Order};

use crate::config::RunConfig;
use crate::error::{Code, Failure};
use crate::images::loading::{AHEAD, WORKERS, batch_bytes};
use crate::images::{LISTED, Survey};
use crate::model::classifier::{MEAN, STD, listed};
use crate::model::{Batch, Classifier};

/// Held out, of this many a side so many are cut: 224 of 256.
const CUT: [usize; 2] = [7, 8];
/// Images that the held-out loss is the mean of, at most: drawn by the seed.
const HELD_OUT_IMAGES: usize = 1024;

/// Batches of images.
pub(super) type Loader = DataLoader<Subset<ImageFolder>, (Array, Array)>;

/// The images of a run, divided.
#[derive(Debug)]
pub struct ImageData {
    /// Those to train on, and those to measure the loss on: places in folders, which may be one.
    parts: [(ImageFolder, Vec<usize>); 2],
    size: usize,
    layout: Arc<Layout>,
    /// Classes of the model.
    classes: usize,
    /// What is left out as it cannot be used.
    bad: Arc<Survey>,
    /// Of the names and lengths of all files.
    digest: Digest,
}

/// The images of a folder, looked over.
struct Listing<'a> {
    files: &'a Arc<dyn Files>,
    path: &'a Path,
    model: &'a Classifier,
    layout: Arc<Layout>,
    /// The model's numbers of the layout's classes.
    numbers: Vec<i64>,
    survey: Arc<Survey>,
}

impl<'a> Listing<'a> {
    fn of(
        files: &'a Arc<dyn Files>,
        config: &'a RunConfig,
        model: &'a Classifier,
    ) -> Result<Self, Failure> {
        let path = config.data.path.as_deref().unwrap_or(Path::new(""));
        let layout = model.layout(&**files, path)?;
        let numbers = model.numbers(path, &layout.classes)?;
        let survey = model.survey(&**files, config)?;
        if let Some(refusal) = survey.refusal().filter(|_| !config.data.skip_bad) {
            return Err(refusal);
        }
        Ok(Self {
            files,
            path,
            model,
            layout,
            numbers,
            survey,
        })
    }

    fn bad(&self) -> BTreeSet<&Path> {
        let bad = self.survey.bad.iter();
        bad.map(|bad| bad.path.as_path()).collect()
    }

    /// Those of some images that can be used, with the model's numbers of their classes.
    fn folder(&self, images: &[Found]) -> ImageFolder {
        let bad = self.bad();
        let good = images.iter().filter(|image| !bad.contains(&*image.path));
        let labelled = good.map(|image| (image.path.clone(), self.numbers[image.class]));
        let names = self.model.classes.values().cloned().collect();
        ImageFolder::of(self.files.clone(), names, labelled.collect(), ToTensor)
    }

    fn data(self, parts: [(ImageFolder, Vec<usize>); 2]) -> ImageData {
        let digest = digest(self.path, &self.layout, (&self.numbers, &self.bad()));
        ImageData {
            parts,
            size: self.model.size,
            classes: self.model.classes.len(),
            layout: self.layout,
            bad: self.survey,
            digest,
        }
    }
}

impl ImageData {
    /// Lists the images, looks them over, and divides them.
    ///
    /// # Errors
    /// [`Failure`] for a folder that cannot be read or is not of the model's classes, bad images, or too few of them.
    pub fn open(
        files: &Arc<dyn Files>,
        config: &RunConfig,
        model: &Classifier,
    ) -> Result<Self, Failure> {
        let listing = Listing::of(files, config, model)?;
        let (path, layout, numbers) = (listing.path, &listing.layout, &listing.numbers);
        let train = listing.folder(&layout.train);
        check_classes(path, layout, numbers, &train)?;
        let parts = if let Some((_, images)) = &layout.held_out {
            let held_out = listing.folder(images);
            let all = |folder: &ImageFolder| -> Vec<usize> { (0..folder.len()).collect() };
            let places = [all(&train), all(&held_out)];
            [train, held_out].into_iter().zip(places)
        } else {
            check_split(config, &train)?;
            let places = train.split(config.data.held_out, config.training.seed)?;
            let both = [train.with_transform(ToTensor), train];
            both.into_iter().zip(places)
        };
        let parts: Vec<(ImageFolder, Vec<usize>)> = parts.collect();
        let [train, held_out] = <[_; 2]>::try_from(parts)
            .map_err(|_| Failure::new(Code::Internal, "images are divided in two"))?;
        let (found, needed) = (train.1.len(), config.training.batch);
        if found < needed {
            let message = format!(
                "{}: {found} training images, fewer than a batch of {needed}",
                path.display()
            );
            let failure = Failure::new(Code::Files, message).id("HW1021");
            return Err(failure.hint("use a smaller --batch, or more images"));
        }
        Ok(listing.data([train, held_out]))
    }

    /// All of the images to evaluate a model on: those that are held out by their folder, or all of them. They are
    /// the second part.
    ///
    /// # Errors
    /// [`Failure`] for a folder that cannot be read or is not of the model's classes, and for bad images.
    pub fn to_evaluate(
        files: &Arc<dyn Files>,
        config: &RunConfig,
        model: &Classifier,
    ) -> Result<Self, Failure> {
        let listing = Listing::of(files, config, model)?;
        let held_out = listing.layout.held_out.as_ref();
        let folder = listing.folder(held_out.map_or(&listing.layout.train, |(_, images)| images));
        let places = (0..folder.len()).collect();
        let nothing = (folder.with_transform(ToTensor), Vec::new());
        Ok(listing.data([nothing, (folder, places)]))
    }

    /// How many are there to train on, and held out.
    pub fn counts(&self) -> [u64; 2] {
        [0, 1].map(|part| self.parts[part].1.len() as u64)
    }

    /// That of the names and lengths of all files.
    pub fn digest(&self) -> Digest {
        self.digest.clone()
    }

    /// What was found: splits, classes, and what is left out.
    pub fn summary(&self) -> String {
        let layout = &self.layout;
        let classes = match &layout.classes[..] {
            [one] => format!("1 class: {one}"),
            several => format!("{} classes: {}", several.len(), listed(several)),
        };
        let mut lines = vec![classes];
        if self.classes == 1 {
            lines.push("warning: there is only one class".to_owned());
        }
        if let Some((name, images)) = &layout.held_out {
            lines.push(format!("the loss is measured on {name}/"));
            let there: BTreeSet<usize> = images.iter().map(|image| image.class).collect();
            let all = layout.classes.iter().enumerate();
            let lacking = all.filter(|(class, _)| !there.contains(class));
            let lacking: Vec<&String> = lacking.map(|(_, name)| name).collect();
            if !lacking.is_empty() {
                lines.push(format!(
                    "note: {name}/ has no images of {}",
                    listed(&lacking)
                ));
            }
        }
        lines.extend(layout.left_out.to_string().lines().map(str::to_owned));
        match self.bad.bad.len() {
            0 => {}
            1 => lines.push("skipped by --skip-bad: 1 image".to_owned()),
            count => lines.push(format!("skipped by --skip-bad: {count} images")),
        }
        lines.extend(self.bad.first());
        lines.join("\n")
    }

    /// The images that are left out, all of them, where [`ImageData::summary`] lists the first alone.
    pub fn left_out(&self) -> Option<String> {
        let all: Vec<String> = self.bad.lines().collect();
        (all.len() > LISTED).then(|| all.join("\n"))
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

    /// What is held out, as far as the loss is measured on it: always the same images, cut from their middle.
    ///
    /// # Errors
    /// As [`ImageData::batches`].
    pub fn held_out(
        &self,
        config: &RunConfig,
    ) -> Result<impl Iterator<Item = Result<Batch, Failure>> + use<>, Failure> {
        let options = LoaderOptions {
            shuffle: true,
            drop_last: false,
            ..options(config, 0, 0)
        };
        let most = HELD_OUT_IMAGES.div_ceil(config.training.batch);
        Ok(self.measured(options)?.take(most))
    }

    /// All of what is held out, in order, cut from their middle.
    ///
    /// # Errors
    /// As [`ImageData::batches`].
    pub fn all(
        &self,
        config: &RunConfig,
    ) -> Result<impl Iterator<Item = Result<Batch, Failure>> + use<>, Failure> {
        let bytes = AHEAD * batch_bytes(config.training.batch, self.size);
        self.measured(LoaderOptions {
            shuffle: false,
            drop_last: false,
            ..options(config, WORKERS, bytes)
        })
    }

    fn measured(
        &self,
        options: LoaderOptions,
    ) -> Result<impl Iterator<Item = Result<Batch, Failure>> + use<>, Failure> {
        let side = self.size * CUT[1] / CUT[0];
        let cut = Compose::new()
            .then(Resize(Size::Shorter(side)))
            .then(CenterCrop::new(self.size));
        let mut loader = self.load(1, cut, options)?;
        let next = move || Some(loader.next_batch().transpose()?.map(batch));
        Ok(std::iter::from_fn(next).map(|batch| Ok(batch?)))
    }

    fn load(&self, part: usize, cut: Compose, options: LoaderOptions) -> Result<Loader, Failure> {
        let whole = cut.then(ToTensor).then(Normalize::new(MEAN, STD)?);
        let (folder, places) = &self.parts[part];
        let part = folder.with_transform(whole).subset(places.clone())?;
        Ok(DataLoader::new(part, options)?)
    }
}

/// That each class of the data still has an image.
fn check_classes(
    path: &Path,
    layout: &Layout,
    numbers: &[i64],
    train: &ImageFolder,
) -> Result<(), Failure> {
    let there: BTreeSet<i64> = train.samples().iter().map(|(_, label)| *label).collect();
    let named = layout.classes.iter().zip(numbers);
    let empty = named.filter(|(_, number)| !there.contains(number));
    let classes: Vec<String> = empty.map(|(name, _)| name.clone()).collect();
    if classes.is_empty() {
        return Ok(());
    }
    let root = path.to_owned();
    let error = LayoutError::Empty { root, classes };
    let hint = "--skip-bad skipped all of its images: add some, or remove the folder";
    Err(Failure::new(Code::Files, error).id("HW1024").hint(hint))
}

/// That of each class a share can be held out.
fn check_split(config: &RunConfig, train: &ImageFolder) -> Result<(), Failure> {
    let classes = train.samples().chunk_by(|(_, a), (_, b)| a == b);
    let alone = classes.filter(|class| class.len() == 1);
    let names: Vec<&String> = alone
        .map(|class| &train.classes()[class[0].1 as usize])
        .collect();
    if config.data.held_out <= 0.0 || names.is_empty() {
        return Ok(());
    }
    let message = match &names[..] {
        [name] => format!("the class {name} has only one image, so none can be held out"),
        several => format!(
            "{} classes have only one image, so none can be held out: {}",
            several.len(),
            listed(several)
        ),
    };
    let hint = "--val 0 holds nothing out; or add images, or put those to hold out into val/";
    Err(Failure::usage(message).hint(hint))
}

/// That of the names and lengths of all images that are used.
fn digest(path: &Path, layout: &Layout, (numbers, bad): (&[i64], &BTreeSet<&Path>)) -> Digest {
    let mut listed = Digester::default();
    let held_out = layout
        .held_out
        .iter()
        .map(|(_, images)| ("held out ", images));
    for (part, images) in std::iter::once(("", &layout.train)).chain(held_out) {
        for image in images.iter().filter(|image| !bad.contains(&*image.path)) {
            let name = image.path.strip_prefix(path).unwrap_or(&image.path);
            let (number, bytes) = (numbers[image.class], image.bytes);
            listed.update(format!("{part}{number} {bytes} ").as_bytes());
            listed.update(name.as_os_str().as_encoded_bytes());
            listed.update(b"\n");
        }
    }
    listed.finish()
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

fn batch((images, classes): (Array, Array)) -> Batch {
    Batch::Images(images, classes)
}

/// The next batch, of the next epoch where this one has ended.
///
/// # Errors
/// [`Failure`] for an image that cannot be read.
pub(super) fn next(loader: &mut Loader) -> Result<Batch, Failure> {
    loop {
        if let Some(found) = loader.next_batch()? {
            return Ok(batch(found));
        }
    }
}

/// Where a loader is, as runs save it.
pub(super) fn cursor(loader: &Loader) -> Cursor {
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
pub(super) fn seek(loader: &mut Loader, at: Cursor) -> Result<(), Failure> {
    Ok(loader.seek(LoaderCursor {
        epoch: at.epoch,
        batch: at.position,
    })?)
}
