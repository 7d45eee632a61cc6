//! The settings of a classifier, and how its classes are matched with those of the data.

mod labels;
mod timm;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use highwater::data::Array;
use highwater::data::images::Layout;
use highwater::{DType, Engine, Error};
use highwater_memory::Files;
use highwater_models::config::CONFIG_BYTES_MAX;
use highwater_models::vision::{ImageClassifier, PRESETS, image_model};
use serde::Serialize;
use serde_json::Value;

use super::batch::Batch;
use crate::config::RunConfig;
use crate::error::{Code, Failure};
use crate::images::loading::{AHEAD, WORKERS};
use crate::images::{Seen, Survey};

/// Names of classes that a line lists.
const LISTED: usize = 8;

/// The settings that a classifier is built from, as in its `config.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Classifier {
    /// torchvision's name of the model.
    #[serde(rename = "model_type")]
    pub name: String,
    /// Side of the images, in pixels.
    #[serde(rename = "image_size")]
    pub size: usize,
    /// The classes by their numbers; none where they are unknown.
    #[serde(rename = "id2label")]
    pub classes: BTreeMap<usize, String>,
    /// What was found of the data already.
    #[serde(skip)]
    seen: Arc<Seen>,
}

/// Side of images where nobody says another.
pub(crate) fn default_size() -> usize {
    224
}

