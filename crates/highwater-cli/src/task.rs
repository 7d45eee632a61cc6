//! What is trained, by its task: a model of text, or one that tells the classes of pictures.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use highwater::data::{Array, ToTensors};
use highwater::nn::functional::{CrossEntropyOptions, cross_entropy};
use highwater::op::WeightFormat;
use highwater::{Engine, Module, Parameter, Tensor, autocast, is_grad_enabled};
use highwater_memory::Files;
use highwater_models::adapter::is_adapter;
use highwater_models::data::PackedBatch;
use highwater_models::vision::{ImageClassifier, top_k_accuracy};
use highwater_models::{Architecture, BatchShape, CausalLm, read_architecture};
use serde::{Deserialize, Serialize};

use crate::config::{RunConfig, TrainingConfig};
use crate::error::{Code, Failure};
use crate::pictures::{Classifier, Survey};
use crate::preference::{self, RowInputs};
use crate::state::no_model;

/// What a model's folder says it is.
const CONFIG: &str = "config.json";

/// What a model learns to do; the names are Hugging Face's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// To go on with text.
    #[default]
    TextGeneration,
    /// To tell the classes of pictures.
    ImageClassification,
}

impl Task {
    /// Whether it is the one of settings that name none.
    pub fn is_text(&self) -> bool {
        *self == Self::TextGeneration
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::TextGeneration => "text-generation",
            Self::ImageClassification => "image-classification",
        }
    }

    /// What its data is counted in.
    pub fn unit(self) -> &'static str {
        match self {
            Self::TextGeneration => "tokens",
            Self::ImageClassification => "images",
        }
    }
}

/// What a model is built from.
#[derive(Clone, Debug)]
pub enum Blueprint {
    /// A model of text.
    Text(Arc<dyn Architecture>),
    /// A classifier of pictures.
    Images(Classifier),
}

impl Blueprint {
    /// Reads a `config.json`, of text or of pictures.
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
                "{} classifies images: it has no text to read or write",
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

    /// The largest `seq`: of pictures each is by itself.
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

    /// Bytes on the heap of what is loaded ahead of a run, where decoding a picture takes so many.
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

    /// A batch of nothing, to plan with: of so many sequences or pictures.
    pub fn blank(&self, config: &RunConfig, batch: usize) -> Batch {
        let seq = config.training.seq;
        match self {
            Self::Text(_) if config.data.records.is_some() => Batch::blank_rows(config, batch),
            Self::Text(_) => Batch::Tokens(vec![0; batch * seq], vec![0; batch * seq]),
            Self::Images(model) => model.blank(batch),
        }
    }
}

/// What a step learns from at once.
#[derive(Clone, Debug)]
pub enum Batch {
    /// Tokens and what follows each of them.
    Tokens(Vec<u32>, Vec<u32>),
    /// Rows of records.
    Packed(PackedBatch),
    /// Pairs of rows: an answer that is preferred, and another one.
    Pairs(PackedBatch),
    /// Pictures `[N, 3, H, W]` and the class of each `[N]`.
    Pictures(Array, Array),
}

impl Batch {
    /// What batches of groups of so many rows are.
    pub(crate) fn of_rows(group: usize) -> fn(PackedBatch) -> Self {
        match group {
            1 => Self::Packed,
            _ => Self::Pairs,
        }
    }

    /// Rows of nothing, to plan with.
    pub(crate) fn blank_rows(config: &RunConfig, batch: usize) -> Self {
        let group = config.rows_together();
        let (batch, seq) = (batch * group, config.training.seq);
        Self::of_rows(group)(PackedBatch::blank(BatchShape { batch, seq }))
    }

    /// How many tokens, pictures or pairs; of records the tokens that are learnt.
    pub fn units(&self) -> usize {
        match self {
            Self::Tokens(tokens, _) => tokens.len(),
            Self::Packed(rows) => rows.learned,
            Self::Pairs(rows) => rows.rows() / 2,
            Self::Pictures(_, classes) => classes.dims()[0],
        }
    }
}

