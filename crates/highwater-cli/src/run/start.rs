//! What a new run and one that goes on make ready alike.

use std::path::Path;
use std::sync::Arc;

use highwater_memory::Files;
use highwater_models::vision::{ImageClassifier, load_backbone, load_pretrained};

use super::samples::Samples;
use super::tensorboard::Events;
use crate::config::{ModelSource, RunConfig};
use crate::error::{Code, Failure};
use crate::folder::{RunDir, state};
use crate::machine::MachineLimits;
use crate::model::{Classifier, Model, base};
use crate::session::Session;

/// What this machine does at most, if a profile is asked for.
pub(crate) fn limits(profile: bool, config: &RunConfig) -> Option<MachineLimits> {
    let machine = &config.machine;
    let measure = || MachineLimits::measure_in_child(machine.threads, machine.memory.0);
    profile.then(measure).flatten()
}

/// Begins a file for TensorBoard, if one is asked for, behind so many steps.
pub(crate) fn events(
    files: &dyn Files,
    dir: &RunDir,
    (config, done): (&RunConfig, u64),
) -> Result<Option<Events>, Failure> {
    if !config.output.tensorboard {
        return Ok(None);
    }
    let (events, path) = Events::begin(files, &dir.tensorboard(), done)?;
    dir.own(files, [path])?;
    Ok(Some(events))
}

/// What the model is shown to go on from, of a run of texts.
pub(crate) fn samples(
    files: &Arc<dyn Files>,
    dir: &RunDir,
    session: &Session,
) -> Result<Option<Samples>, Failure> {
    match &session.model {
        Model::Text(model) => Samples::open(files, session.config(), &dir.template(), &**model),
        Model::Images(..) => Ok(None),
    }
}

/// Loads the weights of a model folder; a preset keeps the ones that were drawn. Says which of a classifier's were
/// not loaded, as their last layer is for other classes, and which tensors the model has no place for.
pub(crate) fn load_weights(
    files: &dyn Files,
    config: &RunConfig,
    session: &Session,
) -> Result<Option<String>, Failure> {
    let ModelSource::Folder(folder) = &config.model.source else {
        return Ok(None);
    };
    match &session.model {
        Model::Text(model) => {
            let note = base::read(files, folder, &**model)?;
            if let Some(before) = &session.before {
                base::read(files, folder, &**before)?;
            }
            Ok(note)
        }
        Model::Images(model, classifier) => {
            let left = load_classifier(files, folder, (&**model, classifier))?;
            let note = || {
                format!(
                    "note: initialized randomly, because the classes are others: {}",
                    left.join(", ")
                )
            };
            Ok((!left.is_empty()).then(note))
        }
    }
}

/// Loads the weights of a classifier's folder. Where the folder's classes are not the run's, the last layer is left as
/// it was drawn. Answers the names of what was not loaded.
fn load_classifier(
    files: &dyn Files,
    folder: &Path,
    (model, classifier): (&dyn ImageClassifier, &Classifier),
) -> Result<Vec<String>, Failure> {
    let path = folder.join(state::MODEL);
    let own = Classifier::read(files, &folder.join("config.json"))?;
    let own = own.map_or_else(Default::default, |own| own.classes);
    if !own.is_empty() && own != classifier.classes {
        return load_backbone(model, path).map_err(Failure::of_weights);
    }
    let left = load_pretrained(model, &path).map_err(Failure::of_weights)?;
    if let Some(name) = left.first().filter(|_| !own.is_empty()) {
        let message = format!(
            "{}: `{name}` is missing or not for the {} classes of config.json",
            path.display(),
            own.len()
        );
        let hint = "correct id2label, or remove it: the last layer is then initialized randomly";
        return Err(Failure::new(Code::Files, message).id("HW1013").hint(hint));
    }
    Ok(left)
}