impl Classifier {
    /// One of torchvision's, without classes yet.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            size: default_size(),
            classes: BTreeMap::new(),
            seen: Arc::default(),
        }
    }

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
        let Ok(json) = serde_json::from_slice::<Value>(&bytes) else {
            return Ok(None);
        };
        let name = json.get("model_type").and_then(Value::as_str);
        let found = match name {
            Some(name) if Self::is_known(name) => Self::of_json(name, &json).map(Some),
            Some(_) => Ok(None),
            None => timm::read(&json),
        };
        found.map_err(|problem| {
            Failure::usage(format!("{}: {problem}", path.display()))
                .id("HW1033")
                .hint("correct the file, or use another model")
        })
    }

    fn of_json(name: &str, json: &Value) -> Result<Self, String> {
        let size = match json.get("image_size") {
            None | Some(Value::Null) => default_size(),
            Some(size) => {
                let number = size.as_u64().filter(|&size| size > 0);
                number.ok_or_else(|| format!("`image_size` is {size}, not a number of pixels"))?
                    as usize
            }
        };
        for (field, own) in [("image_mean", MEAN), ("image_std", STD)] {
            timm::check_same(field, json.get(field), own)?;
        }
        Ok(Self {
            size,
            classes: labels::read(json)?,
            ..Self::new(name)
        })
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
    /// images that it is put together of; and of images as they are decoded.
    pub fn loader_bytes(&self, batch: usize, decoding_bytes: u64) -> u64 {
        (AHEAD + 2) * crate::images::loading::batch_bytes(batch, self.size)
            + WORKERS as u64 * decoding_bytes
    }

    /// A batch of black images of the first class.
    #[expect(clippy::missing_panics_doc, reason = "as many bytes as the shape has")]
    pub fn blank(&self, batch: usize) -> Batch {
        let zeros = |dtype: DType, shape: &[usize]| {
            let bytes =
                vec![0; shape.iter().product::<usize>() * dtype.bytes(&[1].into()) as usize];
            Array::from_bytes(dtype, shape, bytes).expect("as many bytes as the shape has")
        };
        let images = zeros(DType::F32, &[batch, 3, self.size, self.size]);
        Batch::Images(images, zeros(DType::I64, &[batch]))
    }

    /// How the images of a folder lie: found once.
    ///
    /// # Errors
    /// [`Failure`] for a layout that is not known.
    pub fn layout(&self, files: &dyn Files, data: &Path) -> Result<Arc<Layout>, Failure> {
        self.seen.layout(files, data)
    }

    /// What came of looking over the data's images: done once.
    ///
    /// # Errors
    /// [`Failure`] for files that cannot be read now. `Survey::refusal` names bad images.
    pub fn survey(&self, files: &dyn Files, config: &RunConfig) -> Result<Arc<Survey>, Failure> {
        self.seen.survey(files, config)
    }

    /// The share of the data that is held out: none where images to hold out have a folder of their own.
    ///
    /// # Errors
    /// [`Failure`] where a share was asked for though there is such a folder.
    pub fn held_out(
        &self,
        files: &dyn Files,
        data: &Path,
        asked: Option<f64>,
        default: f64,
    ) -> Result<f64, Failure> {
        let layout = self.layout(files, data)?;
        let Some((split, _)) = &layout.held_out else {
            return Ok(asked.unwrap_or(default));
        };
        if asked.is_some_and(|share| share > 0.0) {
            let folder = data.join(split);
            let message = format!(
                "--val has no effect: {} is already the held-out data",
                folder.display()
            );
            let hint = "remove --val, or use --data with the training folder only";
            return Err(Failure::usage(message).hint(hint));
        }
        Ok(0.0)
    }

    /// Takes on the classes of the data. Where all of them are the model's, its numbers stay, and so does its last
    /// layer; otherwise they are numbered in the order of their names. Answers what should be said about that, of a
    /// model that brings weights.
    ///
    /// # Errors
    /// [`Failure`] for a class of the data that is two of the model's.
    pub fn adopt(&mut self, found: &[String], brings: bool) -> Result<Option<String>, Failure> {
        let own = std::mem::take(&mut self.classes);
        let numbered = || found.iter().cloned().enumerate().collect();
        let is_own = |name: &&String| own.values().any(|own| own == *name);
        if own.is_empty() {
            self.classes = numbered();
            let note = "note: the model's config.json has no id2label: classes are numbered in the order of \
                        their names";
            return Ok(brings.then(|| note.to_owned()));
        }
        if let Some(other) = found.iter().find(|name| !is_own(name)) {
            self.classes = numbered();
            return Ok(Some(drawn(&own, found, other)));
        }
        for name in found {
            let mut numbers = own.iter().filter(|(_, own)| *own == name);
            if let (Some((one, _)), Some((two, _))) = (numbers.next(), numbers.next()) {
                let message = format!(
                    "the class `{name}` is output {one} of the model and output {two}, by its id2label"
                );
                return Err(Failure::new(Code::Files, message)
                    .id("HW1024")
                    .hint("give one of them another name in config.json, and its folder too"));
            }
        }
        let there: BTreeSet<&String> = found.iter().collect();
        let missing = own.values().filter(|name| !there.contains(name));
        let missing: Vec<&String> = missing.collect();
        let note = (!missing.is_empty()).then(|| {
            format!(
                "note: {} of the model's {} classes have no images: {}",
                missing.len(),
                own.len(),
                listed(&missing)
            )
        });
        self.classes = own;
        Ok(note)
    }

    /// The numbers of the data's classes.
    ///
    /// # Errors
    /// [`Failure`] for a class that the model does not have.
    pub fn numbers(&self, data: &Path, found: &[String]) -> Result<Vec<i64>, Failure> {
        let numbers: BTreeMap<&str, usize> = self
            .classes
            .iter()
            .map(|(number, name)| (name.as_str(), *number))
            .collect();
        let number = |name: &String| {
            let number = numbers.get(name.as_str()).map(|&number| number as i64);
            number.ok_or_else(|| {
                let message = format!(
                    "{}: other classes than the model's: it has no `{name}`",
                    data.display()
                );
                Failure::new(Code::Files, message)
                    .id("HW1024")
                    .hint("restore the folders that the run began with, or start a new run")
            })
        };
        found.iter().map(number).collect()
    }
}

/// Says that the last layer is for other classes, and which.
fn drawn(own: &BTreeMap<usize, String>, found: &[String], other: &str) -> String {
    let common = found
        .iter()
        .filter(|name| own.values().any(|own| own == *name));
    let lower = other.to_lowercase();
    let alike = own.values().find(|own| own.to_lowercase() == lower);
    let alike = alike.map_or_else(String::new, |own| {
        format!(" (it has `{own}`: rename the folder to keep its trained weights)")
    });
    format!(
        "note: the model has no class `{other}`{alike}; {} of the data's {} classes are among its {}: the last layer \
        is initialized randomly, for the classes of the data",
        common.count(),
        found.len(),
        own.len()
    )
}

/// Names, the first of many.
pub(crate) fn listed(names: &[impl AsRef<str>]) -> String {
    let first: Vec<&str> = names.iter().take(LISTED).map(AsRef::as_ref).collect();
    let first = first.join(", ");
    match names.len().saturating_sub(LISTED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Means and deviations of ImageNet's colours, by which torchvision's weights were trained.
pub(crate) const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
pub(crate) const STD: [f32; 3] = [0.229, 0.224, 0.225];