/// A model that trains.
pub enum Model {
    /// One of text.
    Text(Box<dyn CausalLm>),
    /// One of pictures, and what it was built from.
    Images(Box<dyn ImageClassifier>, Classifier),
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(model) => model.fmt(f),
            Self::Images(_, classifier) => classifier.fmt(f),
        }
    }
}

impl Model {
    /// Its parts.
    pub fn module(&self) -> &dyn Module {
        match self {
            Self::Text(model) => &**model,
            Self::Images(model, _) => &**model,
        }
    }

    /// What is saved of it, by name: of text its parameters, of pictures what is counted besides too.
    pub fn saved(&self) -> Vec<(String, Parameter)> {
        match self {
            Self::Text(model) => {
                let named = model.named_parameters();
                // Beside adapters the model is frozen, and stays where it came from.
                if named.iter().any(|(name, _)| is_adapter(name)) {
                    return named
                        .into_iter()
                        .filter(|(name, _)| is_adapter(name))
                        .collect();
                }
                named
            }
            Self::Images(model, _) => model.state_dict().into_iter().collect(),
        }
    }

    /// What names begin with in files of the whole model, and not in files without the head.
    pub fn base_prefix(&self) -> &'static str {
        match self {
            Self::Text(model) => model.architecture().base_prefix(),
            Self::Images(..) => "",
        }
    }

    /// The `config.json`.
    pub fn to_json(&self) -> String {
        match self {
            Self::Text(model) => model.architecture().to_json(),
            Self::Images(_, classifier) => classifier.to_json(),
        }
    }

    /// Mean loss of a batch; of images and pairs of answers, the share that was told rightly as well, where the model
    /// is evaluated and not trained. Labels are smoothed only where it is trained. Pairs are compared with `before`,
    /// if there is such a copy.
    ///
    /// # Errors
    /// [`Failure`] of the engine.
    pub fn loss(
        &self,
        engine: &Engine,
        batch: &Batch,
        training: &TrainingConfig,
        before: Option<&dyn CausalLm>,
    ) -> Result<(Tensor, Option<Tensor>), Failure> {
        let (seq, dtype, trains) = (training.seq, training.precision.dtype(), is_grad_enabled());
        let smoothing = training.label_smoothing.filter(|_| trains).unwrap_or(0.0);
        match (self, batch) {
            (Self::Text(model), Batch::Tokens(tokens, targets)) => {
                let shape = [tokens.len() / seq, seq];
                let tokens = engine.indices(tokens, shape)?;
                let targets = engine.indices(targets, shape)?;
                let loss = autocast(dtype, || model.smoothed_loss(&tokens, &targets, smoothing));
                Ok((loss?, None))
            }
            (Self::Text(model), Batch::Packed(rows)) => {
                let inputs = RowInputs::of(engine, rows, 0..rows.rows())?;
                let loss = autocast(dtype, || {
                    model.smoothed_packed_loss(&inputs.packed(), smoothing)
                });
                Ok((loss?, None))
            }
            (Self::Text(model), Batch::Pairs(rows)) => {
                let how = training.preference.ok_or_else(|| {
                    Failure::new(Code::Internal, "pairs of answers without a preference")
                })?;
                let (loss, right) = preference::loss(&**model, before, rows, (how, dtype))?;
                Ok((loss, (!trains).then_some(right)))
            }
            (Self::Images(model, _), Batch::Pictures(images, classes)) => {
                let (images, classes) = (images.to_tensors(engine)?, classes.to_tensors(engine)?);
                let options = CrossEntropyOptions {
                    label_smoothing: smoothing,
                    ..CrossEntropyOptions::default()
                };
                let told = autocast(dtype, || {
                    let logits = model.logits(&images)?;
                    let right = (!trains).then(|| top_k_accuracy(&logits, &classes, 1));
                    let loss = cross_entropy(&logits, &classes, options)?;
                    Ok::<_, highwater::Error>((loss, right.transpose()?))
                });
                Ok(told?)
            }
            _ => {
                let message = "a batch of another task than the model's";
                Err(Failure::new(Code::Internal, message))
            }
        }
    }
}
