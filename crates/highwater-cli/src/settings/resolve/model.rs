//! From flags to a model: a preset, a folder, or a `config.json` to begin from scratch with.

use std::path::{Path, PathBuf};

use highwater_memory::Files;
use highwater_models::vision::PRESETS as IMAGE_PRESETS;
use highwater_models::{ConfigError, preset};

use super::defaults;
use super::paths::absolute;
use crate::args::Settings;
use crate::config::{ModelSource, Task};
use crate::error::Failure;
use crate::hub;
use crate::model::{Blueprint, Classifier};

/// A preset's or folder's configuration; of images, for the classes of the data and images of the size that was
/// asked for, with what should be said of the classes.
pub(super) fn model(
    files: &dyn Files,
    settings: &Settings,
) -> Result<(ModelSource, Blueprint, Vec<String>), Failure> {
    if let Some(path) = &settings.init_from {
        return from_scratch(files, settings, path);
    }
    let name = match (settings.model.as_deref(), settings.task) {
        (Some(name), _) => name,
        (None, Some(Task::ImageClassification)) => defaults::CLASSIFIER,
        (None, _) => defaults::MODEL,
    };
    let fetched = hub::folder(name)?;
    let path = fetched.as_deref().unwrap_or(Path::new(name));
    let found = files.metadata(path)?;
    let is_file = found.as_ref().is_some_and(|found| !found.is_dir);
    let (source, mut model) = if found.is_some_and(|found| found.is_dir) {
        let model = Blueprint::read(files, &path.join("config.json"))?;
        (ModelSource::Folder(absolute(path)?), model)
    } else if is_file && path.extension().is_some_and(|end| end == "json") {
        // Enough to plan with: there need be no weights yet.
        (
            ModelSource::Folder(absolute(path)?),
            Blueprint::read(files, path)?,
        )
    } else {
        (ModelSource::Preset(name.to_owned()), preset_of(name)?)
    };
    let notes = adopt_classes(files, settings, (&source, &mut model))?;
    Ok((source, model, notes))
}

/// The model that a `config.json` describes, with weights drawn anew.
fn from_scratch(
    files: &dyn Files,
    settings: &Settings,
    path: &Path,
) -> Result<(ModelSource, Blueprint, Vec<String>), Failure> {
    if settings.model.is_some() {
        let message = "--init-from starts with random weights, and --model with trained ones";
        return Err(Failure::usage(message).hint("use one of them"));
    }
    let is_folder = files.metadata(path)?.is_some_and(|found| found.is_dir);
    let path = if is_folder {
        path.join("config.json")
    } else {
        path.to_owned()
    };
    let mut model = Blueprint::read(files, &path)?;
    let source = ModelSource::Config(absolute(&path)?);
    let notes = adopt_classes(files, settings, (&source, &mut model))?;
    Ok((source, model, notes))
}

/// Has a classifier tell the classes of the data. Answers what should be said of them.
fn adopt_classes(
    files: &dyn Files,
    settings: &Settings,
    (source, model): (&ModelSource, &mut Blueprint),
) -> Result<Vec<String>, Failure> {
    let Blueprint::Images(classifier) = model else {
        return Ok(Vec::new());
    };
    let data = settings.data.as_deref().ok_or_else(|| {
        let hint = "--data is a folder with one subfolder of images per class";
        Failure::usage(format!("{source} needs --data, a folder of images")).hint(hint)
    })?;
    let layout = classifier.layout(files, data)?;
    let notes = classifier.adopt(&layout.classes, source.brings_weights())?;
    classifier.size = settings.size.unwrap_or(classifier.size);
    Ok(notes.into_iter().collect())
}

/// A preset's configuration, of images without classes yet.
fn preset_of(name: &str) -> Result<Blueprint, Failure> {
    if Classifier::is_known(name) {
        return Ok(Blueprint::Images(Classifier::new(name)));
    }
    match preset(name) {
        Ok(config) => Ok(Blueprint::Text(config)),
        Err(ConfigError::UnknownPreset { .. }) if name.contains(['/', '\\', '.']) => {
            Err(Failure::usage(format!("there is no folder `{name}`"))
                .id("HW1032")
                .hint("--model is a Hugging Face model folder or the name of a preset"))
        }
        Err(error) => Err(Failure::from(error)
            .hint(format!("presets for images: {}", IMAGE_PRESETS.join(", ")))
            .hint("--model is the name of a preset or a Hugging Face model folder")),
    }
}

/// The `tokenizer.json` that was named, or else the one in the folder of the model or of its `config.json`.
pub(super) fn tokenizer(
    files: &dyn Files,
    named: Option<&Path>,
    source: &ModelSource,
) -> Result<Option<PathBuf>, Failure> {
    if let Some(path) = named {
        let path = absolute(path)?;
        let is_folder = files.metadata(&path)?.is_some_and(|it| it.is_dir);
        return Ok(Some(if is_folder {
            path.join("tokenizer.json")
        } else {
            path
        }));
    }
    let folder = match source {
        ModelSource::Folder(folder) if files.metadata(folder)?.is_some_and(|it| it.is_dir) => {
            folder
        }
        ModelSource::Config(path) => path.parent().unwrap_or(path),
        ModelSource::Folder(_) | ModelSource::Preset(_) => return Ok(None),
    };
    let path = folder.join("tokenizer.json");
    Ok(files.metadata(&path)?.map(|_| path))
}
