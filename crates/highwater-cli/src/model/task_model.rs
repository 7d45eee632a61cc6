//! A model of either task, and its loss.

use std::fmt;

use highwater::data::ToTensors;
use highwater::nn::functional::{CrossEntropyOptions, cross_entropy};
use highwater::{Engine, Module, Parameter, Tensor, autocast, is_grad_enabled};
use highwater_models::CausalLm;
use highwater_models::adapter::is_adapter;
use highwater_models::vision::{ImageClassifier, top_k_accuracy};

use super::batch::Batch;
use super::classifier::Classifier;
use super::preference::{self, RowInputs};
use crate::config::TrainingConfig;
use crate::error::{Code, Failure};

/// A model that trains.
pub enum Model {
    /// One of text.
    Text(Box<dyn CausalLm>),
    /// One of images, and what it was built from.
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

    /// What is saved of it, by name: of text its parameters, of images what is counted besides too.
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
            (Self::Images(model, _), Batch::Images(images, classes)) => {
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
