//! What a model is built from, by its task.

use std::path::Path;
use std::sync::Arc;

use highwater::Engine;
use highwater::op::WeightFormat;
use highwater_memory::Files;
use highwater_models::{Architecture, read_architecture};

use super::batch::Batch;
use super::classifier::Classifier;
use super::task_model::Model;
use crate::config::{RunConfig, Task, TrainingConfig};
use crate::error::Failure;
use crate::folder::model_folder::no_model;
use crate::images::Survey;

/// What a model's folder says it is.
const CONFIG: &str = "config.json";

/// What a model is built from.
#[derive(Clone, Debug)]
pub enum Blueprint {
    /// A model of text.
    Text(Arc<dyn Architecture>),
    /// A classifier of images.
    Images(Classifier),
}

impl Blueprint {
    /// Reads a `config.json`, of text or of images.
    ///
    /// # Errors
    /// [`Failure`], naming the file and the field, or saying what its folder is instead of a model's.
    pub fn read(files: &dyn Files, path: &Path) -> Result<Self, Failure> {
        if path.ends_with(CONFIG) && files.metadata(path)?.is_none() {
            return Err(no_model(files, path.parent().unwrap_or(path), CONFIG)?);
        }
        match Classifier::read(files, path)? {
            Some(classifier) => Ok(Self::Images(classifier)),
            None => Ok(Self::Text(read_architecture(files, path)?)),
        }
    }

    /// What it is for.
    pub fn task(&self) -> Task {
        match self {
            Self::Text(_) => Task::TextGeneration,
            Self::Images(_) => Task::ImageClassification,
        }
    }

    /// The model of text.
    ///
    /// # Errors
    /// [`Failure`] where it is none.
    pub fn text(&self) -> Result<&dyn Architecture, Failure> {
        match self {
            Self::Text(model) => Ok(&**model),
            Self::Images(model) => Err(Failure::usage(format!(
                "{} is an image classifier, not a language model",
                model.name
            ))),
        }
    }

    /// Number of layers, one after the other.
    pub fn depth(&self) -> usize {
        match self {
            Self::Text(model) => model.depth(),
            Self::Images(model) => model.depth(),
        }
    }

    /// The largest `seq`: of images each is by itself.
    pub fn max_length(&self) -> usize {
        match self {
            Self::Text(model) => model.max_length(),
            Self::Images(_) => 1,
        }
    }

    /// The field of a model of text that says so.
    pub fn max_length_field(&self) -> Option<&'static str> {
        match self {
            Self::Text(model) => Some(model.max_length_field()),
            Self::Images(_) => None,
        }
    }

    /// The largest probability of dropout that it was made for.
    pub fn dropout(&self) -> f64 {
        match self {
            Self::Text(model) => model.dropout(),
            Self::Images(_) => 0.0,
        }
    }

    /// The same with one probability for every dropout; classifiers have none.
    #[must_use]
    pub fn with_dropout(&self, probability: f64) -> Self {
        match self {
            Self::Text(model) => Self::Text(model.with_dropout(probability)),
            Self::Images(model) => Self::Images(model.clone()),
        }
    }

    /// The `config.json`.
    pub fn to_json(&self) -> String {
        match self {
            Self::Text(model) => model.to_json(),
            Self::Images(model) => model.to_json(),
        }
    }

    /// A model with initial weights; with a format, held in few bits where it is frozen.
    ///
    /// # Errors
    /// [`highwater::Error::State`] if there is no room.
    pub fn build(&self, engine: &Engine, format: Option<WeightFormat>) -> highwater::Result<Model> {
        Ok(match self {
            Self::Text(model) => Model::Text(match format {
                Some(format) => model.build_held(engine, format)?,
                None => model.build(engine)?,
            }),
            Self::Images(model) => Model::Images(model.build(engine)?, model.clone()),
        })
    }

    /// Bytes on the heap of what is loaded ahead of a run, where decoding an image takes so many.
    pub fn loader_bytes(&self, training: &TrainingConfig, decoding_bytes: u64) -> u64 {
        match self {
            Self::Text(_) => 0,
            Self::Images(model) => model.loader_bytes(training.batch, decoding_bytes),
        }
    }

    /// What came of looking over the images of the data; none of text.
    ///
    /// # Errors
    /// [`Failure`] for data that cannot be read.
    pub fn survey(
        &self,
        files: &dyn Files,
        config: &RunConfig,
    ) -> Result<Option<Arc<Survey>>, Failure> {
        match self {
            Self::Images(model) if config.data.path.is_some() => {
                model.survey(files, config).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// A word on images of the data that take much of the budget to decode.
    ///
    /// # Errors
    /// [`Failure`] for data that cannot be read.
    pub fn large_data(
        &self,
        files: &dyn Files,
        config: &RunConfig,
    ) -> Result<Option<String>, Failure> {
        let survey = self.survey(files, config)?;
        Ok(survey.and_then(|survey| survey.large(config.machine.memory)))
    }

    /// That all images of the data can be used, or that those which cannot are left out.
    ///
    /// # Errors
    /// [`Failure`] for bad images, and data that cannot be read.
    pub fn check_data(&self, files: &dyn Files, config: &RunConfig) -> Result<(), Failure> {
        let survey = self.survey(files, config)?;
        let refusal = survey.and_then(|survey| survey.refusal());
        refusal
            .filter(|_| !config.data.skip_bad)
            .map_or(Ok(()), Err)
    }

    /// A batch of nothing, to plan with: of so many sequences or images.
    pub fn blank(&self, config: &RunConfig, batch: usize) -> Batch {
        let seq = config.training.seq;
        match self {
            Self::Text(_) if config.data.records.is_some() => Batch::blank_rows(config, batch),
            Self::Text(_) => Batch::Tokens(vec![0; batch * seq], vec![0; batch * seq]),
            Self::Images(model) => model.blank(batch),
        }
    }
}
